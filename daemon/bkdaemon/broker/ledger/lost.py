"""Ledgers that are lost for good: skipped where autoSkipNonRecoverableData says so, and acknowledged by every cursor.

Only a ledger that metadata does not know any more is lost. One whose bookies are away, or have lost what they had,
is waited for: its data may come back. Source: ManagedLedgerImpl.java (skipNonRecoverableLedger), OpReadEntry.java.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError, NoSuchLedger, NotFound, Unavailable
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkdaemon.broker.ledger.cache import Found
    from bkdaemon.broker.ledger.ledger_reads import LedgerReads
    from bkdaemon.broker.ledger.managed_ledger import ManagedLedger

TOLD_MAX: Final = 1_000
"""Lost ledgers of one topic that are told of by name."""

_log = logging.getLogger(__name__)


class LostLedgers:
    """The lost ledgers of one managed ledger."""

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self._told: set[int] = set()

    async def read(self, reads: LedgerReads, start: Position, entries_max: int, bytes_max: int) -> Found:
        """Entries at or after start, behind the ledgers that are lost."""
        while True:
            ledger_id = self._log.ledgers.at_or_after(start).ledger_id
            try:
                return await reads.read(start, entries_max, bytes_max)
            except (NotFound, Unavailable):
                if not await self._skip(ledger_id):
                    raise
            start = Position(ledger_id + 1, 0)

    async def _skip(self, ledger_id: int) -> bool:
        """Passes a ledger whose entries could not be read, with all cursors; False where it is not lost, or is open."""
        log = self._log
        if not log.settings.skip_lost or ledger_id == log.ledgers.open_id or not await self._is_lost(ledger_id):
            return False
        entries = 0 if ledger_id == log.ledgers.open_id else log.ledgers.entries(ledger_id)
        if not entries:
            return ledger_id not in log.ledgers.infos  # it was trimmed meanwhile
        if ledger_id not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(ledger_id)
            _log.warning(
                "%s: ledger %d is lost for good: its %d entries are skipped and acknowledged by all %d cursors"
                " (autoSkipNonRecoverableData)",
                log.name,
                ledger_id,
                entries,
                len(log.cursors),
            )
        behind = log.ledgers.at_or_after(Position(ledger_id, entries))
        for cursor in list(log.cursors.values()):
            cursor.ack(Position(ledger_id, entry_id) for entry_id in range(entries))
            if cursor.read_position.ledger_id == ledger_id:
                cursor.read_position = behind
        return True

    async def _is_lost(self, ledger_id: int) -> bool:
        """True if metadata can be read and does not have it."""
        try:
            await self._log.context.bookkeeper.ledgers.read(ledger_id)
        except NoSuchLedger:
            return True
        except BkctlError as e:
            _log.debug("%s: ledger %d may be lost or not: %s", self._log.name, ledger_id, e)
        return False
