"""ScanEntries: a row for every entry of a bookie, streamed while clients are served.

    memory    unflushed entries, ledger by ledger, on the event loop; first, as all others are in the index then
    index     locations of the other entries, a slice at a time, in the thread of the call
    digests   entry_scan, a process of lower priority, a batch at a time

A batch is read when the last one was sent: a slow client holds one batch here, and the pipe waits. SCANS_MAX calls run
at a time; further calls fail with RESOURCE_EXHAUSTED and are retried. A cancelled call kills its process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from bkctl.codec.data_dir import CURRENT
from bkctl.codec.proto import admin_pb2 as pb
from bkdaemon.bookie.grpc.entry_scan import ROW, SIZE, Part

if TYPE_CHECKING:
    from bkdaemon.bookie.served import ServedBookie

SCANS_MAX: Final = 2
BATCH_ROWS: Final = 10_000
BATCH_ROWS_MAX: Final = 20_000
SNAPSHOT_ENTRIES: Final = 20_000
"""Entries in memory that one turn of the event loop returns; those of a ledger are returned together."""
INLINE_BYTES: Final = 4 << 20
"""Bytes of entries in memory that are written to the pipe at once."""
LEDGERS_A_TURN: Final = 500
CALL_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 5.0
OVERDUE_INTERVALS: Final = 2
_UNSEALED: Final = pb.SealedLedger(seal=pb.SEAL_UNKNOWN)


class EntryStream:
    """Serves ScanEntries for one bookie service."""

    def __init__(self, service: ServedBookie, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop
        self._free = threading.Semaphore(SCANS_MAX)

    def __call__(self, asked: pb.ScanEntriesRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Yields the encoded EntryBatches."""
        if not self._free.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{SCANS_MAX} scans are in progress")
        try:
            with self._service.garbage.logs.held(), _Scanner() as scanner:
                context.add_callback(scanner.kill)
                yield from self._batches(asked, scanner)
        except (OSError, EOFError, TimeoutError) as e:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"the scan failed: {e}")
        finally:
            self._free.release()

    def _batches(self, asked: pb.ScanEntriesRequest, scanner: _Scanner) -> Iterator[bytes]:
        seals = {ledger.ledger_id: ledger for ledger in asked.ledgers}
        ids, others = self._on_loop(self._ids(asked, seals))
        rows_max = min(asked.batch_rows or BATCH_ROWS, BATCH_ROWS_MAX)
        overdue = self._on_loop(self._garbage_is_overdue())
        yield pb.EntryBatch(others=others, garbage_is_overdue=overdue).SerializeToString()
        task: list[Part] = []
        rows = size = 0
        for part in self._parts(ids, seals, rows_max):
            own = len(part.rows) // ROW.size + len(part.entries)
            if task and (rows + own > rows_max or size > INLINE_BYTES):
                yield scanner.ask(task)
                task, rows, size = [], 0, 0
            task.append(part)
            rows, size = rows + own, size + sum(map(len, part.entries))
        if task:
            yield scanner.ask(task)

    async def _ids(self, asked: pb.ScanEntriesRequest, seals: dict[int, Any]) -> tuple[list[int], list[int]]:
        """Returns (existing ledgers to report, those of them that were not requested)."""
        storage = self._service.bookie.storage
        known = [ledger_id for ledger_id in seals if ledger_id in storage]
        first, last = asked.first_ledger, asked.last_ledger
        others = [i for i in storage.ids() if first <= i <= last and i not in seals] if asked.others else []
        return sorted([*known, *others]), sorted(others)

    async def _garbage_is_overdue(self) -> bool:
        service = self._service
        finished_ms = service.garbage.finished_ms or service.started_ms
        waited_ms = service.world.clock.now_ms() - finished_ms
        return waited_ms > OVERDUE_INTERVALS * service.config.gc_wait_ms

    def _parts(self, ids: list[int], seals: dict[int, Any], rows_max: int) -> Iterator[Part]:
        """Yields the entries of the ledgers, at most rows_max of one ledger in a part."""
        directories = self._service.config.ledger_dirs
        at = 0
        while at < len(ids):
            taken, snapshots = self._on_loop(self._in_memory(ids[at : at + LEDGERS_A_TURN]))
            for ledger_id in ids[at : at + taken]:
                seal = seals.get(ledger_id, _UNSEALED)
                directory = str(Path(directories[ledger_id % len(directories)]) / CURRENT)
                own = ledger_id, seal.seal, seal.password, directory
                memory = snapshots.get(ledger_id, {})
                for rows in self._indexed(ledger_id, memory, rows_max):
                    yield Part(*own, rows)
                for entries in _pieces(memory, rows_max):
                    yield Part(*own, b"", entries)
            at += taken

    async def _in_memory(self, ids: list[int]) -> tuple[int, dict[int, dict[int, bytes]]]:
        """Returns (number of ledgers read, their unflushed entries)."""
        found: dict[int, dict[int, bytes]] = {}
        entries = taken = 0
        for ledger_id in ids:
            ledger = self._service.bookie.storage.ledgers.get(ledger_id)
            if ledger is not None and (ledger.entries or ledger.flushing):
                found[ledger_id] = {**ledger.flushing, **ledger.entries}
                entries += len(found[ledger_id])
            taken += 1
            if entries >= SNAPSHOT_ENTRIES:
                break
        return taken, found

    def _indexed(self, ledger_id: int, memory: dict[int, bytes], rows_max: int) -> Iterator[bytes]:
        """Yields rows of the index, without entries that are in memory, a slice at a time."""
        after = 0
        while True:
            if "stopping" in self._service.bookie.admission.reasons:
                raise OSError("the bookie is stopping")
            rows = self._service.bookie.storage.location_rows(ledger_id, after, rows_max)
            if not rows:
                return
            whole = len(rows) == rows_max * ROW.size
            after = ROW.unpack_from(rows, len(rows) - ROW.size)[1] + 1
            if memory:
                rows = b"".join(ROW.pack(*row) for row in ROW.iter_unpack(rows) if row[1] not in memory)
            if rows:
                yield rows
            if not whole:
                return

    def _on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)


def _pieces(memory: dict[int, bytes], rows_max: int) -> Iterator[tuple[bytes, ...]]:
    """Yields entries in the order of their ids, in pieces within the bounds of a batch."""
    piece: list[bytes] = []
    size = 0
    for entry_id in sorted(memory):
        piece.append(memory[entry_id])
        size += len(memory[entry_id])
        if len(piece) >= rows_max or size >= INLINE_BYTES:
            yield tuple(piece)
            piece, size = [], 0
    if piece:
        yield tuple(piece)


class _Scanner:
    """The process of one call; it is started with the first task."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._starting = threading.Lock()

    def __enter__(self) -> _Scanner:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kills the process after the call was cancelled or has ended."""
        with self._starting:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._ended:
                raise EOFError("the call was cancelled")
            if self._process is None:
                path = os.pathsep.join(filter(None, sys.path))
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "bkdaemon.bookie.grpc.entry_scan"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
            return self._process

    def ask(self, task: list[Part]) -> bytes:
        """Returns the encoded batch of a task.

        Raises:
            OSError, EOFError: the process ended.
        """
        process = self._started()
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        pickle.dump(task, stdin, pickle.HIGHEST_PROTOCOL)
        stdin.flush()
        head = stdout.read(SIZE.size)
        size = SIZE.unpack(head)[0] if len(head) == SIZE.size else 0
        data = stdout.read(size)
        if len(head) < SIZE.size or len(data) < size:
            raise EOFError("the scan process ended")
        return data
