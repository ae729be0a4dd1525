"""Data that is lost for good: skipped and acknowledged where autoSkipNonRecoverableData says so.

    ledger    metadata do not know it any more: acknowledged by every cursor
    entry     every one of its bookies answers "not here", or that its disk fails: acknowledged by the cursor that came
              to it, one entry at a time; those beside it are delivered
    search    by time: the next entry that can be had stands for those that are lost; nothing is acknowledged

Entries that may become readable are waited for: an entry with a bookie that is down, or with damaged copies only, and
entries that a Java broker moved to tiered storage, which this one does not read. Java checks less: it trusts one
bookie whose disk fails while the others are away, and with one lost entry skips all that it wanted to read at once, up
to 100.
Source: OpReadEntry.java, ManagedLedgerImpl.java (createManagedLedgerException, skipNonRecoverableLedger),
ManagedCursorImpl.java (skipNonRecoverableEntries, isBkErrorNotRecoverable), PendingReadOp.java.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from bkctl.errors import BkctlError, NoSuchLedger, NotFound, Unavailable
from bkctl.model.status import Status
from bkctl.model.topic import Position
from bkctl.protocol.recovery import status_name

if TYPE_CHECKING:
    from bkctl.log.cache import Found
    from bkctl.log.cursor import Cursor
    from bkctl.log.ledgers import LedgerList
    from bkctl.log.node import LedgerContext
    from bkctl.log.reads import LedgerReads
    from bkctl.log.settings import LedgerSettings

LOGGED_MAX: Final = 1_000
"""Ledgers of one topic that are logged by name."""
SINGLE_READS_MAX: Final = 100
"""Entries that are read one by one where a read of many has failed."""
HOPELESS: Final = frozenset(map(status_name, (Status.NO_ENTRY, Status.NO_LEDGER, Status.IO_ERROR)))
"""Answers of bookies that Java counts as final."""

_log = logging.getLogger(__name__)


class ReadLog(Protocol):
    """The managed ledger that is read."""

    context: LedgerContext
    name: str
    settings: LedgerSettings
    ledgers: LedgerList
    cursors: dict[str, Cursor]


class LostData:
    """Reads one managed ledger and skips its lost entries.

    Attributes:
        skipped: entries that were skipped, counted for each read that came to them.
    """

    def __init__(self, log: ReadLog, reads: LedgerReads) -> None:
        self.skipped = 0
        self._log = log
        self._reads = reads
        self._logged: set[int] = set()

    async def read(self, start: Position, entries_max: int, bytes_max: int, cursor: Cursor | None) -> Found:
        """Returns entries at or after start without the lost ones, which the cursor acknowledges."""
        while True:
            position = self._log.ledgers.at_or_after(start)
            try:
                return await self._reads.read(start, entries_max, bytes_max)
            except (NotFound, Unavailable):
                if not self._log.settings.skip_lost:
                    raise
                if await self._skip(position.ledger_id):
                    start = Position(position.ledger_id + 1, 0)
                    continue
                found, start = await self._read_singly(position, entries_max, bytes_max, cursor)
                if not found and start == position:
                    raise
            if found:
                return found

    async def look(self, start: Position, until: Position) -> tuple[Position, bytes] | None:
        """Returns the first entry from start on, before until, that is not lost; None if all are.

        Raises:
            NoSuchEntry, NoSuchLedger, BadBytes, Unavailable: an entry that may become readable, or must not be skipped.
        """
        ledgers, singly = self._log.ledgers, -1
        position = ledgers.at_or_after(start)
        while position < until and ledgers.contains(position):
            ledger_id, entry_id = position
            try:
                if ledger_id == singly:
                    return position, await self._reads.read_one(ledger_id, entry_id)
                found = await self._reads.read(position, 1, 1)
                return found[0] if found and found[0][0] < until else None
            except (NotFound, Unavailable) as e:
                if not self._log.settings.skip_lost or (ledger_id == singly and not _is_hopeless(e)):
                    raise
            if ledger_id == singly:
                position = ledgers.next(position)
            elif ledger_id != ledgers.open_id and await self._is_lost(ledger_id):
                position = ledgers.at_or_after(Position(ledger_id + 1, 0))
            singly = ledger_id
        return None

    # -- single entries ---------------------------------------------------------------------------------------------

    async def _read_singly(
        self, first: Position, entries_max: int, bytes_max: int, cursor: Cursor | None
    ) -> tuple[Found, Position]:
        """Reads entries from first on, up to an unreadable one; for lost entries, returns the position after them."""
        ledger_id, entry_id = first
        found: Found = []
        size = lost = 0
        for at in range(entry_id, min(entry_id + SINGLE_READS_MAX, self._log.ledgers.entries(ledger_id))):
            if len(found) >= max(1, entries_max):
                break
            try:
                entry = await self._reads.read_one(ledger_id, at)
            except (NotFound, Unavailable) as e:
                if found or not _is_hopeless(e):
                    break
                lost += 1
                continue
            size += len(entry)
            if lost or (found and size > bytes_max):
                break
            found.append((Position(ledger_id, at), entry))
        if lost:
            self._pass(ledger_id, entry_id, entry_id + lost, cursor)
        return found, Position(ledger_id, entry_id + lost)

    def _pass(self, ledger_id: int, first: int, end: int, cursor: Cursor | None) -> None:
        """Skips the entries from first on, up to end."""
        log = self._log
        self._count(end - first)
        if self._is_news(ledger_id):
            _log.warning(
                "%s: entry %d of ledger %d is lost for good: it, and others of that ledger that may be lost, are"
                " skipped and acknowledged by each cursor that comes to them (autoSkipNonRecoverableData)",
                log.name,
                first,
                ledger_id,
            )
        if cursor is None:
            return
        cursor.ack_range(ledger_id, first, end - 1)
        following = log.ledgers.at_or_after(cursor.read_position)
        if Position(ledger_id, first) <= following < Position(ledger_id, end):
            cursor.read_position = log.ledgers.at_or_after(Position(ledger_id, end))

    # -- whole ledgers ----------------------------------------------------------------------------------------------

    async def _skip(self, ledger_id: int) -> bool:
        """Passes a ledger whose entries could not be read, with all cursors; False where it is not lost, or is open."""
        log = self._log
        if ledger_id == log.ledgers.open_id or not await self._is_lost(ledger_id):
            return False
        entries = 0 if ledger_id == log.ledgers.open_id else log.ledgers.entries(ledger_id)
        if not entries:
            return ledger_id not in log.ledgers.infos  # it was trimmed meanwhile
        self._count(entries)
        if self._is_news(ledger_id):
            _log.warning(
                "%s: ledger %d is lost for good: its %d entries are skipped and acknowledged by all %d cursors"
                " (autoSkipNonRecoverableData)",
                log.name,
                ledger_id,
                entries,
                len(log.cursors),
            )
        after = log.ledgers.at_or_after(Position(ledger_id, entries))
        for cursor in list(log.cursors.values()):
            cursor.ack_range(ledger_id, 0, entries - 1)
            if cursor.read_position.ledger_id == ledger_id:
                cursor.read_position = after
        return True

    async def _is_lost(self, ledger_id: int) -> bool:
        """True if metadata can be read and does not have it, and it is not in tiered storage either."""
        info = self._log.ledgers.infos.get(ledger_id)
        if info is not None and info.offloaded:
            return False
        try:
            await self._log.context.bookkeeper.ledgers.read(ledger_id)
        except NoSuchLedger:
            return True
        except BkctlError as e:
            _log.debug("%s: ledger %d may be lost or not: %s", self._log.name, ledger_id, e)
        return False

    # -- logging ----------------------------------------------------------------------------------------------------

    def _count(self, entries: int) -> None:
        self.skipped += entries
        self._log.context.cache.skipped += entries

    def _is_news(self, ledger_id: int) -> bool:
        """True once for each ledger."""
        if ledger_id in self._logged or len(self._logged) >= LOGGED_MAX:
            return False
        self._logged.add(ledger_id)
        return True


def _is_hopeless(error: BkctlError) -> bool:
    """True if every bookie that should have an entry has answered, and none of them ever will give it."""
    answers = error.details.get("answers")
    return isinstance(answers, dict) and bool(answers) and HOPELESS.issuperset(answers.values())
