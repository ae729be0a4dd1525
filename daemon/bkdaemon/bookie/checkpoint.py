"""Checkpoints: entries in memory are periodically written to the entry logs, and old journals are removed.

    1  the journals' marks are copied; everything before them is in storage, because an add goes to storage first
    2  storage swaps its caches: entries that arrive from now on belong to the next checkpoint
    3  worker: entry logs synced → index batch synced → ledgers' rows synced (always: a fence must not be lost)
    4  worker: the marks are written into every ledger directory, by temporary file and rename
    5  worker: journals before the marks are removed, except journalMaxBackups of them

After a crash before step 4 the journals are replayed from the older mark. A failed step is retried with the same
entries; they stay readable, and the marks do not change.
Source: SyncThread.java, Journal.java (checkpointComplete), CheckpointSourceList.java; open PRs #4843, #4844.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bkdaemon.bookie.marks import store_marks, trim_journals

if TYPE_CHECKING:
    from bkctl.codec.data_dir import LogMark
    from bkctl.world import Worker, World
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.journal import Journal
    from bkdaemon.bookie.storage import Flush, Storage

logger = logging.getLogger(__name__)

RETRY_S: Final = 5.0


class Checkpointer:
    """Runs checkpoints, one at a time, on the event loop and one worker.

    Args:
        changed: called when a checkpoint ended: with None, or with the error because of which it is retried.
    """

    def __init__(
        self,
        config: BookieConfig,
        world: World,
        storage: Storage,
        worker: Worker,
        changed: Callable[[BaseException | None], None],
    ) -> None:
        self._config = config
        self._disk = world.disk
        self._storage = storage
        self._worker = worker
        self._changed = changed
        self._journals: list[Journal] = []
        self._done_marks: tuple[LogMark, ...] = ()
        self._taken: tuple[Flush, tuple[LogMark, ...]] | None = None
        self._again = self._failed = self._closed = False
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.checkpoints = 0
        self.flushed_bytes = 0

    @property
    def running(self) -> bool:
        """True while a checkpoint is in progress, or is to be retried."""
        return self._taken is not None

    def start(self, journals: list[Journal], unfinished: tuple[Flush, OSError] | None = None) -> None:
        """Starts a checkpoint every flushInterval; the first one retries the unfinished flush of the start-up."""
        self._journals = journals
        self._done_marks = tuple(journal.mark for journal in journals)
        if unfinished is None:
            self._schedule(self._config.flush_interval_ms / 1000)
        else:
            self._taken = unfinished[0], self._done_marks
            self._fail(unfinished[1])

    def close(self) -> None:
        """Stops the timers; the result of a checkpoint in progress is ignored."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def run_soon(self) -> bool:
        """Starts a checkpoint now; False if one is running already."""
        if self._taken is not None or self._closed:
            return False
        marks = tuple(journal.mark for journal in self._journals)
        flush = self._storage.swap()
        if not flush and marks == self._done_marks:
            self._notify_waiters(None)
            return True
        self._taken = flush, marks
        self._work()
        return True

    async def run(self) -> None:
        """Returns when everything that was added before this call is durable in storage.

        Raises:
            OSError, or an error of RocksDB: the checkpoint failed.
        """
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        if not self.run_soon():
            self._again = True
        await waiter

    def _work(self) -> None:
        assert self._taken is not None
        flush, marks = self._taken
        self._failed = False

        def work() -> None:
            self._storage.flush(flush)
            store_marks(self._disk, self._config, marks)
            trim_journals(self._disk, self._config, marks)

        self._worker.submit(work, lambda _, error: self._ended(error))

    def _ended(self, error: BaseException | None) -> None:
        if self._closed or self._taken is None:
            return
        flush, marks = self._taken
        if error is not None:
            self._fail(error)
            return
        self._taken, self._done_marks = None, marks
        self._storage.flushed()
        self.checkpoints += 1
        self.flushed_bytes += flush.size
        self._worker.submit(lambda: _free(flush), lambda *_: None)
        self._schedule(self._config.flush_interval_ms / 1000)
        self._changed(None)
        if self._again:
            self._again = False
            self.run_soon()
        elif self._taken is None:
            self._notify_waiters(None)

    def _fail(self, error: BaseException) -> None:
        logger.error("checkpoint failed; retrying in %.0f s: %r", RETRY_S, error)
        self._failed = True
        self._changed(error)
        self._notify_waiters(error)
        self._schedule(RETRY_S)

    def _notify_waiters(self, error: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _schedule(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._closed else self._loop.call_later(delay_s, self._due)

    def _due(self) -> None:
        if self._failed:
            self._work()
            return
        self.run_soon()
        self._schedule(self._config.flush_interval_ms / 1000)


def _free(flush: Flush) -> None:
    """Frees a Flush piece by piece: freeing it at once would block the event loop for as long as a small flush."""
    for _, entries in flush.entries:
        while entries:
            entries.popitem()
