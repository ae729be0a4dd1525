"""Journal files: the header, the records, the padding, and how a file ends.

    version  header                            first record  adds
    1        none                              0
    2        b"BKLG", i32 version              8             the header
    3        same                              8             ledger-key records
    4        same                              8             fence records
    5        512 bytes: same, then zeros       512           padding
    6        same                              512           explicit-LAC records

    record   offset  size  type   meaning
             0       4     i32    size of the body, 0 at the end of the file's data
             4       8     i64    ledger id
             12      8     i64    entry id, or one of the negative marks below
             20      …            entry         (>= 0)   the rest of the entry as the client sent it
                                  ledger key    -0x1000  i32 size, key
                                  fence         -0x2000  nothing
                                  force         -0x4000  never written
                                  explicit LAC  -0x8000  i32 size, packet (see codec/entry.py)

    padding  0       4     i32    -0x100
             4       4     i32    n
             8       n            zeros, so that what follows starts on a multiple of the alignment

Integers are big-endian. The format has neither checksums nor sequence numbers. Files are preallocated: their data ends
in zeros, not at the end of the file.
Source: Journal.java, JournalChannel.java, LedgerDescriptorImpl.java, BookieImpl.java (META_ENTRY_ID_…).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final, NamedTuple

from bkctl.codec.entry import IDS
from bkctl.errors import Corrupt, TornTail

MAGIC: Final = b"BKLG"
VERSION_MIN: Final = 1
VERSION_CURRENT: Final = 6
VERSION_PADDED: Final = 5
HEADER_SIZE: Final = 512
SHORT_HEADER_SIZE: Final = 8
ALIGNMENT: Final = 512
PADDING_MARK: Final = -0x100
KEY_ENTRY_ID: Final = -0x1000
FENCE_ENTRY_ID: Final = -0x2000
FORCE_ENTRY_ID: Final = -0x4000
EXPLICIT_LAC_ENTRY_ID: Final = -0x8000
WINDOW_SIZE: Final = 1 << 20
"""Bytes that are read at a time."""
RECORD_SIZE_MAX: Final = 1 << 28
"""A larger size is damage; BookKeeper's own limit for an entry is 5 MiB unless configured."""

_HEADER: Final = struct.Struct(
    ">4s"  # magic
    "i"  # version
)
assert _HEADER.size == SHORT_HEADER_SIZE
_SIZE: Final = struct.Struct(">i")
_FRAME: Final = struct.Struct(">iqq")  # size, ledger id, entry id
_META: Final = struct.Struct(">iqqi")  # size, ledger id, entry id, size of the blob
_PADDING: Final = struct.Struct(">ii")  # mark, size
_IDS_SIZE: Final = IDS.size


@unique
class RecordKind(StrEnum):
    """The content of a record."""

    ENTRY = "entry"
    LEDGER_KEY = "ledger_key"
    FENCE = "fence"
    FORCE = "force"
    EXPLICIT_LAC = "explicit_lac"
    PADDING = "padding"
    UNKNOWN = "unknown"


class JournalRecord(NamedTuple):
    """One record. offset is that of the body, after the 4-byte size; size is the body's.

    body: of an entry the whole body; of a ledger key the key; of an explicit LAC the packet; else the bytes after the
    two ids. Padding has no ids (both are the mark), starts at its own size and counts it.
    """

    ledger_id: int
    entry_id: int
    kind: RecordKind
    offset: int
    size: int
    body: bytes


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The content of the first bytes."""

    version: int
    first_record_offset: int


@unique
class JournalEnd(StrEnum):
    """How the data of a file ended."""

    ZEROS = "zeros"
    FILE_END = "file_end"
    TORN = "torn"


_KINDS: Final[dict[int, tuple[RecordKind, int]]] = {  # entry id: kind, lowest version of the file
    KEY_ENTRY_ID: (RecordKind.LEDGER_KEY, 3),
    FENCE_ENTRY_ID: (RecordKind.FENCE, 4),
    FORCE_ENTRY_ID: (RecordKind.FORCE, 4),
    EXPLICIT_LAC_ENTRY_ID: (RecordKind.EXPLICIT_LAC, 6),
}


def encode_header(version: int = VERSION_CURRENT) -> bytes:
    """The bytes before the first record: 512 of them since version 5."""
    if version == VERSION_MIN:
        return b""
    packed = _HEADER.pack(MAGIC, version)
    return packed.ljust(HEADER_SIZE, b"\0") if version >= VERSION_PADDED else packed


def decode_header(data: bytes, *, source: str) -> JournalHeader:
    """Reads the start of a file; one without the magic is of version 1.

    Raises:
        Corrupt: a version outside 1..6.
        TornTail: a truncated header, as after a crash during creation.
    """
    if len(data) < SHORT_HEADER_SIZE or data[: len(MAGIC)] != MAGIC:
        return JournalHeader(VERSION_MIN, 0)
    _, version = _HEADER.unpack_from(data)
    if not VERSION_MIN <= version <= VERSION_CURRENT:
        raise Corrupt(
            "unknown journal version",
            source=source,
            offset=4,
            expected=f"{VERSION_MIN}..{VERSION_CURRENT}",
            found=version,
        )
    if version < VERSION_PADDED:
        return JournalHeader(version, SHORT_HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        raise TornTail("short header", source=source, offset=0, expected=HEADER_SIZE, found=len(data))
    return JournalHeader(version, HEADER_SIZE)


def encode_key(ledger_id: int, key: bytes) -> bytes:
    """The record that keeps a ledger's master key."""
    return _META.pack(_IDS_SIZE + 4 + len(key), ledger_id, KEY_ENTRY_ID, len(key)) + key


def encode_fence(ledger_id: int) -> bytes:
    """The record that keeps that a ledger is fenced."""
    return _FRAME.pack(_IDS_SIZE, ledger_id, FENCE_ENTRY_ID)


def encode_explicit_lac(ledger_id: int, packet: bytes) -> bytes:
    """The record that keeps a client's explicit LAC packet."""
    return _META.pack(_IDS_SIZE + 4 + len(packet), ledger_id, EXPLICIT_LAC_ENTRY_ID, len(packet)) + packet


def encode_entry_record(entry: bytes) -> bytes:
    """The record of an entry, whose body starts with its ids already."""
    return _SIZE.pack(len(entry)) + entry


def encode_padding(position: int, alignment: int = ALIGNMENT) -> bytes:
    """The bytes that fill the file from position to a multiple of alignment; nothing where it is one already."""
    gap = -position % alignment
    if gap == 0:
        return b""
    if gap < _PADDING.size:  # mark and size do not fit: through the whole next sector
        gap += alignment
    return _PADDING.pack(PADDING_MARK, gap - _PADDING.size).ljust(gap, b"\0")


def journal_name(journal_id: int) -> str:
    """The file name of a journal: its id in hexadecimal, unsigned, and .txn."""
    return f"{journal_id & 0xFFFFFFFFFFFFFFFF:x}.txn"


def parse_journal_name(name: str) -> int | None:
    """The id in a journal's file name, None for any other name."""
    text, dot, suffix = name.partition(".")
    if not dot or suffix != "txn":
        return None
    return parse_hex_id(text, digits_max=16)


def parse_hex_id(text: str, *, digits_max: int) -> int | None:
    """A number in a file name: plain hexadecimal digits, else None."""
    if not 0 < len(text) <= digits_max or not all(c in "0123456789abcdefABCDEF" for c in text):
        return None
    return int(text, 16)


class JournalRecords:
    """Walks the records of one file, once, in constant memory. Iterate over it; then ask how it ended.

    Args:
        read: read(size, offset) returns at most size bytes, fewer only at the end of the file (File.pread).
        offset: of the first record's size: the header's first_record_offset, or that of a mark.
        size: of the file in bytes, None to trust `read`. With it a size beyond the file is known as a torn
            record without reading up to it.
        version: of the file's header.
        padding: True to see padding records as well.
        window_size: bytes that are read at a time; a larger record is read whole.

    Attributes:
        end: how the data ended, None while it has not.
        position: where Java says that the file ended: 4 bytes after the last record if zeros follow (its
            replay stores this as the new mark).
        data_end: the byte after the last complete record or padding.
        torn: the TornTail that describes a truncated record; not raised, because everything before it is sound.

    Iterating raises Corrupt for what no crash explains; start a new walk from another offset to continue.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        offset: int,
        *,
        version: int,
        source: str,
        size: int | None = None,
        padding: bool = False,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self._read = read
        self._window_size = max(window_size, _FRAME.size)
        self._size = size
        self._version = version
        self._source = source
        self._padding = padding
        self.end: JournalEnd | None = None
        self.torn: TornTail | None = None
        self.position = offset
        self.data_end = offset

    def __iter__(self) -> Iterator[JournalRecord]:
        window, base = b"", self.data_end  # base: offset of the window's first byte
        at = 0  # of the next record, in the window
        unpack, size_of_frame, entry = _FRAME.unpack_from, _FRAME.size, RecordKind.ENTRY
        make = tuple.__new__  # half the price of JournalRecord(…), which does the same
        while True:
            if at + size_of_frame <= len(window):
                size, ledger_id, entry_id = unpack(window, at)
                body = at + 4
                after = body + size
                if entry_id >= 0 and size >= _IDS_SIZE and after <= len(window):
                    at = after
                    yield make(JournalRecord, (ledger_id, entry_id, entry, base + body, size, window[body:after]))
                    continue
            base, at = base + at, 0
            self.data_end = base
            window, record = self._one(base)
            if self.end is not None:
                return
            at = self.data_end - base
            if record is not None:
                yield record

    def _one(self, base: int) -> tuple[bytes, JournalRecord | None]:
        """Reads the window at base and decodes what the fast path leaves: marks, padding, the end."""
        window = self._read(self._window_size, base)
        if len(window) < 4:
            return self._ended(JournalEnd.FILE_END, base + len(window))
        size = _SIZE.unpack_from(window)[0]
        if size == 0:
            return self._ended(JournalEnd.ZEROS, base + 4)
        if size == PADDING_MARK and self._version >= VERSION_PADDED:
            return self._pad(window, base)
        if not 0 < size <= RECORD_SIZE_MAX:
            raise self._corrupt("record size", base, f"0..{RECORD_SIZE_MAX}", size)
        if size > len(window) - 4:
            if self._size is None or base + 4 + size <= self._size:
                window = self._read(4 + size, base)
            if size > len(window) - 4:
                return self._cut(base, 4 + size, self._bytes_from(base, window))
        if size < _IDS_SIZE:
            raise self._corrupt("record size", base, f"{_IDS_SIZE} or more", size)
        self.data_end = self.position = base + 4 + size
        return window, self._record(window[4 : 4 + size], base + 4)

    def _record(self, body: bytes, offset: int) -> JournalRecord:
        ledger_id, entry_id = IDS.unpack_from(body)
        if entry_id >= 0:
            return JournalRecord(ledger_id, entry_id, RecordKind.ENTRY, offset, len(body), body)
        kind, version = _KINDS.get(entry_id, (RecordKind.UNKNOWN, VERSION_MIN))
        if self._version < version:
            raise self._corrupt(f"{kind} record", offset + 8, f"no such record below version {version}", self._version)
        rest = body[_IDS_SIZE:]
        if kind in (RecordKind.LEDGER_KEY, RecordKind.EXPLICIT_LAC):
            rest = self._blob(rest, offset + _IDS_SIZE, kind)
        return JournalRecord(ledger_id, entry_id, kind, offset, len(body), rest)

    def _blob(self, rest: bytes, offset: int, kind: RecordKind) -> bytes:
        if len(rest) < 4:
            raise self._corrupt(f"{kind} record too short", offset, "4 or more bytes", len(rest))
        size = _SIZE.unpack_from(rest)[0]
        if not 0 <= size <= len(rest) - 4:
            raise self._corrupt(f"size inside a {kind} record", offset, f"0..{len(rest) - 4}", size)
        return rest[4 : 4 + size]

    def _pad(self, window: bytes, base: int) -> tuple[bytes, JournalRecord | None]:
        if len(window) < _PADDING.size:
            return self._cut(base, _PADDING.size, len(window))
        size = _PADDING.unpack_from(window)[1]
        if not 0 <= size <= RECORD_SIZE_MAX:
            raise self._corrupt("padding size", base + 4, f"0..{RECORD_SIZE_MAX}", size)
        after = base + _PADDING.size + size
        if size > 0 and not self._read(1, after - 1):
            return self._cut(base, _PADDING.size + size, self._bytes_from(base, window))
        self.data_end = self.position = after
        if not self._padding:
            return window, None
        return window, JournalRecord(PADDING_MARK, PADDING_MARK, RecordKind.PADDING, base + 4, 4 + size, b"")

    def _bytes_from(self, base: int, window: bytes) -> int:
        return len(window) if self._size is None else self._size - base

    def _ended(self, end: JournalEnd, position: int) -> tuple[bytes, None]:
        self.end, self.position = end, position
        return b"", None

    def _cut(self, base: int, expected: int, found: int) -> tuple[bytes, None]:
        self.torn = TornTail("record truncated", source=self._source, offset=base, expected=expected, found=found)
        return self._ended(JournalEnd.TORN, base + found)

    def _corrupt(self, what: str, offset: int, expected: object, found: object) -> Corrupt:
        return Corrupt(what, source=self._source, offset=offset, expected=expected, found=found)


def records(data: bytes, offset: int, *, version: int, source: str, padding: bool = False) -> JournalRecords:
    """Walks the records of a file that is in memory whole."""
    view = memoryview(data)
    return JournalRecords(
        lambda size, at: bytes(view[at : at + size]),
        offset,
        version=version,
        source=source,
        size=len(data),
        padding=padding,
    )
