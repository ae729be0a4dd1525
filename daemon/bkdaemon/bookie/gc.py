"""Garbage: ledgers that are gone from metadata lose their index rows, entry logs of nothing but such ledgers go.

    1  which ledgers are here        before anything is asked: a ledger made later is no candidate
    2  list the ledgers there are    any error ends the cycle
    3  ask for each missing one      "not there" must be the answer for that very ledger, in the cluster we belong to
    4  forget them                   index rows in the order that a crash can bear
    5  each closed entry log         removed if none of its ledgers is here and metadata has none of them, asked again
                                     for those that the index never knew; one that cannot be read stays
    6  compaction, where it is due   beside the next cycles: it is slow on purpose (compaction.py)

Who lists and asks is given from outside: a bookie has no client of its own.
Source: ScanAndCompareGarbageCollector.java, GarbageCollectorThread.java.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError
from bkdaemon.bookie.closed_logs import ClosedLogs
from bkdaemon.bookie.compaction import Compactor
from bkdaemon.bookie.deleted_ledgers import DeletedLedgers

if TYPE_CHECKING:
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.deleted_ledgers import Catalogue

logger = logging.getLogger(__name__)

DELETE_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Collected:
    """What a cycle did."""

    ledgers: int
    logs: int
    bytes: int


class GarbageCollector:
    """Runs a cycle every gcWaitTime, and the compactions that are due.

    Attributes:
        logs: the entry logs that are written no more.
        deleted: what the metadata store says of the ledgers in entry logs.
        compactor: what it did, and does.
        deleted_ledgers, deleted_bytes: what all cycles removed.
    """

    def __init__(self, bookie: Bookie, catalogue: Catalogue) -> None:
        self._bookie = bookie
        self._catalogue = catalogue
        self._task: asyncio.Task[None] | None = None
        self._compaction: asyncio.Task[None] | None = None
        self._forced: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self.logs = ClosedLogs(bookie)
        self.deleted = DeletedLedgers(bookie, catalogue)
        self.compactor = Compactor(bookie, self.logs, self.deleted)
        self.cycles = self.deleted_ledgers = self.deleted_bytes = 0
        self.last: Collected | None = None
        self.finished_ms: int | None = None

    def start(self) -> None:
        """The first cycle is one gcWaitTime away."""
        self._task = asyncio.create_task(self._run(), name="garbage collection")

    async def stop(self) -> None:
        """Ends; a cycle or a compaction under way ends at its next step."""
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
                logger.warning("nothing more is collected in this cycle: %s", e)
            if self._compaction is None or self._compaction.done():
                self._compaction = asyncio.create_task(self._compact(), name="compaction")

    @property
    def forced(self) -> bool:
        """True while the collection that force() started runs."""
        return self._forced is not None and not self._forced.done()

    def force(self, levels: frozenset[str]) -> None:
        """Begins a cycle now, then a compaction of one of these levels, the thorough one first.

        Nothing where such a cycle is under way.
        """
        if not self.forced:
            self._forced = asyncio.create_task(self._force(levels), name="forced garbage collection")

    async def _force(self, levels: frozenset[str]) -> None:
        try:
            await self.collect()
        except (BkctlError, OSError) as e:
            logger.warning("nothing more is collected in this cycle: %s", e)
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
            logger.warning("nothing more is compacted until the next time: %s", e)

    async def collect(self) -> Collected:
        """One cycle; a second caller waits for the first.

        Raises:
            BkctlError: metadata could not be read for sure; nothing was deleted because of that part.
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
        """Removes the deleted ledgers of the index, and returns them."""
        missing = set(self._bookie.storage.ids())
        if not missing:
            return []
        async for part in self._catalogue.ids():
            missing.difference_update(part)
        candidates, collected = sorted(missing), list[int]()
        for start in range(0, len(candidates), DELETE_BATCH):
            gone = sorted(await self._catalogue.gone(candidates[start : start + DELETE_BATCH]))
            if gone:
                await self._bookie.delete(gone)
                collected += gone
        return collected
