"""Garbage collection: removes the index rows of deleted ledgers, and entry logs that have only such ledgers.

    1  list the bookie's ledgers     before the others: a ledger created later is not a candidate
    2  list the cluster's ledgers    any error ends the cycle
    3  check each missing ledger     metadata of the bookie's own cluster must report that it does not exist
    4  remove them                   index rows in an order that is safe in a crash
    5  each closed entry log         removed if none of its ledgers exists, neither on this bookie nor in metadata,
                                     where unknown ledgers are checked too; an unreadable log is kept
    6  compaction, if it is due      beside the next cycles: its rate is limited (compaction.py)

The catalog of ledgers is an argument: a bookie has no client of its own.
Source: ScanAndCompareGarbageCollector.java, GarbageCollectorThread.java.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError
from bkdaemon.bookie.compaction import Compactor
from bkdaemon.bookie.deleted_ledgers import DeletedLedgers
from bkdaemon.bookie.entry_log_catalog import EntryLogCatalog

if TYPE_CHECKING:
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.deleted_ledgers import Catalog

logger = logging.getLogger(__name__)

DELETE_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a cycle: removed ledgers, entry logs and bytes."""

    ledgers: int
    logs: int
    bytes: int


class GarbageCollector:
    """Runs a cycle every gcWaitTime, and the compactions that are due.

    Attributes:
        logs: the closed entry logs.
        deleted: the checks of ledgers of entry logs in metadata.
        compactor: runs compactions and counts them.
        deleted_ledgers, deleted_bytes: removed by all cycles.
    """

    def __init__(self, bookie: Bookie, catalog: Catalog) -> None:
        self._bookie = bookie
        self._catalog = catalog
        self._task: asyncio.Task[None] | None = None
        self._compaction: asyncio.Task[None] | None = None
        self._forced: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self.logs = EntryLogCatalog(bookie)
        self.deleted = DeletedLedgers(bookie, catalog)
        self.compactor = Compactor(bookie, self.logs, self.deleted)
        self.cycles = self.deleted_ledgers = self.deleted_bytes = 0
        self.last: Collected | None = None
        self.finished_ms: int | None = None

    def start(self) -> None:
        """Starts the cycles, the first one after gcWaitTime."""
        self._task = asyncio.create_task(self._run(), name="garbage collection")

    async def stop(self) -> None:
        """Stops the cycles; a running cycle or compaction ends at its next step."""
        for task in filter(None, (self._task, self._forced, self._compaction)):
            task.cancel()
            await asyncio.wait([task])
        self.logs.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._bookie.config.gc_wait_ms / 1000)
            try:
                await self.collect()
            except (BkctlError, OSError) as e:
                logger.warning("garbage collection failed; retrying in the next cycle: %s", e)
            if self._compaction is None or self._compaction.done():
                self._compaction = asyncio.create_task(self._compact(), name="compaction")

    @property
    def forced(self) -> bool:
        """True while the collection that force() started runs."""
        return self._forced is not None and not self._forced.done()

    def force(self, levels: frozenset[str]) -> None:
        """Starts a cycle now, then a compaction of one of these levels, preferably the major one.

        Does nothing if such a cycle is running.
        """
        if not self.forced:
            self._forced = asyncio.create_task(self._force(levels), name="forced garbage collection")

    async def _force(self, levels: frozenset[str]) -> None:
        try:
            await self.collect()
        except (BkctlError, OSError) as e:
            logger.warning("garbage collection failed; retrying in the next cycle: %s", e)
        while self._compaction is not None and not self._compaction.done():
            await asyncio.wait([self._compaction])
        self._compaction = asyncio.create_task(self._compact(levels), name="compaction")
        await asyncio.wait([self._compaction])

    async def _compact(self, asked: frozenset[str] | None = None) -> None:
        try:
            level = self.compactor.due(asked)
            if level is not None:
                await self.compactor.run(level)
        except (BkctlError, OSError) as e:
            logger.warning("compaction failed; retrying when it is due again: %s", e)

    async def collect(self) -> Collected:
        """Runs one cycle; a second caller waits for the first.

        Raises:
            BkctlError: metadata could not be read reliably; no ledger was deleted because of that part.
        """
        async with self._one_at_a_time:
            return await self._collect()

    async def _collect(self) -> Collected:
        gone = await self._collect_ledgers()
        closed, deleted = await self.logs.scan(), self.deleted.round(gone)
        self.deleted.forget_all_but(log.key for log in closed)
        ledgers, logs, size = len(gone), 0, 0
        for log in closed:
            removed = await self.logs.remove(log) if self.logs.dead(log) and await deleted.allows(log) else None
            if removed is not None:
                logs, size = logs + 1, size + removed
        self.cycles += 1
        self.deleted_ledgers += ledgers
        self.deleted_bytes += size
        self.finished_ms = self._bookie.world.clock.now_ms()
        self.last = Collected(ledgers, logs, size)
        if ledgers or logs:
            logger.info("collected %d ledgers, %d entry logs of %d bytes", ledgers, logs, size)
        return self.last

    async def _collect_ledgers(self) -> list[int]:
        """Removes deleted ledgers from the index, and returns them."""
        missing = set(self._bookie.storage.ids())
        if not missing:
            return []
        async for part in self._catalog.ids():
            missing.difference_update(part)
        candidates, collected = sorted(missing), list[int]()
        for start in range(0, len(candidates), DELETE_BATCH):
            gone = sorted(await self._catalog.gone(candidates[start : start + DELETE_BATCH]))
            if gone:
                await self._bookie.delete(gone)
                collected += gone
        return collected
