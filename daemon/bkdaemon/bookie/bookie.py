"""A bookie without its sockets: adds, reads, fences, LACs; in batches, on the event loop.

    add_batch     key? fenced? → storage (readable) → journal (durable) → one callback for the batch
    read_batch    what memory has at once; the rest in one go by the read worker
    fence         key, then a durable mark: from now on only recovery may add
    write_lac     an explicit LAC, durable
    wait_lac      long polls: woken by a LAC that advances, an explicit LAC, a fence, a deletion

Two things keep it from taking more than it can hold. `throttled` says that servers should stop reading sockets: a cache
is full while the other one is still on its way to the disk, or the journal lags. Where adds keep coming, or it lasts
longer than dbStorage_maxThrottleTimeMs, they are refused with TOO_MANY_REQUESTS.
It is read-only while a reason for it exists (admission.py): reads and fences continue.
Source: BookieImpl.java, LedgerDescriptorImpl.java, SingleDirectoryDbLedgerStorage.java, BookieStateManager.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from bkctl.codec.data_dir import CURRENT
from bkctl.codec.journal import encode_explicit_lac, encode_fence
from bkctl.errors import BadBytes, NotFound
from bkctl.model.status import Status
from bkctl.world import run_in
from bkdaemon.bookie.adds import DEFERRED_SYNC, FENCE, HIGH_PRIORITY, RECOVERY_ADD, Adds
from bkdaemon.bookie.admission import Admission
from bkdaemon.bookie.checkpoint import Checkpointer
from bkdaemon.bookie.journal import Add, Durable, Journal, JournalFull
from bkdaemon.bookie.reads import Answer, Done, Read, Reads
from bkdaemon.bookie.start_up import recover
from bkdaemon.bookie.storage import LAC_OFFSET, Ledger, Storage, lac_of_packet

if TYPE_CHECKING:
    from bkctl.world import Worker, World
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.index import IndexFactory

__all__ = ["DEFERRED_SYNC", "FENCE", "HIGH_PRIORITY", "RECOVERY_ADD", "Add", "Answer", "Bookie", "Durable", "Read"]

logger = logging.getLogger(__name__)

MIB: Final = 1 << 20
LAC_WAITERS_MAX: Final = 100_000
T = TypeVar("T")


class Bookie:
    """The state of one bookie. Everything is called on the event loop; nothing here blocks it for long.

    Args:
        config: directories and limits.
        world: the disk and the workers that wait for it.
        index_factory: opens the index of one directory (bkdaemon/bookie/index.py).

    Attributes:
        admission: why it is read-only, and whether sockets should pause; with callbacks for changes.
        storage, journals, checkpointer: its parts, for metrics and garbage collection.
    """

    def __init__(self, config: BookieConfig, world: World, index_factory: IndexFactory) -> None:
        self.config = config
        self.world = world
        self.admission = Admission(config.throttle_ms / 1000)
        self.storage = Storage(config, world, index_factory)
        self.journals: list[Journal] = []
        self.checkpointer: Checkpointer
        budget = config.write_cache_mb * MIB
        self._soft, self._hard = budget * 3 // 8, budget // 2
        self._lag_max = config.journal_max_memory_mb * MIB // (2 * len(config.journal_dirs))
        self._workers: list[Worker] = []
        self._lac_waiters = 0
        self._loop: asyncio.AbstractEventLoop
        self._adds: Adds
        self._reads: Reads

    @property
    def read_only(self) -> bool:
        """True while adds are answered READ_ONLY."""
        return bool(self.admission.reasons)

    @property
    def counters(self) -> tuple[Adds, Reads]:
        """Adds and Reads, which count adds and reads."""
        return self._adds, self._reads

    @property
    def throttled(self) -> bool:
        """True while sockets should not be read; admission.on_throttle is called when it changes."""
        return self.admission.throttled

    # -- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens storage, replays the journals, opens new ones; the `current` directories must exist.

        Raises:
            BadBytes: a journal or index that cannot be read, with file and offset.
        """
        self._loop = asyncio.get_running_loop()
        names = [f"journal{n}" for n in range(len(self.config.journal_dirs))]
        self._workers = [self.world.worker(name) for name in ("flush", "read", *names)]
        self._flush_worker, self._read_worker, *journal_workers = self._workers
        try:
            recovered = await self.between_flushes(lambda: recover(self.world.disk, self.config, self.storage))
        except BaseException:
            await self._close()
            raise
        for directory, (mark, last_id), worker in zip(
            self.config.journal_dirs, recovered.journals, journal_workers, strict=True
        ):
            current = Path(directory) / CURRENT
            self.journals.append(
                Journal(
                    current,
                    self.config,
                    self.world,
                    worker,
                    last_id=last_id,
                    mark=mark,
                    failed=self._journal_failed,
                    eased=self._eased,
                )
            )
        self.checkpointer = Checkpointer(
            self.config, self.world, self.storage, self._flush_worker, self._checkpoint_ended
        )
        self._adds = Adds(
            self.storage,
            self.journals,
            soft_limit=self._soft,
            lag_limit=self._lag_max,
            write_data=self.config.journal_write_data,
            pressed=self._regulate,
        )
        self._reads = Reads(self.storage, self._read_worker, self.checkpointer)
        self.checkpointer.start(self.journals, recovered.unfinished)
        if self.config.force_read_only:
            self.admission.add_reason("configuration", "forceReadOnlyBookie is set")
        self.admission.drop_reason("starting")

    async def stop(self) -> None:
        """Rejects adds, makes everything durable in storage, closes all files. Safe to call after a failed start.

        Raises:
            OSError, or an error of RocksDB: the last checkpoint failed; all acknowledged entries are in the journals.
        """
        self.admission.add_reason("stopping", "the bookie is stopping")
        try:
            if self.journals:
                for journal in self.journals:
                    await journal.drain()
                await self.checkpointer.run()
        finally:
            self.abort()
            await self._close()

    async def _close(self) -> None:
        """Closes all files and ends the workers."""
        workers, self._workers = self._workers, []
        if not workers:
            return
        await self.between_flushes(self.storage.close)
        for journal in self.journals:
            journal.close()
        for worker in workers:
            worker.close()

    def abort(self) -> None:
        """Stops all timers and leaves the disk as it is, as a crash does."""
        self.admission.close()
        if self.journals:
            self.checkpointer.close()

    async def flush(self) -> None:
        """Returns when everything that was added before is durable in storage, not only in the journal."""
        await self.checkpointer.run()

    async def delete(self, ledger_ids: list[int]) -> None:
        """Deletes ledgers that are deleted in metadata, and their index rows."""
        for ledger in self.storage.forget(ledger_ids):
            if ledger.fenced:
                self._adds.remember_fenced(ledger.id)
            ledger.wake()
        await self.between_flushes(lambda: self.storage.remove(ledger_ids))

    def between_flushes(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Runs work on the flush worker: no flush is in progress meanwhile, and none starts."""
        return run_in(self._flush_worker, work)

    # -- adds ------------------------------------------------------------------------------------------------------

    def add_batch(self, adds: list[Add], durable: Durable) -> list[tuple[int, Add]]:
        """Stores and journals every valid add; returns the rejected ones as (status, add).

        durable(adds, status) follows for those that were accepted, when their journal group is synced (OK) or
        could not be (IO_ERROR): once, or once for each journal directory that has some of them.
        """
        if self.admission.status is not None:  # not started, read-only, or under pressure
            may, refused = self._admit(adds)
            return refused + self._adds.accept(may, durable) if may else refused
        return self._adds.accept(adds, durable)

    def _admit(self, adds: list[Add]) -> tuple[list[Add], list[tuple[int, Add]]]:
        """Returns (admitted adds, rejected adds); if only the disk is full, adds of high priority are admitted."""
        status = self.admission.status
        assert status is not None
        full_only = self.admission.takes_high_priority and self.admission.reasons.keys() == {"disk"}
        may = [add for add in adds if full_only and add[4] & HIGH_PRIORITY]
        refused = [(status, add) for add in adds if not (full_only and add[4] & HIGH_PRIORITY)]
        self._adds.refused += len(refused)
        return may, refused

    # -- back-pressure and failures --------------------------------------------------------------------------------

    def _regulate(self) -> None:
        """Flushes, pauses servers or rejects adds, depending on memory use."""
        if self.storage.active_bytes > self._soft:
            self.checkpointer.run_soon()
        stored = self.storage.active_bytes
        lag = max(journal.waiting_bytes for journal in self.journals)
        self.admission.press(
            full=stored > self._soft or lag > self._lag_max, beyond=stored > self._hard or lag > 2 * self._lag_max
        )

    def _eased(self) -> None:
        """Updates back-pressure after a journal group."""
        if self.admission.throttled or self.admission.status == Status.TOO_MANY_REQUESTS:
            self._regulate()

    def _journal_failed(self, error: BaseException) -> None:
        if isinstance(error, JournalFull):
            self.admission.add_reason("disk", f"no space left in a journal directory: {error}")
        else:
            self.admission.add_reason(
                "journal", f"failed to write a journal; rejecting adds until a restart: {error!r}"
            )

    def _checkpoint_ended(self, error: BaseException | None) -> None:
        if error is None:
            self.admission.drop_reason("storage")
            self._regulate()
        else:
            self.admission.add_reason("storage", f"failed to write entries to the ledger directories: {error!r}")

    # -- reads -----------------------------------------------------------------------------------------------------

    def read_batch(self, reads: list[Read], done: Done) -> list[Answer]:
        """Returns the answers from memory; done(answers) follows for the other reads, in one or two calls."""
        return self._reads.batch(reads, done)

    def list_entries(self, ledger_id: int) -> tuple[int, list[int]]:
        """Returns (status, ids of all entries, ascending). Blocks for a scan of the ledger's index rows."""
        ledger = self.storage.ledger(ledger_id)
        if ledger is None:
            return Status.NO_LEDGER, []
        return Status.OK, self.storage.entry_ids(ledger)

    def list_entries_later(self, ledger_id: int, done: Callable[[int, list[int]], None]) -> None:
        """Lists entries on the read worker: done(status, ids) follows."""
        ledger = self.storage.ledger(ledger_id)
        if ledger is None:
            self._loop.call_soon(done, Status.NO_LEDGER, [])
            return

        def listed(ids: list[int] | None, error: BaseException | None) -> None:
            if ids is None:
                logger.error("failed to list the entries of ledger %d", ledger_id, exc_info=error)
                done(Status.IO_ERROR, [])
            else:
                done(Status.OK, sorted({*ids, *in_memory}))

        in_memory = [*ledger.entries, *ledger.flushing]
        self._read_worker.submit(lambda: self.storage.stored_ids(ledger_id), listed)

    def info(self) -> tuple[int, int]:
        """Returns (total, free) bytes of the ledger directories, each file system once."""
        usages = {self.world.disk.usage(Path(directory)) for directory in self.config.ledger_dirs}
        return sum(total for total, _ in usages), sum(free for _, free in usages)

    # -- fences and LACs -------------------------------------------------------------------------------------------

    def fence(self, ledger_id: int, master_key: bytes, durable: Callable[[int], None]) -> int:
        """Fences a ledger, and creates it if it is unknown; OK means that durable(status) follows."""
        ledger = self._bound(ledger_id, master_key)
        if not isinstance(ledger, Ledger):
            return ledger
        if ledger.fence_durable:
            self._loop.call_soon(durable, Status.OK)
            return Status.OK
        record = b"" if ledger.fenced else encode_fence(ledger_id)

        def journaled(status: int) -> None:
            if status == Status.OK:
                ledger.fence_durable = True
            elif not ledger.fence_durable:
                ledger.fenced = False  # it was not acknowledged; the next request writes a new record
            durable(status)

        ledger.fenced = True
        self.storage.save(ledger)
        self._adds.journal_of(ledger_id).put(record, journaled)
        ledger.wake()
        return Status.OK

    def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes, durable: Callable[[int], None]) -> int:
        """Stores an explicit LAC packet, of a fenced ledger too; OK means that durable(status) follows."""
        if self.read_only:
            return Status.READ_ONLY
        if len(packet) < LAC_OFFSET:
            return Status.BAD_REQUEST
        ledger = self._bound(ledger_id, master_key)
        if not isinstance(ledger, Ledger):
            return ledger
        ledger.explicit_lac = packet
        ledger.lac = max(ledger.lac, lac_of_packet(packet))
        self.storage.save(ledger)
        self._adds.journal_of(ledger_id).put(encode_explicit_lac(ledger_id, packet), durable)
        ledger.wake()
        return Status.OK

    def _bound(self, ledger_id: int, master_key: bytes) -> Ledger | int:
        """Returns the ledger, which is created if necessary, with this key bound to it and journaled; else a status."""
        if ledger_id < 0:
            return Status.BAD_REQUEST
        ledger = self._adds.enter(ledger_id, master_key)
        if ledger is None:
            return Status.NO_LEDGER
        return ledger if ledger.key == master_key else Status.UNAUTHORIZED

    def read_lac(self, ledger_id: int) -> tuple[int, bytes | None, bytes | None]:
        """Returns (status, explicit LAC packet, highest entry); NO_ENTRY if neither exists. May read one entry."""
        ledger = self.storage.ledger(ledger_id)
        if ledger is None:
            return Status.NO_ENTRY, None, None
        try:
            self.storage.load(ledger)
            entry = self.storage.read(ledger, ledger.last) if ledger.last >= 0 else None
        except (OSError, BadBytes, NotFound) as e:
            self.storage.report_unreadable(f"the end of ledger {ledger_id}", e)
            return Status.IO_ERROR, ledger.explicit_lac, None
        if entry is not None:
            return Status.OK, ledger.explicit_lac, entry
        return Status.NO_ENTRY if ledger.explicit_lac is None else Status.IO_ERROR, ledger.explicit_lac, None

    def last_confirmed(self, ledger_id: int) -> int:
        """Returns the highest known LAC of a ledger, -1 without one. May read one entry."""
        ledger = self.storage.ledgers.get(ledger_id) or self.storage.ledger(ledger_id)
        if ledger is None:
            return -1
        try:
            self.storage.load(ledger)
        except (OSError, BadBytes, NotFound) as e:
            self.storage.report_unreadable(f"the end of ledger {ledger_id}", e)
        return max(ledger.lac, -1)

    def force(self, durable: Callable[[int], None]) -> None:
        """Calls durable(status) when everything that was added before is synced, in every journal."""
        left, worst = len(self.journals), int(Status.OK)

        def one(status: int) -> None:
            nonlocal left, worst
            left, worst = left - 1, max(worst, status)
            if left == 0:
                durable(worst)

        for journal in self.journals:
            journal.put(b"", one)

    def knows(self, ledger_id: int) -> bool:
        """Returns True if the ledger exists on this bookie."""
        return ledger_id in self.storage

    def wait_lac(self, ledger_id: int, previous_lac: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls wake() once when the LAC passes previous_lac, a LAC is written, or the ledger is fenced or deleted.

        wake() is called in the next turn of the loop if the LAC has passed it. Returns a function that cancels it.
        """
        ledger = self.storage.ledger(ledger_id)
        waiting = self._lac_waiters < LAC_WAITERS_MAX
        if ledger is None or not waiting or self.last_confirmed(ledger_id) > previous_lac:
            return self._loop.call_soon(wake).cancel
        token = object()
        self._lac_waiters += 1

        def woken() -> None:
            self._lac_waiters -= 1
            wake()

        def cancel() -> None:
            if ledger.waiters.pop(token, None) is not None:
                self._lac_waiters -= 1

        ledger.waiters[token] = (previous_lac, woken)
        return cancel
