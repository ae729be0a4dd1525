"""Entry logs: the header, the frames, the ledgers map, and locations.

    header   offset  size  type   meaning
             0       4     bytes  b"BKLO"
             4       4     i32    format: 0 without, 1 with a ledgers map
             8       8     i64    offset of the ledgers map, 0 while the log was never closed
             16      4     i32    number of ledgers in the map
             20      1004         zeros (old logs may hold garbage)

    frame    0       4     i32    size of what follows
             4       8     i64    ledger id, -1 if not an entry
             12      8     i64    entry id, -2 for a part of the map
             20      …            the rest of the entry, as the client sent it

    map      20      4     i32    n, 10,000 at most
    part     24      16·n         n times i64 ledger id, i64 bytes of its frames in this log

A location names an entry: (log id << 32) | offset of its ledger id, the byte after the frame's size.
The direct-I/O logger writes a header block of 4096 bytes (a dummy frame fills it from 1024 on), fills blocks with
0xF0 outside of any frame, and leaves zeros up to the preallocated end.
Integers are big-endian. Offsets are from the start of the file.
Source: DefaultEntryLogger.java, EntryLogMetadata.java, DirectEntryLogger (Header.java, LogMetadata.java, Buffer.java).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import islice
from typing import Final, NamedTuple

from bkctl.codec.entry import IDS
from bkctl.codec.journal import parse_hex_id
from bkctl.errors import Corrupt, TornTail

MAGIC: Final = b"BKLO"
HEADER_SIZE: Final = 1024
FORMAT_CURRENT: Final = 1
BLOCK_SIZE: Final = 4096
"""Alignment of the direct-I/O logger."""
FILL: Final = 0xF0
MAP_LEDGER_ID: Final = -1
MAP_ENTRY_ID: Final = -2
MAP_PART_LEDGERS_MAX: Final = 10_000
LOG_ID_MAX: Final = 2**31 - 1
MAP_FIELDS_OFFSET: Final = 8
WINDOW_SIZE: Final = 1 << 20
"""Bytes that are read at a time."""
FRAME_SIZE_MAX: Final = 1 << 28
"""A larger size is damage; BookKeeper's own limit for an entry is 5 MiB unless configured."""

_HEADER: Final = struct.Struct(
    ">4s"  # magic
    "i"  # format
    "q"  # map offset
    "i"  # ledger count
)
_SIZE: Final = struct.Struct(">i")
_FRAME: Final = struct.Struct(">iqq")  # size, ledger id, entry id
_MAP_FIELDS: Final = struct.Struct(">qi")  # map offset, ledger count: patched in place
_MAP_PART: Final = struct.Struct(">iqqi")  # size, ledger id -1, entry id -2, n
_PAIR: Final = struct.Struct(">qq")  # ledger id, bytes
_IDS_SIZE: Final = IDS.size
_DIRECT_FILLER_SIZE: Final = BLOCK_SIZE - HEADER_SIZE - 4


@unique
class FrameKind(StrEnum):
    """The kind of a frame. filler: the direct-I/O logger's dummy; unknown: negative ids that no bookie writes."""

    ENTRY = "entry"
    LEDGERS_MAP = "ledgers_map"
    FILLER = "filler"
    UNKNOWN = "unknown"


class LogRecord(NamedTuple):
    """One frame. offset is that of the entry (after the 4-byte size), size the entry's bytes, body all of them."""

    ledger_id: int
    entry_id: int
    kind: FrameKind
    offset: int
    size: int
    body: bytes


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The content of the first 1024 bytes. A log that was never closed says map_offset = 0."""

    format: int
    map_offset: int
    ledger_count: int

    @property
    def has_map(self) -> bool:
        """True where a ledgers map is promised."""
        return self.format >= 1 and self.map_offset != 0


def encode_header(map_offset: int = 0, ledger_count: int = 0, format: int = FORMAT_CURRENT) -> bytes:
    """1024 bytes; a new log has neither map nor count."""
    return _HEADER.pack(MAGIC, format, map_offset, ledger_count).ljust(HEADER_SIZE, b"\0")


def encode_direct_header(map_offset: int = 0, ledger_count: int = 0) -> bytes:
    """The 4096 bytes that a direct-I/O log starts with: header, and a dummy frame for readers that start at 1024."""
    filler = _FRAME.pack(_DIRECT_FILLER_SIZE, -1, 0)
    return (encode_header(map_offset, ledger_count) + filler).ljust(BLOCK_SIZE, b"\0")


def encode_map_fields(map_offset: int, ledger_count: int) -> bytes:
    """The 12 bytes that are patched at MAP_FIELDS_OFFSET once the map has been written."""
    return _MAP_FIELDS.pack(map_offset, ledger_count)


def decode_header(data: bytes, *, source: str) -> LogHeader:
    """Reads the header at the start of data.

    Raises:
        TornTail: fewer than 1024 bytes, as of a log that was only preallocated.
        Corrupt: not an entry log, from a later format than 1, or a map offset inside the header.
    """
    if len(data) < HEADER_SIZE:
        raise TornTail("short header", source=source, offset=0, expected=HEADER_SIZE, found=len(data))
    magic, format_, map_offset, ledger_count = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt("not an entry log", source=source, offset=0, expected=MAGIC, found=magic)
    if not 0 <= format_ <= FORMAT_CURRENT:
        raise Corrupt("unknown entry-log format", source=source, offset=4, expected="0..1", found=format_)
    return LogHeader(format_, map_offset, ledger_count)


def encode_ledgers_map(sizes: Mapping[int, int]) -> list[bytes]:
    """The frames of a map from ledger id to bytes; none for an empty one."""
    pairs = iter(sizes.items())
    frames = []
    while part := list(islice(pairs, MAP_PART_LEDGERS_MAX)):
        head = _MAP_PART.pack(_MAP_PART.size - 4 + _PAIR.size * len(part), MAP_LEDGER_ID, MAP_ENTRY_ID, len(part))
        frames.append(head + b"".join(_PAIR.pack(*pair) for pair in part))
    return frames


def decode_ledgers_map(data: bytes, header: LogHeader, *, source: str) -> dict[int, int]:
    """Reads the map; data are the file's bytes from header.map_offset on.

    Trusted only if complete: every part valid, and as many ledgers as in the header. Otherwise the caller scans.

    Raises:
        Corrupt: a part is not valid, or has another number of ledgers.
        TornTail: the file ends inside the map.
    """
    sizes: dict[int, int] = {}
    at, base = 0, header.map_offset
    while at + 4 <= len(data):
        size = _SIZE.unpack_from(data, at)[0]
        if size <= 0:
            break
        if at + 4 + size > len(data):
            raise TornTail(
                "ledgers map truncated", source=source, offset=base + at, expected=size, found=len(data) - at
            )
        count = _map_part_count(data[at : at + 4 + size], source=source, offset=base + at)
        sizes.update(_PAIR.iter_unpack(data[at + _MAP_PART.size : at + 4 + size]))
        at += _MAP_PART.size + _PAIR.size * count
    if len(sizes) != header.ledger_count or not sizes:
        raise Corrupt(
            "number of ledgers in the map", source=source, offset=base, expected=header.ledger_count, found=len(sizes)
        )
    return sizes


def _map_part_count(part: bytes, *, source: str, offset: int) -> int:
    """The number of ledgers in one part of the map; part includes its size."""
    if len(part) < _MAP_PART.size:
        raise Corrupt("size of a map part", source=source, offset=offset, expected="20 or more", found=len(part) - 4)
    size, ledger_id, entry_id, count = _MAP_PART.unpack_from(part)
    if (ledger_id, entry_id) != (MAP_LEDGER_ID, MAP_ENTRY_ID):
        raise Corrupt(
            "ids of a map part", source=source, offset=offset + 4, expected=(-1, -2), found=(ledger_id, entry_id)
        )
    expected = _MAP_PART.size - 4 + _PAIR.size * count
    if count < 0 or size != expected:
        raise Corrupt("size of a map part", source=source, offset=offset, expected=expected, found=size)
    return int(count)


def log_name(log_id: int) -> str:
    """The file name of an entry log: its id in hexadecimal and .log."""
    return f"{log_id:x}.log"


def compacting_name(log_id: int) -> str:
    """The name of a log that a compaction is writing."""
    return f"{log_id:x}.log.compacting"


def compacted_name(log_id: int, compacted_log_id: int) -> str:
    """The name of a log that a compaction of another has written, before the index points to it."""
    return f"{log_id:x}.log.{compacted_log_id:x}.compacted"


def parse_log_name(name: str) -> int | None:
    """The id in an entry log's file name, None for any other name."""
    text, dot, suffix = name.partition(".")
    return parse_hex_id(text, digits_max=8) if dot and suffix == "log" else None


def parse_compacted_name(name: str) -> tuple[int, int] | None:
    """(id of the log, id of the log it replaces) in the name of a finished compaction, else None."""
    parts = name.split(".")
    if len(parts) != 4 or parts[1] != "log" or parts[3] != "compacted":
        return None
    new, old = parse_hex_id(parts[0], digits_max=8), parse_hex_id(parts[2], digits_max=8)
    return None if new is None or old is None else (new, old)


def encode_location(log_id: int, position: int) -> int:
    """The number that indexes keep; position is that of the entry, 4 after the frame."""
    return (log_id << 32) | position


def split_location(location: int) -> tuple[int, int]:
    """(log id, position of the entry)."""
    return location >> 32, location & 0xFFFFFFFF


class LogRecords:
    """Walks the frames of one log, once, in constant memory. Iterate over it; then ask how it ended.

    Args:
        read: read(size, offset) returns at most size bytes, fewer only at the end of the file (File.pread).
        size: of the file in bytes.
        offset: of the first frame; 1024 at the start of a log of either logger.
        window_size: bytes that are read at a time; a larger frame is read whole.

    Attributes:
        data_end: the byte after the last complete frame.
        torn: the TornTail of a frame that the file's end cuts short; not raised, because all before it is sound.

    Fill and zeros up to the end are skipped. Iterating raises Corrupt for bytes that no writer produces: start a new
    walk from another offset to continue.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        size: int,
        offset: int = HEADER_SIZE,
        *,
        source: str,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self._read = read
        self._window_size = max(window_size, _FRAME.size)
        self._size = size
        self._source = source
        self.data_end = offset
        self.torn: TornTail | None = None

    def __iter__(self) -> Iterator[LogRecord]:
        window, base, at = b"", self.data_end, 0  # base: offset of the window; at: of the next frame in it
        unpack, frame_size, entry = _FRAME.unpack_from, _FRAME.size, FrameKind.ENTRY
        make = tuple.__new__  # half the price of LogRecord(…), which does the same
        end = self.data_end
        while True:
            if at + frame_size <= len(window):
                size, ledger_id, entry_id = unpack(window, at)
                body = at + 4
                after = body + size
                if ledger_id >= 0 and entry_id >= 0 and size >= _IDS_SIZE and after <= len(window):
                    at = after
                    end = base + after
                    yield make(LogRecord, (ledger_id, entry_id, entry, base + body, size, window[body:after]))
                    continue
            self.data_end = end
            base, at = base + at, 0
            window, record, after = self._one(base)
            if after is None:
                return
            at = after - base
            if record is not None:
                self.data_end = end = after
                yield record

    def _one(self, base: int) -> tuple[bytes, LogRecord | None, int | None]:
        """The window at base, the frame there (None for fill), and where the next one is (None at the end)."""
        window = self._read(self._window_size, base)
        if len(window) < 4:
            if window.strip(b"\0"):
                self._cut(base, 4, len(window))
            return b"", None, None
        size = _SIZE.unpack_from(window)[0]
        if size == 0:
            self._zeros(base)
            return b"", None, None
        if size < 0:
            return window, None, self._fill(window, base)
        if not _IDS_SIZE <= size <= FRAME_SIZE_MAX:
            raise self._corrupt("frame size", base, f"{_IDS_SIZE}..{FRAME_SIZE_MAX}", size)
        if size > len(window) - 4:
            if base + 4 + size > self._size:
                self._cut(base, 4 + size, self._size - base)
                return b"", None, None
            window = self._read(4 + size, base)
            if len(window) < 4 + size:
                self._cut(base, 4 + size, len(window))
                return b"", None, None
        body = window[4 : 4 + size]
        ledger_id, entry_id = IDS.unpack_from(body)
        record = LogRecord(ledger_id, entry_id, _kind(ledger_id, entry_id), base + 4, size, body)
        return window, record, base + 4 + size

    def _fill(self, window: bytes, base: int) -> int:
        """Where the direct-I/O logger's fill that starts at base ends: the next block."""
        gap = -base % BLOCK_SIZE or BLOCK_SIZE
        part = window[:gap]
        filled = len(part) - len(part.lstrip(bytes([FILL])))
        if filled == gap or (filled and filled == len(window)):
            return base + filled
        raise self._corrupt("frame size", base, f"{_IDS_SIZE}..{FRAME_SIZE_MAX}", _SIZE.unpack_from(window)[0])

    def _zeros(self, base: int) -> None:
        """Makes sure that zeros reach from base to the end of the file."""
        at = base
        while window := self._read(self._window_size, at):
            if window.count(0) != len(window):
                at += len(window) - len(window.lstrip(b"\0"))
                raise self._corrupt("data after zeros", base, f"zeros up to {self._size:#x}", f"data at {at:#x}")
            at += len(window)

    def _cut(self, base: int, expected: int, found: int) -> None:
        self.torn = TornTail("frame truncated", source=self._source, offset=base, expected=expected, found=found)

    def _corrupt(self, what: str, offset: int, expected: object, found: object) -> Corrupt:
        return Corrupt(what, source=self._source, offset=offset, expected=expected, found=found)


def _kind(ledger_id: int, entry_id: int) -> FrameKind:
    if ledger_id >= 0 and entry_id >= 0:
        return FrameKind.ENTRY
    if ledger_id == MAP_LEDGER_ID:
        return FrameKind.LEDGERS_MAP if entry_id == MAP_ENTRY_ID else FrameKind.FILLER
    return FrameKind.UNKNOWN


def records(data: bytes, offset: int = HEADER_SIZE, *, source: str) -> LogRecords:
    """Walks the frames of a log that is in memory whole."""
    view = memoryview(data)
    return LogRecords(lambda size, at: bytes(view[at : at + size]), len(data), offset, source=source)
