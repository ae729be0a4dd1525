"""Background tasks and timers of a managed ledger, and the pauses between ledgers that stored no add."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from bkctl.errors import BkctlError, Unavailable

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0
"""Java's WaitTimeAfterLedgerCreationFailureMs."""

_log = logging.getLogger(__name__)


def known_error(error: BaseException, what: str) -> BkctlError:
    """Returns the error if it is a BkctlError, else an Unavailable that wraps it, as after a bug or a cancellation."""
    return error if isinstance(error, BkctlError) else Unavailable(f"{what}: {error!r}")


class Chores:
    """Tasks and timers of one managed ledger."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._stopped = False
        self._loop = asyncio.get_running_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts a task; its failure is logged."""
        task = self._loop.create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: a task has failed", self._name, exc_info=task.exception())

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Calls it after a while, unless all timers are stopped before."""
        if self._stopped:
            return
        self._timers = [timer for timer in self._timers if not timer.cancelled() and timer.when() > self._loop.time()]
        self._timers.append(self._loop.call_later(delay_s, work))

    def stop_timers(self) -> None:
        """Cancels all timers; later ones are ignored."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class Pauses:
    """How long to wait before another ledger follows one that failed: not at all, then twice as long each time.

    A bookie that is dead and still registered would be chosen again at once, for as long as its session lasts.
    """

    def __init__(self) -> None:
        self._added = -1
        self._next_s = 0.0

    def next_s(self, added: int) -> float:
        """The pause after a failure; `added` counts stored adds; one more resets it."""
        if added != self._added:
            self._added, self._next_s = added, 0.0
        pause_s = self._next_s
        self._next_s = min(max(2 * pause_s, PAUSE_FIRST_S), PAUSE_MAX_S)
        return pause_s
