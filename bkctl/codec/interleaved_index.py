"""Index files of InterleavedLedgerStorage and SortedLedgerStorage: one .idx a ledger (read only).

    header   offset  size  type   meaning
             0       4     bytes  b"BKLE"
             4       4     i32    version, 0 or 1
             8       4     i32    k: size of the master key
             12      k            master key
             12+k    4     i32    state, bit 0: fenced
             16+k    4     i32    version 1: size of the explicit-LAC packet, 0 or 16 and more
             20+k                 the packet; then zeros to 1024

    slots    1024+8·e  8   i64    location of entry e, see codec/entry_log.py; 0: absent

A slot that the file's end cuts is absent. Path: <hex of bits 8..15>/<hex of bits 0..7>/<hex of the ledger id>.idx.
Integers are big-endian. Source: FileInfo.java, IndexPersistenceMgr.java, LedgerEntryPage.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bkctl.codec.journal import parse_hex_id
from bkctl.errors import Corrupt, TornTail

MAGIC: Final = b"BKLE"
HEADER_SIZE: Final = 1024
VERSION_CURRENT: Final = 1
FENCED_BIT: Final = 1
LAC_PACKET_SIZE_MIN: Final = 16
SLOT_SIZE: Final = 8

_HEADER: Final = struct.Struct(
    ">4s"  # magic
    "i"  # version
    "i"  # size of the key
)
_SIZE: Final = struct.Struct(">i")
_SLOT: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an .idx file. explicit_lac is null in version 0 and if it was never set."""

    version: int
    master_key: bytes
    fenced: bool
    explicit_lac: bytes | None = None


def index_path(ledger_id: int) -> str:
    """The path of a ledger's index file below `current`."""
    return f"{ledger_id >> 8 & 0xFF:x}/{ledger_id & 0xFF:x}/{ledger_id:x}.idx"


def parse_index_name(name: str) -> int | None:
    """The ledger id in an index file's name, None for any other name."""
    text, dot, suffix = name.partition(".")
    return parse_hex_id(text, digits_max=16) if dot and suffix == "idx" else None


def decode_header(data: bytes, *, source: str) -> IndexHeader:
    """Reads the start of a file; data are its first 1024 bytes.

    Raises:
        TornTail: the file ends inside the fields, as after a crash during creation.
        Corrupt: not an index file, an unknown version, or a size that does not fit.
    """
    if len(data) < _HEADER.size:
        raise _torn(data, source, _HEADER.size)
    magic, version, key_size = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt("not an index file", source=source, offset=0, expected=MAGIC, found=magic)
    if not 0 <= version <= VERSION_CURRENT:
        raise Corrupt("unknown index version", source=source, offset=4, expected="0 or 1", found=version)
    if not 0 <= key_size <= HEADER_SIZE - _HEADER.size - 4:
        raise Corrupt("size of the master key", source=source, offset=8, expected="fits 1024 bytes", found=key_size)
    at = _HEADER.size + key_size
    if len(data) < at + 4:
        raise _torn(data, source, at + 4)
    master_key, state = bytes(data[_HEADER.size : at]), _SIZE.unpack_from(data, at)[0]
    packet = _explicit_lac(data, at + 4, source) if version >= 1 else None
    return IndexHeader(version, master_key, bool(state & FENCED_BIT), packet)


def _explicit_lac(data: bytes, at: int, source: str) -> bytes | None:
    if len(data) < at + 4:
        raise _torn(data, source, at + 4)
    size = _SIZE.unpack_from(data, at)[0]
    if size == 0:
        return None
    if not LAC_PACKET_SIZE_MIN <= size <= HEADER_SIZE - at - 4:
        raise Corrupt("size of the explicit LAC", source=source, offset=at, expected="0, or 16 and more", found=size)
    if len(data) < at + 4 + size:
        raise _torn(data, source, at + 4 + size)
    return bytes(data[at + 4 : at + 4 + size])


def _torn(data: bytes, source: str, expected: int) -> TornTail:
    return TornTail("index header truncated", source=source, offset=0, expected=expected, found=len(data))


def slots(data: bytes, first_entry_id: int = 0) -> Iterator[tuple[int, int]]:
    """(entry id, location) of every entry in data, which starts at the slot of first_entry_id; absent ones left out."""
    whole = data[: len(data) // SLOT_SIZE * SLOT_SIZE]
    for entry_id, (location,) in enumerate(_SLOT.iter_unpack(whole), first_entry_id):
        if location:
            yield entry_id, location


def slot_offset(entry_id: int) -> int:
    """Where the slot of an entry is in the file."""
    return HEADER_SIZE + SLOT_SIZE * entry_id
