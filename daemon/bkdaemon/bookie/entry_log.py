"""Entry logs at work: one is written, all are read, each ledger directory has its own.

    write    the flush worker appends a ledger's entries in order and gets their locations; pieces of 1 MiB go to the
             file; a log that would outgrow logSizeLimit is closed with its ledgers map and a new one begins
    sync     once a flush, before the index learns the locations
    read     any thread, by location; the ids in the log must be those that were asked for

A log is never appended to after a restart or an error: its map offset stays 0, as after a crash of Java's, and the
next id begins. Formats: bkctl/codec/entry_log.py. Source: DefaultEntryLogger.java, EntryLoggerAllocator.java.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from bkctl.codec.data_dir import LAST_ID_NAME, decode_last_id, encode_last_id
from bkctl.codec.entry import IDS
from bkctl.codec.entry_log import (
    HEADER_SIZE,
    LOG_ID_MAX,
    MAP_FIELDS_OFFSET,
    FrameKind,
    LogRecords,
    decode_header,
    decode_ledgers_map,
    encode_header,
    encode_ledgers_map,
    encode_map_fields,
    log_name,
    parse_log_name,
    split_location,
)
from bkctl.errors import BadBytes, Corrupt, NotFound, TornTail

if TYPE_CHECKING:
    from bkctl.world import Disk, File

logger = logging.getLogger(__name__)

WRITE_BYTES: Final = 1 << 20
READ_BYTES: Final = 4096
READ_AHEAD_BYTES: Final = 128 << 10
ENTRY_BYTES_MAX: Final = 1 << 28  # a larger size in a frame is not valid
GAP_MAX: Final = 16  # ids between two entries of one ledger that still count as neighbours: ensembles are striped
OPEN_LOGS_MAX: Final = 256
_SIZE: Final = Struct(">i")
_I64: Final = Struct(">q")
_FRAME: Final = Struct(">iqq")  # size, ledger id, entry id

Put = Callable[[bytes, bytes], None]
"""Takes a location_key and an encoded location."""


class EntryLogs:
    """The entry logs of one ledger directory."""

    def __init__(self, disk: Disk, directory: Path, size_limit: int, read_ahead_entries: int) -> None:
        self._disk = disk
        self._directory = directory
        self._limit = size_limit
        self._ahead = read_ahead_entries
        self._next_id = self._first_free_id()
        self._file: File | None = None
        self._log_id = -1
        self._position = 0
        self._parts: list[bytes] = []
        self._buffered = 0
        self._sizes: dict[int, int] = {}
        self._rolled: list[File] = []
        self._flush_start = (-1, 0)
        self._begun: list[int] = []
        self._open: OrderedDict[int, File] = OrderedDict()
        self._lock = threading.Lock()

    # -- writing: one thread ---------------------------------------------------------------------------------------

    def append(self, ledger_id: int, entries: Iterable[tuple[int, bytes]], put: Put) -> None:
        """Appends (entry id, entry) pairs of one ledger and puts their locations; durable after sync().

        Raises:
            OSError: the disk refused; nothing since begin() counts, call abandon() and append again.
        """
        if self._file is None:
            self._begin()
        key, value, pack = IDS.pack, _I64.pack, _SIZE.pack
        position, base, limit, push = self._position, self._log_id << 32, self._limit, self._parts.append
        buffered, started = self._buffered, self._position
        for entry_id, entry in entries:
            size = len(entry)
            if position + 4 + size > limit and position > HEADER_SIZE:
                self._sizes[ledger_id] = self._sizes.get(ledger_id, 0) + position - started
                self._position = position
                self._roll()
                position, base, buffered, push = self._position, self._log_id << 32, 0, self._parts.append
                started = position
            push(pack(size))
            push(entry)
            put(key(ledger_id, entry_id), value(base | position + 4))
            position += 4 + size
            buffered += 4 + size
            if buffered >= WRITE_BYTES:
                self._position = position
                self._write_out()
                buffered, push = 0, self._parts.append
        self._position, self._buffered = position, buffered
        if position > started:
            self._sizes[ledger_id] = self._sizes.get(ledger_id, 0) + position - started

    def sync(self) -> None:
        """Makes everything appended durable."""
        if self._file is None:
            return
        self._write_out()
        for file in (*self._rolled, self._file):
            file.sync()
        for file in self._rolled:
            file.close()
        self._rolled.clear()

    def begin(self) -> None:
        """A flush begins: what is here now is what abandon() goes back to."""
        self._flush_start = (self._log_id, self._position)
        self._begun = []

    def abandon(self) -> None:
        """Takes back what was appended since begin(), so that a disk that is full does not fill up with it.

        The next append begins another log: what an error left of this one is not built upon.
        """
        first_id, first_position = self._flush_start
        self._drop_files()
        try:
            for log_id in self._begun:
                if self._disk.exists(self._directory / log_name(log_id)):
                    self.remove(log_id)
            if first_id >= 0:
                file = self._disk.open(self._directory / log_name(first_id), write=True)
                file.pwrite(encode_map_fields(0, 0), MAP_FIELDS_OFFSET)
                file.truncate(first_position)
                file.close()
        except OSError as e:
            logger.warning("%s: what a failed flush wrote stays: %s", self._directory, e)
        self._flush_start, self._begun = (-1, 0), []

    def keep(self) -> list[int]:
        """Leaves what is durable since begin() where it is; returns the logs that began meanwhile.

        The next append begins another log.
        """
        begun, self._begun = self._begun, []
        self._drop_files()
        return begun

    def discard(self, log_ids: Iterable[int]) -> None:
        """Removes logs that nothing points to any more; one that does not go is left to garbage collection."""
        for log_id in log_ids:
            with contextlib.suppress(OSError):
                self.remove(log_id)

    def close(self) -> None:
        """Closes all files; what was not synced is not kept."""
        self._drop_files()
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()

    def _drop_files(self) -> None:
        for file in (*self._rolled, *([self._file] if self._file else [])):
            file.close()
        self._rolled.clear()
        self._parts, self._buffered, self._sizes = [], 0, {}
        self._file, self._log_id = None, -1

    def _begin(self) -> None:
        log_id = self._next_id
        if log_id > LOG_ID_MAX:
            raise OSError(f"{self._directory}: entry log ids are used up")
        self._disk.replace(self._directory / LAST_ID_NAME, encode_last_id(log_id))
        self._log_id, self._next_id = log_id, log_id + 1  # in this order: closed_ids() must never take it for closed
        self._begun.append(log_id)
        file = self._disk.open(self._directory / log_name(log_id), create=True, exclusive=True)
        self._file, self._position = file, HEADER_SIZE
        self._parts, self._buffered, self._sizes = [], 0, {}
        file.pwrite(encode_header(), 0)

    def _roll(self) -> None:
        """Closes the log with its map; it is synced with the flush."""
        assert self._file is not None
        self._write_out()
        frames = encode_ledgers_map(self._sizes)
        self._file.pwritev(frames, self._position)
        self._file.pwrite(encode_map_fields(self._position, len(self._sizes)), MAP_FIELDS_OFFSET)
        self._rolled.append(self._file)
        self._file = None
        self._begin()

    def _write_out(self) -> None:
        assert self._file is not None
        if self._parts:
            data = b"".join(self._parts)
            self._file.pwrite(data, self._position - len(data))
        self._parts, self._buffered = [], 0

    def _first_free_id(self) -> int:
        """Above every id that a file, or lastId, names; files of unfinished compactions included."""
        used = [-1]
        for name in self._disk.names(self._directory):
            text, dot, rest = name.partition(".")
            if dot and (rest == "log" or rest.startswith("log.")):
                log_id = parse_log_name(f"{text}.log")
                used.extend([] if log_id is None else [log_id])
        path = self._directory / LAST_ID_NAME
        if self._disk.exists(path):
            try:
                used.append(decode_last_id(self._disk.read(path), source=str(path)))
            except BadBytes as e:
                logger.warning("ignoring corrupt last log id, using the highest id of the files: %s", e)
        return max(used) + 1

    # -- reading: any thread ---------------------------------------------------------------------------------------

    def read(self, location: int, ledger_id: int, entry_id: int) -> bytes:
        """The entry at a location.

        Raises:
            Corrupt: something else lies there.
            NotFound: the log is gone.
        """
        return self._read(location, ledger_id, entry_id, READ_BYTES)[0]

    def read_ahead(self, location: int, ledger_id: int, entry_id: int) -> tuple[bytes, dict[int, bytes]]:
        """The entry at a location, and those of the same ledger that follow it in the log, in ascending order."""
        entry, chunk, at = self._read(location, ledger_id, entry_id, READ_AHEAD_BYTES)
        found: dict[int, bytes] = {}
        unpack, head = _FRAME.unpack_from, _FRAME.size
        while at + head <= len(chunk) and len(found) < self._ahead:
            size, ledger, following = unpack(chunk, at)
            if ledger != ledger_id or not 0 < following - entry_id <= GAP_MAX or size < IDS.size:
                break
            if at + 4 + size > len(chunk):
                break
            found[following] = chunk[at + 4 : at + 4 + size]
            entry_id = following
            at += 4 + size
        return entry, found

    def _read(self, location: int, ledger_id: int, entry_id: int, want: int) -> tuple[bytes, bytes, int]:
        """(entry, bytes read, where the next frame begins in them)."""
        log_id, position = split_location(location)
        with self._lock:
            file = self._reader(log_id)
            chunk = file.pread(want, position - 4)
            if len(chunk) >= _FRAME.size:
                size = _SIZE.unpack_from(chunk)[0]
                if want - 4 < size <= ENTRY_BYTES_MAX:
                    chunk += file.pread(size + 4 - len(chunk), position - 4 + len(chunk))
        source = str(self._directory / log_name(log_id))
        if len(chunk) < _FRAME.size:
            raise Corrupt("log too short", source=source, offset=position, expected=_FRAME.size, found=len(chunk))
        size, ledger, entry = _FRAME.unpack_from(chunk)
        if (ledger, entry) != (ledger_id, entry_id):
            raise Corrupt(
                "ids of an entry", source=source, offset=position, expected=(ledger_id, entry_id), found=(ledger, entry)
            )
        if size < IDS.size or 4 + size > len(chunk):
            raise Corrupt(
                "size of an entry", source=source, offset=position - 4, expected=f"16..{len(chunk) - 4}", found=size
            )
        return chunk[4 : 4 + size], chunk, 4 + size

    def _reader(self, log_id: int) -> File:
        file = self._open.get(log_id)
        if file is not None:
            self._open.move_to_end(log_id)
            return file
        path = self._directory / log_name(log_id)
        try:
            file = self._disk.open(path)
        except FileNotFoundError as e:
            raise NotFound(f"{path} is gone", path=str(path)) from e
        self._open[log_id] = file
        if len(self._open) > OPEN_LOGS_MAX:
            self._open.popitem(last=False)[1].close()
        return file

    # -- what garbage collection asks: its own thread --------------------------------------------------------------

    def closed_ids(self) -> list[int]:
        """The logs that are not written any more, ascending; those of a flush under way are not among them."""
        active = self._log_id if self._log_id >= 0 else self._next_id
        ids = (parse_log_name(name) for name in self._disk.names(self._directory))
        return sorted(i for i in ids if i is not None and i < active - len(self._rolled))

    def ledgers_in(self, log_id: int) -> dict[int, int]:
        """The ledgers that have entries in a log, and how many bytes: from its map, else from a walk over all frames.

        Raises:
            BadBytes: neither can be read whole; then it is unknown.
        """
        path = self._directory / log_name(log_id)
        file = self._disk.open(path)
        try:
            size = file.size()
            try:
                header = decode_header(file.pread(HEADER_SIZE, 0), source=str(path))
            except TornTail:
                if size == 0:
                    return {}  # preallocated and never used
                raise
            if header.has_map:
                with contextlib.suppress(BadBytes):  # not trusted: walk
                    tail = file.pread(size - header.map_offset, header.map_offset)
                    return decode_ledgers_map(tail, header, source=str(path))
            sizes: dict[int, int] = {}
            for record in LogRecords(file.pread, size, source=str(path)):
                if record.kind is FrameKind.ENTRY:
                    sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + record.size + _SIZE.size
            return sizes
        finally:
            file.close()

    def remove(self, log_id: int) -> int:
        """Removes a log that nothing needs; returns its size."""
        with self._lock:
            file = self._open.pop(log_id, None)
            if file is not None:
                file.close()
        path = self._directory / log_name(log_id)
        size = self._disk.size(path)
        self._disk.remove(path)
        return size
