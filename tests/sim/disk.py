"""A disk in memory that forgets, when the power goes, what was not synced.

Each file has two contents: `durable`, what a sync has reached, and `seen`, what reads show. Writes since the last sync
wait in a list. When the power goes, each waiting write is kept, torn or lost by chance: a write is kept by sectors of
512 bytes, in any subset, because a drive may write its sectors in any order. Names follow the doors of
`bkctl.world.SystemDisk`: a file that is created or replaced is durable in its directory at once (the door syncs the
directory); a removal is durable only with the next sync of the directory, until then the file may come back.
Directories themselves are durable at once. Killing a process loses nothing: the operating system lives on.

Faults, all off unless a scenario turns them on:

    lie_from_now       syncs return and do nothing (a drive that lies); only its own rule excuses the loss
    capacity           bytes on the disk; what would go beyond raises ENOSPC
    error_chance       chance that one read, write or sync raises EIO; a failed sync loses what it should have kept
    fail_at            after this many more calls that change something, `on_fail` is called (a power cut in mid work)
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path, PurePath
from random import Random
from typing import Final

from tests.sim.loop import PowerCut
from tests.sim.trace import Trace

SECTOR: Final = 512
CAPACITY: Final = 1 << 40


class Inode:
    """One file's contents, whatever its name."""

    __slots__ = ("durable", "seen", "waiting")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.waiting: list[tuple[int, bytes | None]] = []  # (offset, bytes), or (size, None) for a change of size

    def apply(self, content: bytearray, offset: int, data: bytes | None) -> None:
        if data is None:
            if offset < len(content):
                del content[offset:]
            else:
                content.extend(bytes(offset - len(content)))
            return
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def change(self, offset: int, data: bytes | None) -> None:
        self.apply(self.seen, offset, data)
        self.waiting.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.waiting:
            self.apply(self.durable, offset, data)
        self.waiting.clear()

    def lose_power(self, random: Random) -> None:
        keep_chance = random.choice((0.0, 0.0, 0.5, 0.9, 1.0))
        prefix_only = random.random() < 0.5
        for offset, data in self.waiting:
            if random.random() < keep_chance:
                self.apply(self.durable, offset, data)
            elif prefix_only:
                if data is not None:
                    self._tear(random, offset, data, prefix=True)
                break
            elif data is not None:
                self._tear(random, offset, data, prefix=False)
        self.waiting.clear()
        self.seen = bytearray(self.durable)

    def _tear(self, random: Random, offset: int, data: bytes, prefix: bool) -> None:
        """Keeps some sectors of a write: those before a point, or any."""
        starts = [0, *range(SECTOR - offset % SECTOR, len(data), SECTOR)]
        kept = starts[: random.randrange(len(starts) + 1)] if prefix else [s for s in starts if random.random() < 0.5]
        for start in kept:
            end = min(len(data), start + SECTOR - (offset + start) % SECTOR)
            self.apply(self.durable, offset + start, data[start:end])


class SimDisk:
    """One machine's disk. Processes open it through `door(is_alive)`."""

    def __init__(self, random: Random, trace: Trace, name: str) -> None:
        self.random = random
        self.trace = trace
        self.name = name
        self.files: dict[PurePath, Inode] = {}
        self.directories: set[PurePath] = {PurePath("/")}
        self.removed: dict[PurePath, Inode] = {}  # gone for readers, not yet durably
        self.locks: set[PurePath] = set()
        self.capacity = CAPACITY
        self.lies = False
        self.lied = False  # writes were lost by a lying sync
        self.error_chance = 0.0
        self.fail_at: int | None = None
        self.on_fail: Callable[[], None] = lambda: None
        self.synced_count = 0
        self.written_bytes = 0

    def lie_from_now(self) -> None:
        """Makes every later sync a lie."""
        self.lies = True

    def lose_power(self) -> None:
        """Keeps what was synced, and by chance some of the rest."""
        for path, inode in list(self.removed.items()):
            if path not in self.files and self.random.random() < 0.5:
                self.files[path] = inode
        self.removed.clear()
        if self.lies and any(inode.waiting for inode in self.files.values()):
            self.lied = True
        for path in sorted(self.files):
            self.files[path].lose_power(self.random)
        self.locks.clear()
        self.fail_at = None
        self.trace.add("power", self.name)

    def used(self) -> int:
        """Bytes of all files."""
        return sum(len(inode.seen) for inode in self.files.values())

    def door(self, is_alive: Callable[[], bool]) -> DiskDoor:
        """The disk as one process sees it."""
        return DiskDoor(self, is_alive)

    def changing(self, growth: int = 0) -> None:
        """Called before everything that changes something: the place for faults."""
        if self.fail_at is not None:
            self.fail_at -= 1
            if self.fail_at <= 0:
                self.fail_at = None
                self.on_fail()
                raise PowerCut
        self.maybe_fail()
        if growth > 0 and self.capacity < CAPACITY and self.used() + growth > self.capacity:
            raise OSError(errno.ENOSPC, "no space left on device", self.name)
        self.written_bytes += max(growth, 0)

    def maybe_fail(self) -> None:
        """EIO, by chance."""
        if self.error_chance and self.random.random() < self.error_chance:
            self.trace.add("eio", self.name)
            raise OSError(errno.EIO, "input/output error", self.name)

    def sync_directory(self, directory: PurePath) -> None:
        """Makes removals in a directory durable."""
        for path in [p for p in self.removed if p.parent == directory]:
            del self.removed[path]


class DiskDoor:
    """bkctl.world.Disk for one process; does nothing once that is dead."""

    def __init__(self, disk: SimDisk, is_alive: Callable[[], bool]) -> None:
        self._disk = disk
        self._is_alive = is_alive

    def open(self, path: Path, *, create: bool = False, write: bool = False, exclusive: bool = False) -> SimFile:
        """Opens a file; one that is created is durable in its directory, and empty."""
        disk, key = self._disk, PurePath(path)
        inode = disk.files.get(key)
        if inode is not None and exclusive:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        if inode is None:
            if not (create or exclusive):
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self._check_parent(key)
            if not self._is_alive():
                return SimFile(disk, Inode(), self._is_alive, writable=True)
            disk.changing()
            inode = disk.files[key] = Inode()
            disk.removed.pop(key, None)
            disk.sync_directory(key.parent)
        return SimFile(disk, inode, self._is_alive, writable=write or create)

    def read(self, path: Path) -> bytes:
        """The whole file."""
        self._disk.maybe_fail()
        return bytes(self._inode(path).seen)

    def replace(self, path: Path, data: bytes) -> None:
        """Atomic and durable, unless the drive lies: then a power cut may bring the old file back."""
        disk, key = self._disk, PurePath(path)
        self._check_parent(key)
        if not self._is_alive():
            return
        old = disk.files.get(key)
        disk.changing(len(data) - (len(old.seen) if old else 0))
        inode = Inode()
        if disk.lies and old is not None:
            inode.durable = bytearray(old.durable)
        inode.change(0, None)
        inode.change(0, data)
        if not disk.lies:
            inode.sync()
        disk.synced_count += 1
        disk.files[key] = inode
        disk.removed.pop(key, None)
        disk.sync_directory(key.parent)

    def names(self, path: Path) -> list[str]:
        """What a directory holds, sorted."""
        key = PurePath(path)
        self._check_directory(key)
        inside = {p.name for p in (*self._disk.files, *self._disk.directories) if p.parent == key and p != key}
        return sorted(inside)

    def exists(self, path: Path) -> bool:
        """True for a file or directory."""
        return PurePath(path) in self._disk.files or PurePath(path) in self._disk.directories

    def size(self, path: Path) -> int:
        """Bytes in a file."""
        return len(self._inode(path).seen)

    def make_dirs(self, path: Path) -> None:
        """Makes a directory and its parents."""
        key = PurePath(path)
        if self._is_alive():
            self._disk.directories.update((key, *key.parents))

    def remove(self, path: Path) -> None:
        """Removes a file; durable with the next sync of its directory."""
        inode = self._inode(path)
        if not self._is_alive():
            return
        self._disk.changing()
        key = PurePath(path)
        del self._disk.files[key]
        self._disk.removed[key] = inode

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes."""
        return self._disk.capacity, max(0, self._disk.capacity - self._disk.used())

    def lock(self, path: Path) -> Callable[[], None] | None:
        """A lock that ends with the process, or with the power."""
        key = PurePath(path)
        self._check_parent(key)
        if key in self._disk.locks:
            return None
        self._disk.files.setdefault(key, Inode())
        self._disk.locks.add(key)
        return lambda: self._disk.locks.discard(key) if self._is_alive() else None

    def _inode(self, path: Path) -> Inode:
        inode = self._disk.files.get(PurePath(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return inode

    def _check_parent(self, key: PurePath) -> None:
        self._check_directory(key.parent)

    def _check_directory(self, key: PurePath) -> None:
        if key not in self._disk.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(key))


class SimFile:
    """bkctl.world.File over an inode."""

    def __init__(self, disk: SimDisk, inode: Inode, is_alive: Callable[[], bool], *, writable: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._is_alive = is_alive
        self._writable = writable
        self._open = True

    def pread(self, size: int, offset: int) -> bytes:
        """Up to size bytes at offset."""
        self._check(write=False)
        self._disk.maybe_fail()
        return bytes(self._inode.seen[offset : offset + size])

    def pwrite(self, data: bytes, offset: int) -> None:
        """Writes all of data at offset; not durable yet."""
        self._check(write=True)
        if not self._is_alive():
            return
        data = bytes(data)
        if not data:
            return
        self._disk.changing(offset + len(data) - len(self._inode.seen))
        self._inode.change(offset, data)

    def pwritev(self, parts: list[bytes], offset: int) -> int:
        """Writes the parts one after another at offset."""
        data = b"".join(parts)
        self.pwrite(data, offset)
        return len(data)

    def allocate(self, offset: int, size: int) -> None:
        """Grows the file with zeros; never shrinks it."""
        self._check(write=True)
        growth = offset + size - len(self._inode.seen)
        if growth > 0 and self._is_alive():
            self._disk.changing(growth)
            self._inode.change(offset + size, None)

    def sync(self) -> None:
        """Makes what was written durable, unless the drive lies or fails."""
        self._check(write=False)
        if not self._is_alive():
            return
        try:
            self._disk.changing()
        except OSError:
            self._inode.waiting.clear()  # as Linux does: the pages are marked clean, a later sync will not write them
            raise
        self._disk.synced_count += 1
        if not self._disk.lies:
            self._inode.sync()

    def size(self) -> int:
        """Bytes in the file."""
        self._check(write=False)
        return len(self._inode.seen)

    def truncate(self, size: int) -> None:
        """Cuts or grows the file to size bytes."""
        self._check(write=True)
        if self._is_alive():
            self._disk.changing(size - len(self._inode.seen))
            self._inode.change(size, None)

    def close(self) -> None:
        """Closes; idempotent."""
        self._open = False

    def _check(self, *, write: bool) -> None:
        if not self._open or (write and not self._writable):
            raise OSError(errno.EBADF, "bad file descriptor")
