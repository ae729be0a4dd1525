"""Seals: a checksum of each journal group, kept in its padding, where BookKeeper's readers pass it over.

A journal record has no checksum, and a disk that loses power may have written any of the sectors of the last group.
Without more, half an entry would be replayed as an entry, or a length made of leftovers would stop the start. Journals
of bkctl say so in their header and seal every group; all other readers see ordinary padding.

    header   8       8     bytes  b"bkctlsl1", in what is zeros otherwise: every group of this file is sealed

    padding  0       4     i32    -0x100
             4       4     i32    n, at least 28
             8       n-28         zeros
             8+n-28  8     bytes  b"bkctlsl1"
                     8     i64    offset of the group's first record
                     8     i64    bytes of its records
                     4     u32    CRC-32C of them
                                  a multiple of 512

A group is written when the one before it is durable. So a group without a valid seal is a torn tail if no valid seal
follows it, and corruption if one does.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from bkctl.codec.journal import ALIGNMENT, PADDING_MARK, VERSION_CURRENT, encode_header

MARK: Final = b"bkctlsl1"
MARK_OFFSET: Final = 8
_PADDING: Final = struct.Struct(">ii")
_SEAL: Final = struct.Struct(
    ">8s"  # mark
    "q"  # offset of the group
    "q"  # bytes of its records
    "I"  # their CRC-32C
)
SEAL_SIZE: Final = _SEAL.size
PADDING_MIN: Final = _PADDING.size + SEAL_SIZE


class Seal(NamedTuple):
    """The content of the end of a group's padding."""

    offset: int
    size: int
    checksum: int

    def fits(self, records: bytes) -> bool:
        """True if these are the records that were sealed."""
        return len(records) == self.size and crc32c(records) == self.checksum


def encode_sealed_header() -> bytes:
    """The header of a journal whose groups are sealed."""
    header = encode_header(VERSION_CURRENT)
    return header[:MARK_OFFSET] + MARK + header[MARK_OFFSET + len(MARK) :]


def is_sealed(header: bytes) -> bool:
    """True if a file with this header seals its groups."""
    return header[MARK_OFFSET : MARK_OFFSET + len(MARK)] == MARK


def encode_seal(offset: int, records: bytes, alignment: int = ALIGNMENT) -> bytes:
    """The padding after the records of the group at offset; it ends on a multiple of alignment."""
    return encode_seal_of(offset, len(records), crc32c(records), alignment)


def encode_seal_of(offset: int, records_size: int, checksum: int, alignment: int = ALIGNMENT) -> bytes:
    """The same, where the records were checksummed piece by piece."""
    size = PADDING_MIN + -(offset + records_size + PADDING_MIN) % alignment
    seal = _SEAL.pack(MARK, offset, records_size, checksum)
    return _PADDING.pack(PADDING_MARK, size - _PADDING.size) + bytes(size - PADDING_MIN) + seal


def decode_seal(data: bytes) -> Seal | None:
    """Returns the seal in the last bytes of a group; None where the group has no seal."""
    if len(data) < SEAL_SIZE:
        return None
    mark, offset, size, checksum = _SEAL.unpack_from(data, len(data) - SEAL_SIZE)
    return Seal(offset, size, checksum) if mark == MARK and offset >= 0 and size >= 0 else None
