"""Deletes ledgers that a managed ledger needs no more: out of the list first, then out of BookKeeper; one at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError, Conflict
from bkdaemon.broker.ledger.recovered import delete_ledger
from bkdaemon.broker.ledger.state import State
from bkdaemon.broker.ledger.trimming import Retention, judge

if TYPE_CHECKING:
    from bkdaemon.broker.ledger.managed_ledger import ManagedLedger

COMPACTED: Final = "CompactedTopicLedger"
"""Of a cursor's numbers: the ledger that has the topic's entries up to there compacted."""

_log = logging.getLogger(__name__)


class Trimmer:
    """The trimming half of one managed ledger."""

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self._running = False

    async def trim(self) -> list[int]:
        """Deletes what all durable cursors passed and retention lets go; returns the ids."""
        log = self._log
        durable = [
            (cursor.name, min(cursor.mark_delete, cursor.stored_mark_delete))
            for cursor in log.cursors.values()
            if cursor.durable
        ]
        retention = Retention(log.settings.retention_s, log.settings.retention_bytes)
        verdicts = judge(log.ledgers, durable, retention, log.context.world.clock.now_ms())
        return await self.drop([verdict.ledger_id for verdict in verdicts if verdict.kept is None])

    async def drop(self, ledger_ids: Sequence[int]) -> list[int]:
        """Deletes these ledgers, but not the open one; nothing while the ledger is being changed."""
        log = self._log
        gone = sorted(set(ledger_ids) - {log.ledgers.open_id})
        if not gone or self._running or log.state not in (State.OPEN, State.TERMINATED):
            return []
        self._running = True
        try:
            await log.node.write(lambda old: [info for info in old if info.ledger_id not in gone])
            log.forget_ledgers(gone)
            for ledger_id in gone:
                await delete_ledger(log.context.bookkeeper, ledger_id)
            return gone
        except Conflict as e:
            log.failed(e)
        except BkctlError as e:
            _log.warning("%s: not trimmed: %s", log.name, e)
        finally:
            self._running = False
        return []


async def delete_log(log: ManagedLedger) -> None:
    """Deletes a log for good: cursors, node, ledgers, the compacted one too. Where that fails halfway it is closed."""
    bookkeeper = log.context.bookkeeper
    try:
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
    for ledger_id in ledger_ids:
        await delete_ledger(bookkeeper, ledger_id)
