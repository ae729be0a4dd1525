"""The queue as a worker sees it: short ones whole, long ones a piece at a time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from bkrecovery import queue
from bkrecovery.queue import LOOK_AGAIN_S, QueueWatch

from bkctl.client.client import BookKeeper
from bkctl.model.ids import BookieId
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import (
    PAYLOADS,
    assert_replicated,
    gone_from,
    queue_of,
    quiet,
    recovering,
    until,
    write,
)

GONE = BookieId("b0:3181")


def test_a_short_queue_is_returned_completely() -> None:
    async def scenario(cluster: SimCluster, _: BookKeeper) -> None:
        under = queue_of(cluster)
        await under.ensure()
        watch = QueueWatch(under, Random(1))
        assert await watch.free(4) == []
        for ledger_id in range(20):
            await under.mark(ledger_id, [GONE])
        await asyncio.wait_for(watch.changed(), LOOK_AGAIN_S / 2)
        await under.lock(3, "somebody")
        assert await watch.free(4) == [e for e in range(20) if e != 3]
        assert not watch.more
        watch.close()

    simulate(scenario)


def test_a_long_queue_is_returned_in_pieces_and_scanned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "LOOK_AT_ALL_MAX", 5)

    async def scenario(cluster: SimCluster, _: BookKeeper) -> None:
        under = queue_of(cluster)
        await under.ensure()
        for ledger_id in range(20):
            await under.mark(ledger_id, [GONE])
        await under.lock(3, "somebody")
        watch = QueueWatch(under, Random(1))
        pieces = [await watch.free(4) for _ in range(5)]
        assert [len(piece) for piece in pieces] == [4, 4, 4, 4, 3]
        assert sorted(e for piece in pieces for e in piece) == [e for e in range(20) if e != 3]
        assert not watch.more
        assert len(await watch.free(4)) == 4  # and from the beginning
        await under.mark(99, [GONE])
        await asyncio.sleep(LOOK_AGAIN_S)
        later = [e for _ in range(5) for e in await watch.free(4)]
        assert sorted(later) == [*(e for e in range(20) if e != 3), 99]
        watch.close()

    simulate(scenario)


def test_a_long_queue_is_worked_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "LOOK_AT_ALL_MAX", 2)

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (3, 2, 2), 20) for _ in range(30)]
        cluster.kill(GONE)
        async with recovering(bookkeeper, "one"), recovering(bookkeeper, "two"):
            took_s = await until(lambda: gone_from(bookkeeper, GONE))
            await until(lambda: quiet(cluster))
        assert took_s < LOOK_AGAIN_S  # no worker had to wait for the next scan
        for ledger_id in ledgers:
            await assert_replicated(cluster, bookkeeper, ledger_id, len(PAYLOADS[:20]))

    simulate(scenario, bookies=6, version=2)
