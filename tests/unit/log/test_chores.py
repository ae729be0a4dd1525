"""Tasks and timers of a managed ledger, and the pauses between ledgers that took no add."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from bkctl.errors import NoSuchLedger, Unavailable
from bkctl.log.chores import PAUSE_FIRST_S, PAUSE_MAX_S, Chores, Pauses, known_error
from tests.sim.loop import SimLoop, run


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main(_: SimLoop) -> None:
        await scenario()

    run(main)


def test_an_error_of_ours_is_kept_and_another_one_is_unavailable() -> None:
    ours = NoSuchLedger("ledger 7", ledger_id=7)
    assert known_error(ours, "log t") is ours
    other = known_error(ValueError("a bug"), "log t")
    assert isinstance(other, Unavailable)
    assert str(other) == "log t: ValueError('a bug')"


def test_a_failed_task_is_logged_and_a_cancelled_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        chores = Chores("log t")

        async def fail() -> None:
            raise ValueError("a bug")

        chores.run(fail())
        chores.run(asyncio.sleep(1000))
        await asyncio.sleep(1)
        (waiting,) = chores._tasks
        waiting.cancel()
        await asyncio.sleep(1)
        assert chores._tasks == set()

    in_virtual_time(scenario)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "log t: a task has failed"
    ]


def test_a_timer_calls_once_and_is_forgotten() -> None:
    async def scenario() -> None:
        chores = Chores("log t")
        called: list[int] = []
        for i in range(100):
            chores.later(1, lambda i=i: called.append(i))  # type: ignore[misc]
            await asyncio.sleep(2)
        assert called == list(range(100))
        assert len(chores._timers) == 1, "timers that have fired are not kept"

    in_virtual_time(scenario)


def test_stopped_timers_never_call() -> None:
    async def scenario() -> None:
        chores = Chores("log t")
        called: list[str] = []
        chores.later(1, lambda: called.append("before"))
        chores.stop_timers()
        chores.later(1, lambda: called.append("after"))
        await asyncio.sleep(10)
        assert called == []

    in_virtual_time(scenario)


def test_pauses_double_up_to_the_maximum_and_restart_after_a_stored_add() -> None:
    pauses = Pauses()
    found = [pauses.next_s(0) for _ in range(12)]
    assert found[:4] == [0, PAUSE_FIRST_S, 2 * PAUSE_FIRST_S, 4 * PAUSE_FIRST_S]
    assert found[-2:] == [PAUSE_MAX_S, PAUSE_MAX_S]
    assert found == sorted(found)
    assert [pauses.next_s(1), pauses.next_s(1)] == [0, PAUSE_FIRST_S]
