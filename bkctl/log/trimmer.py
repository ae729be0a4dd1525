"""Deletes ledgers that a managed ledger needs no more: out of the list first, then out of BookKeeper; one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from bkctl.codec.managed_ledger import COMPACTED
from bkctl.errors import BkctlError, Conflict
from bkctl.log.recovered import delete_ledger
from bkctl.log.state import State
from bkctl.log.trimming import Retention, judge

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger

ORPHANS_MAX: Final = 1_000
"""Ledgers of one topic that are to be deleted at another attempt."""

DELETE_ATTEMPTS_MAX: Final = 3
"""Of the ledgers of a topic that is deleted."""

_log = logging.getLogger(__name__)


class Trimmer:
    """The trimming half of one managed ledger."""

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self._turn = asyncio.Lock()
        self._orphans: set[int] = set()

    async def trim(self) -> list[int]:
        """Deletes what all durable cursors passed and retention lets go; returns the ids. Nothing if it cannot now."""
        log = self._log
        if self._turn.locked() or not log.context.store.reachable:
            return []
        durable = [
            (cursor.name, min(cursor.mark_delete, cursor.stored_mark_delete))
            for cursor in log.cursors.values()
            if cursor.durable
        ]
        retention = Retention(log.settings.retention_s, log.settings.retention_bytes)
        verdicts = judge(log.ledgers, durable, retention, log.context.world.clock.now_ms())
        return await self.drop([verdict.ledger_id for verdict in verdicts if verdict.kept is None])

    async def trim_again(self) -> None:
        """The same from time to time, and another attempt at ledgers that could not be deleted."""
        orphans, self._orphans = self._orphans, set()
        await self.delete(sorted(orphans))
        await self.trim()

    async def delete(self, ledger_ids: Iterable[int]) -> None:
        """Deletes ledgers that no node names, now or later."""
        for ledger_id in ledger_ids:
            deleted = await delete_ledger(self._log.context.bookkeeper, ledger_id)
            if not deleted and len(self._orphans) < ORPHANS_MAX:
                self._orphans.add(ledger_id)

    async def drop(self, ledger_ids: Sequence[int]) -> list[int]:
        """Deletes these ledgers, but not the open one; nothing while the ledger is being changed."""
        log = self._log
        async with self._turn:
            gone = sorted(log.ledgers.infos.keys() & set(ledger_ids) - {log.ledgers.open_id})
            if not gone or log.state not in (State.OPEN, State.TERMINATED):
                return []
            try:
                await log.node.write(lambda old: [info for info in old if info.ledger_id not in gone])
                log.forget_ledgers(gone)
                await self.delete(gone)
            except Conflict as e:
                log.failed(e)
                return []
            except BkctlError as e:
                _log.warning("%s: not trimmed: %s", log.name, e)
                return []
            return gone


async def delete_log(log: ManagedLedger) -> None:
    """Deletes a log for good: cursors, node, ledgers, the compacted one too. Where that fails halfway it is closed."""
    bookkeeper = log.context.bookkeeper
    try:
        async with log.cursor_lock:
            for cursor in list(log.cursors.values()):
                await cursor.delete()
                del log.cursors[cursor.name]
                if COMPACTED in cursor.longs:
                    await delete_ledger(bookkeeper, cursor.longs[COMPACTED])
        ledger_ids = [info.ledger_id for info in log.node.info.ledgers]
        await log.close()
        await log.node.delete()
    except BaseException:
        await log.close()
        raise
    for _ in range(DELETE_ATTEMPTS_MAX):
        ledger_ids = [ledger_id for ledger_id in ledger_ids if not await delete_ledger(bookkeeper, ledger_id)]
