"""The journal: every acknowledged entry is durable in it before the acknowledgement.

One Journal per directory. Adds arrive in batches and are queued; the worker writes and syncs one group while the next
one is collected, so that a disk with slow syncs gets large groups and a fast one small groups. Timers are not needed,
and no object is allocated for a single entry. When a group is durable, each batch in it is notified once.

    group    records of the batches one after another, then padding to a multiple of journalAlignmentSize with a
             seal in it (codec/journal_seal.py); preallocated space first, then one write, then one sync
    mark     (journal id, offset): after the last group that was synced; see checkpoint.py

A group that is not durable is not acknowledged, nor is any group after it. A full disk (ENOSPC before a byte was
written) fails the queued adds, and the next group is written again. After any other error the state of the disk is
unknown: the journal is broken until a restart replays it.
Formats: bkctl/codec/journal.py. Source: Journal.java, JournalChannel.java.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from google_crc32c import extend as crc32c_extend

from bkctl.codec.data_dir import LogMark
from bkctl.codec.journal import HEADER_SIZE, encode_header, journal_name
from bkctl.codec.journal_seal import PADDING_MIN, encode_seal_of, encode_sealed_header
from bkctl.model.status import Status

if TYPE_CHECKING:
    from bkctl.world import File, Worker, World
    from bkdaemon.bookie.config import BookieConfig

logger = logging.getLogger(__name__)

MIB: Final = 1 << 20
GROUP_BYTES_MAX: Final = 32 * MIB  # a replay needs memory for one group
PIECE_BYTES: Final = MIB  # the part of a group that is written at once
_SIZE: Final = Struct(">i")
_ENTRY: Final = itemgetter(3)  # of an add: (ledger id, entry id, master key, entry, flags, token)

Add = tuple[int, int, bytes, bytes, int, Any]
"""(ledger id, entry id, master key, entry, flags, token): a plain tuple, as there are 100,000 per second."""
Durable = Callable[[list[Add], int], None]
_Item = tuple[bytes, Callable[[int], None], int] | tuple[list[Add], Durable, int]


class JournalFull(OSError):
    """No space is left for the next group; nothing of it was written."""


class Journal:
    """Writes one journal directory. All methods are called on the event loop.

    Args:
        directory: the `current` directory.
        last_id: the highest id of its files, 0 without one; every start creates a new file.
        mark: the mark of the last checkpoint or replay.
        failed: called with the error when a group is not durable.
        eased: called after each group, when fewer bytes are queued.

    Attributes:
        mark: everything before it is durable in this journal.
        waiting_bytes: of batches that are not durable yet.
    """

    def __init__(
        self,
        directory: Path,
        config: BookieConfig,
        world: World,
        worker: Worker,
        *,
        last_id: int,
        mark: LogMark,
        failed: Callable[[BaseException], None],
        eased: Callable[[], None],
    ) -> None:
        self.mark = mark
        self.waiting_bytes = 0
        self.groups = 0
        self.bytes_written = 0
        self.sync_seconds = 0.0
        self.broken: BaseException | None = None
        self._directory = directory
        self._disk = world.disk
        self._worker = worker
        self._failed = failed
        self._eased = eased
        self._max_size = config.journal_max_size_mb * MIB
        self._step = config.journal_prealloc_size_mb * MIB
        self._alignment = config.journal_alignment_size
        self._sync = config.journal_sync_data
        self._next_id = last_id + 1 if last_id > 0 else world.clock.now_ms() + 1
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Item] = []
        self._queued_bytes = 0
        self._scheduled = self._busy = False
        self._idle: asyncio.Future[None] | None = None
        self._file: File | None = None  # this and below: the worker's
        self._file_id = 0
        self._position = self._allocated = 0

    def add(self, adds: list[Add], size: int, durable: Durable) -> None:
        """Queues entries of `size` bytes in total; durable(adds, status) follows once."""
        self._push((adds, durable, size))

    def put(self, record: bytes, durable: Callable[[int], None]) -> None:
        """Queues one encoded record; b"" is a barrier that is durable when everything before it is."""
        self._push((record, durable, len(record)))

    async def drain(self) -> None:
        """Returns when the queue is empty."""
        while self._queue or self._busy:
            self._idle = self._idle or self._loop.create_future()
            await self._idle

    def close(self) -> None:
        """Closes the file; call it when the queue is empty."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _push(self, item: _Item) -> None:
        self._queue.append(item)
        self._queued_bytes += item[2]
        self.waiting_bytes += item[2]
        if not self._scheduled and not self._busy:
            self._scheduled = True
            self._loop.call_soon(
                self._start_group
            )  # adds of other connections that are read in this turn join the group

    def _start_group(self) -> None:
        self._scheduled = False
        if self._busy or not self._queue:
            return
        group, size = self._next_group()
        if self.broken is not None:
            self._finish(group, size, Status.IO_ERROR)
            self._start_group()
            return
        self._busy = True
        started = self._loop.time()
        self._worker.submit(
            lambda: self._write(group), lambda mark, error: self._written(group, size, started, mark, error)
        )

    def _next_group(self) -> tuple[list[_Item], int]:
        """Returns queued batches, up to GROUP_BYTES_MAX without the last one, and their bytes."""
        group, size = self._queue, self._queued_bytes
        if size <= GROUP_BYTES_MAX:
            self._queue, self._queued_bytes = [], 0
            return group, size
        size = count = 0
        while size < GROUP_BYTES_MAX:
            size += group[count][2]
            count += 1
        self._queue, self._queued_bytes = group[count:], self._queued_bytes - size
        return group[:count], size

    def _written(
        self, group: list[_Item], size: int, started: float, mark: LogMark | None, error: BaseException | None
    ) -> None:
        self._busy = False
        if mark is not None:
            self.mark = mark
            self.groups += 1
            self.bytes_written += size
            self.sync_seconds += self._loop.time() - started
            self._start_group()  # first: the disk works while the batches are notified
            self._finish(group, size, Status.OK)
            return
        # Queued batches may depend on the failed group (an entry on its ledger's key): they fail too.
        group, size = group + self._queue, size + self._queued_bytes
        self._queue, self._queued_bytes = [], 0
        if not isinstance(error, JournalFull):
            self.broken = error
        logger.error("failed to write a group of %d bytes to journal %s: %r", size, self._directory, error)
        assert error is not None
        self._failed(error)
        self._finish(group, size, Status.IO_ERROR)

    def _finish(self, group: list[_Item], size: int, status: int) -> None:
        self.waiting_bytes -= size
        for what, durable, _ in group:
            if isinstance(what, bytes):
                durable(status)  # type: ignore[call-arg, arg-type]
            else:
                durable(what, status)  # type: ignore[call-arg, arg-type]
        if self._idle is not None and not self._queue and not self._busy:
            idle, self._idle = self._idle, None
            idle.set_result(None)
        self._eased()

    def _write(self, group: list[_Item]) -> LogMark:
        """Worker: writes and syncs one group; returns the mark after it."""
        size = sum(size if isinstance(what, bytes) else size + _SIZE.size * len(what) for what, _, size in group)
        if size:
            if self._file is None or self._position > self._max_size:
                self._roll()
            self._preallocate(self._position + size + PADDING_MIN + self._alignment)
            self._write_records(group)
        barrier = any(what == b"" for what, _, _ in group)
        if self._file is not None and (self._sync or barrier):
            self._file.sync()
        return LogMark(self._file_id, self._position) if self._file is not None else self.mark

    def _write_records(self, group: list[_Item]) -> None:
        """Worker: joins and writes one piece at a time, while the copy is in the processor's cache."""
        assert self._file is not None
        parts: list[bytes] = []
        gathered = checksum = 0
        position = self._position
        for index, (what, _, size) in enumerate(group):
            if isinstance(what, bytes):
                parts.append(what)
            else:
                entries = list(map(_ENTRY, what))
                parts.extend(chain.from_iterable(zip(map(_SIZE.pack, map(len, entries)), entries, strict=True)))
            gathered += size
            if gathered >= PIECE_BYTES or index == len(group) - 1:
                data = b"".join(parts)
                checksum = crc32c_extend(checksum, data)
                parts, gathered = [], 0
                if index == len(group) - 1:
                    start = self._position
                    seal = encode_seal_of(start, position + len(data) - start, checksum, self._alignment)
                    position += self._file.pwritev([data, seal], position)
                else:
                    position += self._file.pwritev([data], position)
        self._position = position

    def _roll(self) -> None:
        """Worker: continues in a new file. The old one is complete: each of its groups was synced."""
        file_id, self._next_id = self._next_id, self._next_id + 1
        try:
            file = self._disk.open(self._directory / journal_name(file_id), create=True, exclusive=True)
        except OSError as e:
            raise _full_or(e) from e
        try:
            file.allocate(0, self._step)
        except OSError as e:
            file.close()
            raise _full_or(e) from e
        file.pwrite(encode_sealed_header() if self._sync else encode_header(), 0)
        if self._file is not None:
            self._file.close()
        self._file, self._file_id = file, file_id
        self._position, self._allocated = HEADER_SIZE, self._step

    def _preallocate(self, end: int) -> None:
        """Worker: preallocates the file in whole steps, at least to `end`."""
        assert self._file is not None
        if end <= self._allocated:
            return
        size = -(-(end - self._allocated) // self._step) * self._step
        try:
            self._file.allocate(self._allocated, size)
        except OSError as e:
            raise _full_or(e) from e
        self._allocated += size


def _full_or(error: OSError) -> OSError:
    """Returns a JournalFull if the disk is full, else the error itself."""
    return JournalFull(*error.args) if error.errno == errno.ENOSPC else error
