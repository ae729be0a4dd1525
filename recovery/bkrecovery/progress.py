"""The published state of a worker: its ledgers, since when, and its rate."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import StrEnum, unique
from typing import Final

from bkctl.codec.recovery_notes import LEDGERS_SHOWN_MAX, LedgerNote, WorkerNote
from bkctl.errors import BkctlError
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.world import Clock

PUBLISH_S: Final = 5.0
"""Interval of publishing while the state changes."""
RATE_WINDOW_S: Final = 30.0
END_TIMEOUT_S: Final = 3.0
_log = logging.getLogger(__name__)


@unique
class LedgerState(StrEnum):
    """Why a worker holds a ledger's lock."""

    COPYING = "copying"
    GRACE = "grace"
    PAUSE = "pause"


class RateMeter:
    """The rate of something that only grows, over the last RATE_WINDOW_S. Times are the loop's."""

    def __init__(self, now_s: float) -> None:
        self._seen: deque[tuple[float, int]] = deque([(now_s, 0)])

    def measure(self, now_s: float, total: int) -> float:
        """Notes the total as of now; returns how much it grew a second."""
        self._seen.append((now_s, total))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - RATE_WINDOW_S:
            self._seen.popleft()
        since_s, before = self._seen[0]
        return (total - before) / (now_s - since_s) if now_s > since_s else 0.0

    def rest(self, now_s: float, total: int) -> None:
        """Resets the rate while idle."""
        self._seen = deque([(now_s, total)])


class Progress:
    """The ledgers of one worker, published by publish_for_ever.

    Args:
        totals: (bytes copied, ledgers repaired, ledgers failed) since the start.
    """

    def __init__(
        self, board: RecoveryBoard, clock: Clock, worker: str, host: str, totals: Callable[[], tuple[int, int, int]]
    ) -> None:
        self._board = board
        self._clock = clock
        self._worker = worker
        self._host = host
        self._totals = totals
        self._ledgers: dict[int, LedgerNote] = {}
        self._published = ""
        self.bytes_per_s = 0.0

    def enter(self, ledger_id: int, state: LedgerState) -> None:
        """The ledger is in this state from now on."""
        self._ledgers[ledger_id] = LedgerNote(ledger_id, state.value, self._clock.now_ms())

    def leave(self, ledger_id: int) -> None:
        """Removes a ledger that the worker has finished."""
        self._ledgers.pop(ledger_id, None)

    async def publish_for_ever(self) -> None:
        """Publishes changes, at most every PUBLISH_S; deletes the node at the end."""
        loop = asyncio.get_running_loop()
        meter, told = RateMeter(loop.time()), None
        try:
            while True:
                copied, repaired, failed = self._totals()
                copying = any(note.state == LedgerState.COPYING for note in self._ledgers.values())
                self.bytes_per_s = meter.measure(loop.time(), copied)
                if not copying and not self.bytes_per_s:
                    meter.rest(loop.time(), copied)
                news = (self._board.store.session_id, int(self.bytes_per_s), copied, repaired, failed,
                        tuple(self._ledgers.values()))  # fmt: skip
                if news != told and await self._publish(copied, repaired, failed):
                    told = news
                await asyncio.sleep(PUBLISH_S)
        finally:
            await self._end()

    async def _publish(self, copied: int, repaired: int, failed: int) -> bool:
        """False if the store fails: it is retried."""
        shown = sorted(self._ledgers.values(), key=lambda note: (note.state != LedgerState.COPYING, note.ledger_id))
        note = WorkerNote(
            self._worker, self._host, self._clock.now_ms(), int(self.bytes_per_s), copied, repaired, failed,
            tuple(shown[:LEDGERS_SHOWN_MAX]),
        )  # fmt: skip
        name = f"{self._worker.replace('/', '_')}_{self._board.store.session_id:x}"
        try:
            await self._board.publish(name, note)
        except BkctlError as e:
            _log.debug("cannot publish the state of the worker: %s", e)
            return False
        self._published = name
        return True

    async def _end(self) -> None:
        if not self._published:
            return
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._board.unpublish(self._published)
        except (BkctlError, TimeoutError) as e:
            _log.debug("cannot delete the worker's node, which the end of the session removes: %s", e)
