"""The published state of a worker, and the rate that it shows."""

from __future__ import annotations

import pytest
from bkrecovery.progress import RATE_WINDOW_S, RateMeter
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import (
    PAYLOADS,
    board_of,
    bookies_of,
    gone_from,
    recovering,
    until,
    write,
)


def test_a_worker_publishes_its_ledgers_and_its_rate() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 1_200)
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        board = board_of(cluster)
        slow = RecoverySettings(ledger_check_s=0, placement_check_s=0, rate_bytes_per_s=1_000)
        async with recovering(bookkeeper, "ar", slow):
            cluster.kill(gone)

            async def copying() -> bool:
                return any(note.bytes_per_s and note.ledgers for note in (await board.workers()).values())

            await until(copying)
            ((session, note),) = (await board.workers()).items()
            assert session == bookkeeper.ledgers.store.session_id
            assert (note.worker, [(e.ledger_id, e.state) for e in note.ledgers]) == ("ar", [(ledger_id, "copying")])
            assert 100 < note.bytes_per_s < 5_000
            await until(lambda: gone_from(bookkeeper, gone))

            async def idle() -> bool:
                (now,) = (await board.workers()).values()
                return not now.ledgers and not now.bytes_per_s and now.ledgers_repaired == 1

            await until(idle)
        assert await board.workers() == {}
        assert sum(map(len, PAYLOADS)) > 0

    simulate(scenario, version=2)


def test_the_rate_covers_the_last_window_only() -> None:
    meter = RateMeter(0.0)
    assert meter.measure(0.0, 0) == 0.0
    assert meter.measure(10.0, 1_000) == 100.0
    assert meter.measure(RATE_WINDOW_S, 3_000) == 100.0
    assert meter.measure(RATE_WINDOW_S + 10.0, 3_000) == pytest.approx(2_000 / RATE_WINDOW_S), "the first 10 s are out"
    assert meter.measure(10 * RATE_WINDOW_S, 3_000) == 0.0


def test_the_rate_restarts_after_idle_time() -> None:
    meter = RateMeter(0.0)
    meter.measure(1.0, 500)
    meter.rest(100.0, 500)
    assert meter.measure(102.0, 700) == 100.0
