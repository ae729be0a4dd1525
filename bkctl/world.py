"""The interfaces to the outside: clock, random, disk, network; and the workers that wait for disks.

Everything that can differ between two runs comes in through a World, handed to constructors. Production uses
`real_world()`; the simulator gives the same code a disk that loses unsynced data, a network with delays and failures,
and a virtual clock. Elapsed time is always `loop.time()`.

A Worker runs blocking work away from the event loop, one piece after another in the order of submission: a thread
in production, a point in virtual time in the simulator. There is one hand-over for a batch, never one for an entry.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random as _random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Random = _random.Random
"""Seeded in the simulator, from the system otherwise."""


class Clock(Protocol):
    """Wall-clock time, for timestamps that are stored or shown; never for elapsed time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class File(Protocol):
    """An open file with positions, no cursor. Data is durable after sync() returned, not before."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to size bytes at offset; shorter only at the end of the file."""

    def pwrite(self, data: bytes, offset: int) -> None:
        """Writes all of data at offset."""

    def pwritev(self, parts: list[bytes], offset: int) -> int:
        """Writes the parts one after another at offset; returns their bytes."""

    def allocate(self, offset: int, size: int) -> None:
        """Reserves disk space and grows the file to offset + size, filled with zeros."""

    def sync(self) -> None:
        """Returns when all data written is durable (fdatasync)."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cuts or grows the file to size bytes."""

    def close(self) -> None:
        """Closes; idempotent."""


class Disk(Protocol):
    """Files and directories, by Path. OSError is the only error it raises."""

    def open(self, path: Path, *, create: bool = False, write: bool = False, exclusive: bool = False) -> File:
        """Opens a file; create makes it where it is missing, exclusive refuses one that exists."""

    def read(self, path: Path) -> bytes:
        """The whole file."""

    def replace(self, path: Path, data: bytes) -> None:
        """Makes path hold data, atomically and durably: temporary file, sync, rename, sync of the directory."""

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: Path) -> bool:
        """True for a file or directory."""

    def size(self, path: Path) -> int:
        """Bytes in a file."""

    def make_dirs(self, path: Path) -> None:
        """Makes a directory and its parents; fine where they exist."""

    def remove(self, path: Path) -> None:
        """Removes a file."""

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes of the file system that holds path."""

    def lock(self, path: Path) -> Callable[[], None] | None:
        """Takes an exclusive lock on a file for this process; returns its release, or None if another holds it."""


class Network(Protocol):
    """Streams between addresses; asyncio's own protocols and transports at both ends."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Opens a connection; OSError if no server listens."""

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> Listener:
        """Accepts connections until the listener is closed; port 0 picks a free one."""


class Listener(Protocol):
    """An open port."""

    @property
    def port(self) -> int:
        """The port that is listened on."""

    async def close(self) -> None:
        """Accepts no more; connections that are open stay open."""


class Worker(Protocol):
    """Runs blocking calls in the order of submission, away from the event loop."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Runs work(); then done(result, None) or done(None, error) is called on the event loop."""

    def close(self) -> None:
        """Lets submitted work finish, then ends."""


def run_in(worker: Worker, work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs work() on a worker; the future has its result or its error. Cancelling the caller does not stop it."""
    import asyncio

    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    worker.submit(work, done)
    return future


@dataclass(frozen=True, slots=True)
class World:
    """The outside interfaces of a component. `worker(name)` starts a new Worker."""

    clock: Clock
    random: Random
    disk: Disk
    network: Network
    worker: Callable[[str], Worker]


def real_world(seed: int | None = None) -> World:
    """The real world; seed makes only the random numbers repeatable."""
    return World(SystemClock(), Random(seed), SystemDisk(), SystemNetwork(), ThreadWorker)


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


_VECTOR_MAX: Final = 1024  # IOV_MAX of Linux
_WRITE_MAX: Final = 1 << 30  # below what one pwrite takes


class SystemFile:
    """A file descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, size: int, offset: int) -> bytes:
        """Up to size bytes at offset."""
        return os.pread(self._fd, size, offset)

    def pwrite(self, data: bytes, offset: int) -> None:
        """Writes all of data at offset."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view[:_WRITE_MAX], offset)
            offset += written
            view = view[written:]

    def pwritev(self, parts: list[bytes], offset: int) -> int:
        """Writes the parts one after another at offset."""
        start = offset
        for first in range(0, len(parts), _VECTOR_MAX):
            group = parts[first : first + _VECTOR_MAX]
            size = sum(map(len, group))
            written = os.pwritev(self._fd, group, offset)
            if written < size:  # a short write is legal: write the rest plainly
                self.pwrite(b"".join(group)[written:], offset + written)
            offset += size
        return offset - start

    def allocate(self, offset: int, size: int) -> None:
        """Reserves disk space."""
        os.posix_fallocate(self._fd, offset, size)

    def sync(self) -> None:
        """fdatasync."""
        os.fdatasync(self._fd)

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        """Cuts or grows the file."""
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        """Closes once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class SystemDisk:
    """The operating system's files."""

    PRIVATE: ClassVar = False
    FILE_MODE: ClassVar = 0o644
    DIRECTORY_MODE: ClassVar = 0o777

    def open(self, path: Path, *, create: bool = False, write: bool = False, exclusive: bool = False) -> SystemFile:
        """Opens a file descriptor; a file that is created is made durable in its directory."""
        flags = (os.O_RDWR if write or create else os.O_RDONLY) | os.O_CLOEXEC
        if create or exclusive:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        file = SystemFile(os.open(path, flags, self.FILE_MODE))
        if create or exclusive:
            _sync_dir(path.parent)
        return file

    def read(self, path: Path) -> bytes:
        """The whole file."""
        return path.read_bytes()

    def replace(self, path: Path, data: bytes) -> None:
        """Temporary file, sync, rename, sync of the directory."""
        temporary = path.with_name(path.name + ".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self.FILE_MODE)
        file = SystemFile(fd)
        try:
            if self.PRIVATE:
                os.fchmod(fd, self.FILE_MODE)  # an interrupted write may have left the file with another mode
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        os.replace(temporary, path)
        _sync_dir(path.parent)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        """True for a file or directory."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Bytes in a file."""
        return path.stat().st_size

    def make_dirs(self, path: Path) -> None:
        """Makes a directory and its parents."""
        missing = [one for one in (path, *path.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir(mode=self.DIRECTORY_MODE, exist_ok=True)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def remove(self, path: Path) -> None:
        """Removes a file."""
        path.unlink()

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes, free as an ordinary user may use it."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def lock(self, path: Path) -> Callable[[], None] | None:
        """flock on a file that stays, or that its holder removes: a lock on a removed file is not valid."""
        import fcntl

        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self.FILE_MODE)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            try:
                there = os.path.samestat(os.fstat(fd), os.stat(path))
            except FileNotFoundError:
                there = False
            if there:
                return lambda: os.close(fd)
            os.close(
                fd
            )  # The file was removed between open and lock: each iteration is one more removal by another process.


class PrivateDisk(SystemDisk):
    """Files and directories that only their owner can read, whatever the umask: journals of jobs, backups, reports."""

    PRIVATE: ClassVar = True
    FILE_MODE: ClassVar = 0o600
    DIRECTORY_MODE: ClassVar = 0o700


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Files and directories that this process and its children create are readable by their owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SystemNetwork:
    """TCP, without Nagle's delay."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """A TCP connection of the running loop."""
        import asyncio

        return await asyncio.get_running_loop().create_connection(factory, host, port)

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> SystemListener:
        """A TCP port of the running loop."""
        import asyncio

        server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=1024)
        return SystemListener(server)


class SystemListener:
    """An asyncio server."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Closes the listening socket."""
        self._server.close()


class ThreadWorker:
    """One thread; results are passed to call_soon_threadsafe of the submitting loop."""

    def __init__(self, name: str) -> None:
        import queue
        import threading

        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Queues work; done is called on the loop that is running now."""
        import asyncio

        loop = asyncio.get_running_loop()

        def piece() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as e:  # noqa: BLE001 - whatever it is belongs to whoever asked, not to this thread
                error = e
            with contextlib.suppress(RuntimeError):  # The loop is closed: no caller waits any more.
                loop.call_soon_threadsafe(done, result, error)

        self._queue.put(piece)

    def close(self) -> None:
        """Waits for what was submitted."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        for piece in iter(self._queue.get, None):
            piece()
