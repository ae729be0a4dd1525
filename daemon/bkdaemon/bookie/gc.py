"""Garbage: ledgers that are gone from metadata lose their index rows, entry logs in which no ledger lives go.

    1  which ledgers are here        before anything is asked: a ledger made later is no candidate
    2  list the ledgers there are    any error ends the cycle
    3  ask for each missing one      "not there" must be the answer for that very ledger, in the cluster we belong to
    4  forget them                   index rows in the order that a crash can bear
    5  each closed entry log         removed if none of its ledgers is here; one that cannot be read stays

Who lists and asks is given from outside: a bookie has no client of its own.
Source: ScanAndCompareGarbageCollector.java, GarbageCollectorThread.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from bkctl.errors import BadBytes, BkctlError

if TYPE_CHECKING:
    from bkctl.world import Worker
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.entry_log import EntryLogs

logger = logging.getLogger(__name__)

DELETE_BATCH: Final = 1000
LEDGERS_REMEMBERED_MAX: Final = 5_000_000  # over all entry logs; beyond that logs are read again every cycle
T = TypeVar("T")


class Catalogue(Protocol):
    """The ledgers of the cluster, as metadata has them. Every doubt is a BkctlError."""

    def ids(self) -> AsyncIterator[list[Any]]:
        """All ledger ids, in pieces."""

    async def gone(self, ledger_ids: list[int]) -> set[int]:
        """Those of the given ids for which metadata says, now and for sure, that there is no such ledger."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a cycle did."""

    ledgers: int
    logs: int
    bytes: int


class GarbageCollector:
    """Runs a cycle every gcWaitTime."""

    def __init__(self, bookie: Bookie, catalogue: Catalogue) -> None:
        self._bookie = bookie
        self._catalogue = catalogue
        self._worker: Worker = bookie.world.worker("gc")
        self._known: dict[tuple[int, int], set[int]] = {}
        self._known_ledgers = 0
        self._task: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self.cycles = 0
        self.last: Collected | None = None
        self.finished_ms: int | None = None

    def start(self) -> None:
        """The first cycle is one gcWaitTime away."""
        self._task = asyncio.create_task(self._run(), name="garbage collection")

    async def stop(self) -> None:
        """Ends; a cycle under way ends at its next step."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._worker.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._bookie.config.gc_wait_ms / 1000)
            try:
                await self.collect()
            except (BkctlError, OSError) as e:
                logger.warning("nothing more is collected in this cycle: %s", e)

    async def collect(self) -> Collected:
        """One cycle; a second caller waits for the first.

        Raises:
            BkctlError: metadata could not be read for sure; nothing was deleted because of that part.
        """
        async with self._one_at_a_time:
            return await self._collect()

    async def _collect(self) -> Collected:
        ledgers = await self._collect_ledgers()
        logs = size = 0
        for number, entry_logs in enumerate(self._bookie.storage.logs()):
            for log_id in await self._in_worker(entry_logs.closed_ids):
                removed = await self._collect_log(number, entry_logs, log_id)
                if removed is not None:
                    logs, size = logs + 1, size + removed
        self.cycles += 1
        self.finished_ms = self._bookie.world.clock.now_ms()
        self.last = Collected(ledgers, logs, size)
        if ledgers or logs:
            logger.info("collected %d ledgers, %d entry logs of %d bytes", ledgers, logs, size)
        return self.last

    async def _collect_ledgers(self) -> int:
        missing = set(self._bookie.storage.ids())
        if not missing:
            return 0
        async for part in self._catalogue.ids():
            missing.difference_update(part)
        candidates, collected = sorted(missing), 0
        for start in range(0, len(candidates), DELETE_BATCH):
            gone = sorted(await self._catalogue.gone(candidates[start : start + DELETE_BATCH]))
            if gone:
                await self._bookie.delete(gone)
                collected += len(gone)
        return collected

    async def _collect_log(self, number: int, logs: EntryLogs, log_id: int) -> int | None:
        """The bytes of the log if it was removed."""
        ledgers = self._known.get((number, log_id))
        if ledgers is None:
            try:
                ledgers = await self._in_worker(lambda: logs.ledgers_in(log_id))
            except (BadBytes, OSError) as e:
                logger.warning("an entry log stays, nobody can say what is in it: %s", e)
                return None
            if self._known_ledgers + len(ledgers) <= LEDGERS_REMEMBERED_MAX:
                self._known[number, log_id] = ledgers
                self._known_ledgers += len(ledgers)
        if any(ledger_id in self._bookie.storage for ledger_id in ledgers):
            return None
        size = await self._in_worker(lambda: logs.remove(log_id))
        if self._known.pop((number, log_id), None) is not None:
            self._known_ledgers -= len(ledgers)
        return size

    def _in_worker(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        self._worker.submit(work, done)
        return future
