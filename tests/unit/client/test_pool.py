"""Connections to all bookies: quarantine, addresses, idle connections."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.client.bookie import BACK_OFF_MAX_S
from bkctl.client.client import BookKeeper
from bkctl.client.pool import FAILURE_KEPT_S, IDLE_CLOSE_S, QUARANTINE_FAILURES
from bkctl.errors import Unavailable
from bkctl.protocol.quorum import UNREACHABLE
from tests.unit.client.cluster import SimCluster, simulate


def test_a_bookie_that_fails_repeatedly_is_in_quarantine() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        pool = bookkeeper.context.pool
        writable = await bookkeeper.registry.writable()
        bad = sorted(writable)[0]
        cluster.machines[bad.partition(":")[0]].kill()  # dead, but still registered
        for _ in range(QUARANTINE_FAILURES):
            assert (await pool.connection(bad, 3).call(lambda c: c.info(), 5.0)).status == UNREACHABLE
            await asyncio.sleep(BACK_OFF_MAX_S)
        assert pool.quarantined(writable) == {bad}
        for _ in range(20):
            assert bad not in (await bookkeeper.create(3, 2, 2)).metadata.last_ensemble.bookies
        assert bad in (await bookkeeper.create(4, 2, 2)).metadata.last_ensemble.bookies  # no other way
        await asyncio.sleep(200)
        assert pool.quarantined(writable) == set()

    simulate(scenario, quarantine_s=100.0)


def test_idle_connections_are_closed_and_opened_again() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        bookie = sorted(await bookkeeper.registry.writable())[0]
        await bookkeeper.bookie_info(bookie)
        first = bookkeeper.context.pool.connection(bookie, 3)
        await asyncio.sleep(IDLE_CLOSE_S + 10)
        assert bookkeeper.context.pool.connection(bookie, 3) is not first
        await bookkeeper.bookie_info(bookie)
        await bookkeeper.close()
        with pytest.raises(Unavailable):
            await bookkeeper.bookie_info(bookie)

    simulate(scenario)


def test_at_most_half_of_the_writable_bookies_are_left_out() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        pool, writable = bookkeeper.context.pool, await bookkeeper.registry.writable()
        for bookie in sorted(writable):
            for _round in range(QUARANTINE_FAILURES):
                pool.note_failure(bookie)
            await asyncio.sleep(1)
        assert pool.quarantined(writable) == set(sorted(writable)[2:]), "the newest failures count first"

    simulate(scenario, quarantine_s=100.0)


def test_a_bookie_that_failed_or_was_slow_is_suspicious_for_a_while() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        pool, (failed, slow, good, *_rest) = bookkeeper.context.pool, sorted(await bookkeeper.registry.writable())
        pool.note_failure(failed)
        pool.note_slow(slow)
        assert [pool.suspicious(bookie) for bookie in (failed, slow, good)] == [True, True, False]
        await asyncio.sleep(FAILURE_KEPT_S + 1)
        assert [pool.suspicious(bookie) for bookie in (failed, slow)] == [False, False]

    simulate(scenario)
