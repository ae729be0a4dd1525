"""Ledgers with entries that no bookie has: recorded in the metadata store, and retried with growing delays.

    try     1      2       3       4      …    9 and more    LOST_TRIES_MAX
    next    5 min  10 min  20 min  40 min      a day         never by itself

Between two tries the ledger is not locked: it can be purged, repaired manually, or picked by Java's workers. The record
is deleted when the ledger is repaired, deleted or removed from the queue, and by `queue requeue`, after which it is
retried at once. Entries that a bookie which is down may have are not lost: those are retried as any failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from bkctl.codec.recovery_notes import ENTRIES_SHOWN_MAX, LostNote
from bkctl.errors import BkctlError
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from bkctl.world import Clock

LOST_PAUSE_S: Final = 300.0
LOST_PAUSE_MAX_S: Final = 86_400.0
LOST_TRIES_MAX: Final = 20
KEPT_S: Final = 5.0
"""Maximum age of the list of records: in a long queue it is read for every few ledgers."""
TIDY_S: Final = 300.0
"""Interval of removing records of ledgers that left the queue."""
_log = logging.getLogger(__name__)


def next_note(
    before: LostNote | None, ledger_id: int, entry_ids: Sequence[int], reason: str, worker: str, now_ms: int
) -> LostNote:
    """The record after one more attempt that found these entries on no bookie."""
    tries = 1 if before is None else before.tries + 1
    pause_s = min(LOST_PAUSE_S * 2.0 ** min(tries - 1, 32), LOST_PAUSE_MAX_S)
    return LostNote(
        ledger_id,
        now_ms if before is None else before.first_ms,
        now_ms,
        tries,
        None if tries >= LOST_TRIES_MAX else now_ms + int(pause_s * 1000),
        worker,
        reason,
        tuple(entry_ids[:ENTRIES_SHOWN_MAX]),
        len(entry_ids),
    )


def rests(note: LostNote, now_ms: int) -> bool:
    """True while it is not time for another try."""
    return note.next_ms is None or now_ms < note.next_ms


class LostLedgers:
    """The records as one worker sees them. Failures to read or write them are logged."""

    def __init__(self, queue: Underreplication, board: RecoveryBoard, clock: Clock, worker: str) -> None:
        self._noted: set[int] = set()
        self._read_s: float | None = None
        self._queue = queue
        self._board = board
        self._clock = clock
        self._worker = worker
        self._tidied_s = 0.0

    @property
    def count(self) -> int:
        """Ledgers with a record, of any worker."""
        return len(self._noted)

    async def resting(self, ledger_ids: Sequence[int]) -> set[int]:
        """The marked ledgers that are not due for a retry."""
        try:
            await self._refresh()
            own = [ledger_id for ledger_id in ledger_ids if ledger_id in self._noted]
            notes = await self._board.lost(own) if own else {}
        except BkctlError as e:
            _log.warning("cannot read the records of lost entries: %s", e)
            return set()
        now_ms = self._clock.now_ms()
        return {ledger_id for ledger_id, note in notes.items() if rests(note, now_ms)}

    async def note(self, ledger_id: int, entry_ids: Sequence[int], reason: str) -> None:
        """Records one more attempt that found these entries on no bookie."""
        try:
            before = (await self._board.lost([ledger_id])).get(ledger_id)
            note = next_note(before, ledger_id, entry_ids, reason, self._worker, self._clock.now_ms())
            await self._board.note_lost(note)
            self._noted.add(ledger_id)
        except BkctlError as e:
            _log.warning("cannot record the lost entries of ledger %d: %s", ledger_id, e)
            return
        again = "no more retries" if note.next_ms is None else f"next try in {(note.next_ms - note.last_ms) // 1000} s"
        _log.error("ledger %d: %d entries are on no bookie, %s: %s", ledger_id, len(entry_ids), again, reason)

    async def forget(self, ledger_id: int) -> None:
        """Deletes the record of a ledger that was repaired or deleted."""
        try:
            await self._board.forget_lost(ledger_id)
            self._noted.discard(ledger_id)
        except BkctlError as e:
            _log.warning("cannot delete the record of lost entries of ledger %d: %s", ledger_id, e)

    async def _refresh(self) -> None:
        """Reads the list of notes, unless it was read a moment ago."""
        now_s = asyncio.get_running_loop().time()
        if self._read_s is not None and now_s - self._read_s < KEPT_S:
            return
        self._noted = await self._board.lost_ids()
        self._read_s = now_s
        if self._noted and now_s >= self._tidied_s:
            self._tidied_s = now_s + TIDY_S
            await self._tidy()

    async def _tidy(self) -> None:
        """Deletes the records of ledgers that are no longer in the queue."""
        ledger_ids = sorted(self._noted)
        nodes = await self._queue.store.get_many([self._queue.marker_path(ledger_id) for ledger_id in ledger_ids])
        for ledger_id, node in zip(ledger_ids, nodes, strict=True):
            if node is None:
                await self._board.forget_lost(ledger_id)
                self._noted.discard(ledger_id)
