"""Rows of a bookie's RocksDB indexes: entry locations, ledgers, storage flags, entry-log metadata.

    database        key                                  value
    locations       i64 ledger id, i64 entry id          i64 location, see codec/entry_log.py
    ledgers         i64 ledger id                        LedgerData
    ledgers         i64 ledger id, 8 zero bytes          LedgerData, made by the offline rebuild tool
    ledgers         i64 -0xEEFD                          i64 storage flags, bit 0: needs an integrity check
    metadata-cache  i64 entry-log id                     i16 0, i64 log id, i64 total bytes, i64 remaining bytes,
                                                         i64 n, n times (i64 ledger id, i64 bytes)

    LedgerData      field  type   meaning
    (proto2)        1      bool   exists, always true
                    2      bool   fenced
                    3      bytes  master key, may be empty
                    4      bytes  explicit LAC packet, optional
                    5      bool   limbo, optional: what was here may have been lost

Integers are big-endian. Negative ids are not ledgers, and sort after all ledgers.
Source: EntryLocationIndex.java, LedgerMetadataIndex.java, PersistentEntryLogMetadataMap.java,
DbLedgerStorageDataFormats.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bkctl.codec.entry import IDS
from bkctl.codec.protobuf import Message, bytes_field, varint_field
from bkctl.errors import Corrupt

LOCATIONS: Final = "locations"
LEDGERS: Final = "ledgers"
METADATA_CACHE: Final = "metadata-cache"
INDEX_REBUILT_NAME: Final = "bkctl.index.rebuilt"
"""Beside the databases: complete new ones, which an interrupted `bkctl index rebuild` has not moved into place."""
STORAGE_FLAGS_ID: Final = -0xEEFD
NEEDS_INTEGRITY_CHECK: Final = 1
ENTRY_ID_END: Final = 2**63 - 1
"""The end of a ledger's rows in `locations`, exclusive."""

_I64: Final = struct.Struct(">q")
_CACHE_HEAD: Final = struct.Struct(">hqqqq")  # schema, log id, total, remaining, n
_PAIR: Final = struct.Struct(">qq")
_ROW: Final = struct.Struct(">qqq")  # ledger id, entry id, location

location_key = IDS.pack
"""location_key(ledger_id, entry_id): 16 bytes."""
encode_location = _I64.pack
"""encode_location(location): 8 bytes."""
ledger_key = _I64.pack
"""ledger_key(ledger_id): 8 bytes."""
STORAGE_FLAGS_KEY: Final = _I64.pack(STORAGE_FLAGS_ID)


def rebuilt_ledger_key(ledger_id: int) -> bytes:
    """The 16-byte key that the offline rebuild tool writes; it hides the 8-byte one from a Java bookie."""
    return _PAIR.pack(ledger_id, 0)


def decode_location_key(key: bytes, *, source: str) -> tuple[int, int]:
    """(ledger id, entry id), or Corrupt."""
    if len(key) != IDS.size:
        raise Corrupt("size of a location key", source=source, offset=0, expected=IDS.size, found=len(key))
    ledger_id, entry_id = IDS.unpack(key)
    return ledger_id, entry_id


def decode_location(value: bytes, *, source: str) -> int:
    """The location, or Corrupt."""
    if len(value) != _I64.size:
        raise Corrupt("size of a location", source=source, offset=0, expected=_I64.size, found=len(value))
    return int(_I64.unpack(value)[0])


def decode_location_rows(rows: bytes) -> list[tuple[int, int]]:
    """(entry id, location) of rows of one ledger: location_key and encode_location concatenated, 24 bytes."""
    return [(entry_id, location) for _, entry_id, location in _ROW.iter_unpack(rows)]


def decode_ledger_key(key: bytes, *, source: str) -> int:
    """The ledger id in a key of either size (negative: not a ledger), or Corrupt."""
    if len(key) not in (_I64.size, _PAIR.size):
        raise Corrupt("size of a ledger key", source=source, offset=0, expected="8 or 16", found=len(key))
    return int(_I64.unpack_from(key)[0])


@dataclass(frozen=True, slots=True)
class LedgerData:
    """A bookie's data of a ledger besides its entries. limbo is null if it was never set."""

    master_key: bytes = b""
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    exists: bool = True


def encode_ledger_data(data: LedgerData) -> bytes:
    """Protobuf, fields in the order of their numbers, false written out, as Java does."""
    parts = [varint_field(1, data.exists), varint_field(2, data.fenced), bytes_field(3, data.master_key)]
    if data.explicit_lac is not None:
        parts.append(bytes_field(4, data.explicit_lac))
    if data.limbo is not None:
        parts.append(varint_field(5, data.limbo))
    return b"".join(parts)


def decode_ledger_data(value: bytes, *, source: str) -> LedgerData:
    """Reads LedgerData; unknown fields are skipped, the last of a repeated one takes effect.

    Raises:
        Corrupt: not protobuf, a wrong wire type, or a required field is missing.
    """
    message = Message(value, source=source)
    limbo = message.integer(5)
    return LedgerData(
        exists=bool(message.required(1, message.integer(1))),
        fenced=bool(message.required(2, message.integer(2))),
        master_key=message.required(3, message.raw(3)),
        explicit_lac=message.raw(4),
        limbo=None if limbo is None else bool(limbo),
    )


def encode_storage_flags(flags: int) -> bytes:
    """The value under STORAGE_FLAGS_KEY."""
    return _I64.pack(flags)


def decode_storage_flags(value: bytes, *, source: str) -> int:
    """The flags; a bit that is not known is refused, as Java does."""
    flags = decode_location(value, source=source)
    if flags & ~NEEDS_INTEGRITY_CHECK:
        raise Corrupt("storage flags", source=source, offset=0, expected="bit 0 at most", found=flags)
    return flags


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """The data of garbage collection about one entry log: bytes of each ledger that lives in it."""

    log_id: int
    total_size: int
    remaining_size: int
    ledgers: Mapping[int, int]


def encode_log_metadata(metadata: LogMetadata) -> bytes:
    """A value of metadata-cache."""
    head = _CACHE_HEAD.pack(0, metadata.log_id, metadata.total_size, metadata.remaining_size, len(metadata.ledgers))
    return head + b"".join(_PAIR.pack(*pair) for pair in metadata.ledgers.items())


def decode_log_metadata(value: bytes, *, source: str) -> LogMetadata:
    """Reads a value of metadata-cache, or Corrupt."""
    if len(value) < _CACHE_HEAD.size:
        raise Corrupt("entry-log metadata", source=source, offset=0, expected=_CACHE_HEAD.size, found=len(value))
    schema, log_id, total, remaining, count = _CACHE_HEAD.unpack_from(value)
    if schema != 0:
        raise Corrupt("schema of entry-log metadata", source=source, offset=0, expected=0, found=schema)
    expected = _CACHE_HEAD.size + _PAIR.size * count
    if count < 0 or len(value) != expected:
        raise Corrupt("size of entry-log metadata", source=source, offset=26, expected=expected, found=len(value))
    return LogMetadata(log_id, total, remaining, dict(_PAIR.iter_unpack(value[_CACHE_HEAD.size :])))
