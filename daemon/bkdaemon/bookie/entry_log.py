"""The entry logs of a ledger directory: one is written, all are read.

    write    the flush worker appends a ledger's entries in order and gets their locations; pieces of 1 MiB are
             written to the file; a log that would exceed logSizeLimit is closed with its ledgers map
    sync     once per flush, before the locations are written to the index
    read     any thread, by location; the ids in the log must be those of the request

A log is never appended to after a restart or an error: its map offset stays 0, as after a crash of Java's bookie, and
a log with the next id is created. Formats: bkctl/codec/entry_log.py.
Source: DefaultEntryLogger.java, EntryLoggerAllocator.java.
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
GAP_MAX: Final = 16  # greatest difference of ids for reading ahead: in a striped ensemble a bookie lacks some entries
OPEN_LOGS_MAX: Final = 256
_SIZE: Final = Struct(">i")
_I64: Final = Struct(">q")
_FRAME: Final = Struct(">iqq")  # size, ledger id, entry id

Put = Callable[[bytes, bytes], None]
"""Stores a location_key and an encoded location."""


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
        """Appends (entry id, entry) pairs of one ledger and stores their locations; durable after sync().

        Raises:
            OSError: the disk failed; nothing since begin() is valid, call abandon() and append again.
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
        """Starts a flush: abandon() returns to the present state."""
        self._flush_start = (self._log_id, self._position)
        self._begun = []

    def abandon(self) -> None:
        """Removes everything appended since begin(), so that failed flushes do not fill the disk.

        The next append creates another log: a log with an error is never continued.
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
            logger.warning("failed to remove entries of a failed flush in %s: %s", self._directory, e)
        self._flush_start, self._begun = (-1, 0), []

    def keep(self) -> list[int]:
        """Keeps everything that is durable since begin(); returns the logs created since then.

        The next append creates another log.
        """
        begun, self._begun = self._begun, []
        self._drop_files()
        return begun

    def discard(self, log_ids: Iterable[int]) -> None:
        """Removes logs without rows; garbage collection removes those that fail to be removed."""
        for log_id in log_ids:
            with contextlib.suppress(OSError):
                self.remove(log_id)

    def close(self) -> None:
        """Closes all files; entries that were not synced may be lost."""
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
            raise OSError(f"{self._directory}: no entry log id is left")
        self._disk.replace(self._directory / LAST_ID_NAME, encode_last_id(log_id))
        self._log_id, self._next_id = log_id, log_id + 1  # in this order: closed_ids() must never return it
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
        """Returns an id above those of all files, those of unfinished compactions included, and above lastId."""
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
        """Returns the entry at a location.

        Raises:
            Corrupt: that entry is not at the location.
            NotFound: the log does not exist.
        """
        return self._read(location, ledger_id, entry_id, READ_BYTES)[0]

    def read_ahead(self, location: int, ledger_id: int, entry_id: int) -> tuple[bytes, dict[int, bytes]]:
        """Returns the entry at a location, and entries of its ledger that follow it in the log, in ascending order."""
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
        """Returns (entry, bytes read, offset of the next frame in them)."""
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
            raise NotFound(f"{path} does not exist", path=str(path)) from e
        self._open[log_id] = file
        if len(self._open) > OPEN_LOGS_MAX:
            self._open.popitem(last=False)[1].close()
        return file

    # -- for garbage collection, on its own thread -----------------------------------------------------------------

    def closed_ids(self) -> list[int]:
        """Returns the closed logs, ascending, without those of a flush in progress."""
        active = self._log_id if self._log_id >= 0 else self._next_id
        ids = (parse_log_name(name) for name in self._disk.names(self._directory))
        return sorted(i for i in ids if i is not None and i < active - len(self._rolled))

    def ledgers_in(self, log_id: int) -> dict[int, int]:
        """Returns the ledgers that have entries in a log, and their bytes: from its map, else from all frames.

        Raises:
            BadBytes: neither can be read completely.
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
                with contextlib.suppress(BadBytes):  # a corrupt map: scan the frames
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
        """Removes a log; returns its size."""
        with self._lock:
            file = self._open.pop(log_id, None)
            if file is not None:
                file.close()
        path = self._directory / log_name(log_id)
        size = self._disk.size(path)
        self._disk.remove(path)
        return size
