"""Pulsar's records of a topic: the list of its ledgers, its cursors, and the entries of a cursor's ledger.

    ManagedLedgerInfo    1 ledgerInfo {1 ledgerId 2 entries 3 size 4 timestamp 5 offloadContext 6 properties}*
                         2 terminatedPosition   3 properties {1 key 2 value}*
    ManagedCursorInfo    1 cursorsLedgerId (-1: the state is here)   2, 3 mark-delete   4 ranges*   5 longs*
                         6 lastActive   7 batches*   8 properties*
    PositionInfo         1, 2 mark-delete   3 ranges*   4 longs*   5 batches*   6 ranges by ledger, as bits
    range                1 lower end, exclusive   2 upper end, inclusive
    batch                1 position   2 words of bits, where 1 means "not acknowledged yet"

A node may be wrapped: 0x4778, u32 size, {1 compressionType 2 uncompressedSize}, compressed record. Java never ends its
ZLIB stream. We read the wrapper and never write it. Unknown fields are kept as they are. Absent fields: None. Repeated
numbers are not packed. Source: MLDataFormats.proto, MetaStoreImpl.java.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final, NamedTuple

from bkctl.codec.protobuf import (
    BYTES,
    VARINT,
    Message,
    bytes_field,
    decode_fields,
    decode_varint,
    signed64,
    text_field,
    varint_field,
)
from bkctl.errors import BadBytes, Corrupt, Refused
from bkctl.model.topic import Position

WRAPPED: Final = b"\x47\x78"
UNCOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
NO_CURSOR_LEDGER: Final = -1
COMPACTED: Final = "CompactedTopicLedger"
"""Of a cursor's numbers: the ledger that has the topic's entries up to there compacted."""
COMPACTION_CURSOR: Final = "__compaction"
"""The cursor of what was compacted; not a subscription of a user."""
WORD_BITS: Final = 64
_WORD_MASK: Final = 2**WORD_BITS - 1
_WRAPPER: Final = struct.Struct(">2sI")


@unique
class Compression(IntEnum):
    """How a node's record is compressed."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger of the list. entries, size and timestamp are settled when it was closed; timestamp is 0 until then.

    rest holds fields 5 on (offload context, properties) as they were read.
    """

    ledger_id: int
    entries: int | None = None
    size: int | None = None
    timestamp_ms: int | None = None
    rest: bytes = b""

    @property
    def offloaded(self) -> bool:
        """True if its entries are in tiered storage alone: BookKeeper's ledger was deleted there."""
        context = Message(self.rest, source="LedgerInfo").raw(5)
        return context is not None and bool(Message(context, source="OffloadContext").integer(4))


@dataclass(frozen=True, slots=True)
class ManagedLedgerInfo:
    """The node of a topic: its ledgers, ascending."""

    ledgers: tuple[LedgerInfo, ...] = ()
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    rest: bytes = b""


class AckedRange(NamedTuple):
    """Entries after `after`, up to and including `until`."""

    after: Position
    until: Position


class BatchAck(NamedTuple):
    """A batch that is acknowledged in part: bit i of words is 1 while its message i is not."""

    position: Position
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CursorState:
    """The acknowledged positions: an entry of a cursor's ledger, and what a node can hold as well.

    bits are ranges by ledger id (field 6), where bit i of the words says that entry i is acknowledged.
    """

    mark_delete: Position
    ranges: tuple[AckedRange, ...] = ()
    longs: Mapping[str, int] = field(default_factory=dict)
    batches: tuple[BatchAck, ...] = ()
    bits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class ManagedCursorInfo:
    """The node of a cursor; its state is valid while ledger_id is -1, else it is the state when that ledger was
    created.
    """

    ledger_id: int
    state: CursorState | None = None
    last_active_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    rest: bytes = b""


# -- the managed ledger's node ----------------------------------------------------------------------------------------


def encode_ledger_info(info: ManagedLedgerInfo) -> bytes:
    """The node of a topic, not wrapped."""
    parts = [bytes_field(1, _encode_ledger(ledger)) for ledger in info.ledgers]
    if info.terminated is not None:
        parts.append(bytes_field(2, encode_position(info.terminated)))
    parts += [bytes_field(3, text_field(1, key) + text_field(2, value)) for key, value in info.properties.items()]
    return b"".join((*parts, info.rest))


def _encode_ledger(ledger: LedgerInfo) -> bytes:
    parts = [varint_field(1, ledger.ledger_id)]
    for number, value in ((2, ledger.entries), (3, ledger.size), (4, ledger.timestamp_ms)):
        if value is not None:
            parts.append(varint_field(number, value))
    return b"".join((*parts, ledger.rest))


def decode_ledger_info(data: bytes, *, source: str) -> ManagedLedgerInfo:
    """Reads the node of a topic, wrapped or not; an empty one has no ledgers.

    Raises:
        Corrupt: it is something else. Refused: compressed in a way this Python cannot read.
    """
    data = unwrap(data, source=source)
    message = Message(data, source=source)
    ledgers = []
    for raw, offset in message.every(1):
        one = Message(raw, source=source, base=offset)
        ledgers.append(
            LedgerInfo(
                one.required(1, one.integer(1)),
                one.integer(2),
                one.integer(3),
                one.integer(4),
                one.after(4),
            )
        )
    terminated = message.raw(2)
    return ManagedLedgerInfo(
        tuple(ledgers),
        None if terminated is None else decode_position(terminated, source=source),
        _texts(message, 3, source),
        message.after(3),
    )


# -- cursors ----------------------------------------------------------------------------------------------------------


def encode_cursor_info(info: ManagedCursorInfo) -> bytes:
    """The node of a cursor, not wrapped."""
    parts = [varint_field(1, info.ledger_id)]
    state = info.state
    if state is not None:
        parts += (varint_field(2, state.mark_delete.ledger_id), varint_field(3, state.mark_delete.entry_id))
        parts += (bytes_field(4, encode_range(one)) for one in state.ranges)
        parts += (bytes_field(5, _encode_long(*one)) for one in state.longs.items())
    if info.last_active_ms is not None:
        parts.append(varint_field(6, info.last_active_ms))
    if state is not None:
        parts += (bytes_field(7, _encode_batch(one)) for one in state.batches)
    parts += (bytes_field(8, text_field(1, name) + text_field(2, value)) for name, value in info.properties.items())
    return b"".join((*parts, info.rest))


def decode_cursor_info(data: bytes, *, source: str) -> ManagedCursorInfo:
    """Reads the node of a cursor, wrapped or not.

    Raises:
        Corrupt: it is something else. Refused: compressed in a way this Python cannot read.
    """
    data = unwrap(data, source=source)
    message = Message(data, source=source)
    ledger, entry = message.integer(2), message.integer(3)
    state = None
    if ledger is not None and entry is not None:
        state = CursorState(
            Position(ledger, entry),
            _ranges(message, 4, source),
            _longs(message, 5, source),
            _batches(message, 7, source),
        )
    return ManagedCursorInfo(
        message.required(1, message.integer(1)),
        state,
        message.integer(6),
        _texts(message, 8, source),
        message.after(8),
    )


def encode_cursor_state(state: CursorState) -> bytes:
    """An entry of a cursor's ledger."""
    parts = [varint_field(1, state.mark_delete.ledger_id), varint_field(2, state.mark_delete.entry_id)]
    parts += (bytes_field(3, encode_range(one)) for one in state.ranges)
    parts += (bytes_field(4, _encode_long(*one)) for one in state.longs.items())
    parts += (bytes_field(5, _encode_batch(one)) for one in state.batches)
    for ledger_id, words in state.bits.items():
        parts.append(bytes_field(6, varint_field(1, ledger_id) + b"".join(varint_field(2, word) for word in words)))
    return b"".join((*parts, state.rest))


def decode_cursor_state(data: bytes, *, source: str) -> CursorState:
    """Reads an entry of a cursor's ledger.

    Raises:
        Corrupt: it is something else.
    """
    message = Message(data, source=source)
    bits = {}
    for raw, offset in message.every(6):
        one = Message(raw, source=source, base=offset)
        bits[one.required(1, one.integer(1))] = _words(raw, source, offset)
    return CursorState(
        Position(message.required(1, message.integer(1)), message.required(2, message.integer(2))),
        _ranges(message, 3, source),
        _longs(message, 4, source),
        _batches(message, 5, source),
        bits,
        message.after(6),
    )


def encode_range(one: AckedRange) -> bytes:
    """A range as it stands in a cursor's state."""
    return bytes_field(1, encode_position(one.after)) + bytes_field(2, encode_position(one.until))


def _encode_long(name: str, value: int) -> bytes:
    return text_field(1, name) + varint_field(2, value)


def _encode_batch(one: BatchAck) -> bytes:
    words = b"".join(varint_field(2, word) for word in one.words)
    return bytes_field(1, encode_position(one.position)) + words


def _ranges(message: Message, number: int, source: str) -> tuple[AckedRange, ...]:
    found = []
    for raw, offset in message.every(number):
        one = Message(raw, source=source, base=offset)
        ends = [decode_position(one.required(i, one.raw(i)), source=source, base=offset) for i in (1, 2)]
        found.append(AckedRange(ends[0], ends[1]))
    return tuple(found)


def _longs(message: Message, number: int, source: str) -> dict[str, int]:
    found = {}
    for raw, offset in message.every(number):
        one = Message(raw, source=source, base=offset)
        found[one.required(1, one.text(1))] = one.required(2, one.integer(2))
    return found


def _texts(message: Message, number: int, source: str) -> dict[str, str]:
    found = {}
    for raw, offset in message.every(number):
        one = Message(raw, source=source, base=offset)
        found[one.required(1, one.text(1))] = one.required(2, one.text(2))
    return found


def _batches(message: Message, number: int, source: str) -> tuple[BatchAck, ...]:
    found = []
    for raw, offset in message.every(number):
        one = Message(raw, source=source, base=offset)
        position = decode_position(one.required(1, one.raw(1)), source=source, base=offset)
        found.append(BatchAck(position, _words(raw, source, offset)))
    return tuple(found)


def _words(raw: bytes, source: str, base: int) -> tuple[int, ...]:
    """Field 2, repeated: packed or not."""
    words: list[int] = []
    for number, kind, value, offset in decode_fields(raw, source=source, base=base):
        if number != 2:
            continue
        if kind == VARINT and isinstance(value, int):
            words.append(signed64(value))
        elif kind == BYTES and isinstance(value, bytes):
            at = 0
            while at < len(value):
                word, at = decode_varint(value, at, source=source, base=offset)
                words.append(signed64(word))
        else:
            raise Corrupt("type of field 2", source=source, offset=offset, expected=VARINT, found=kind)
    return tuple(words)


def encode_position(position: Position) -> bytes:
    """A position inside of another record."""
    return varint_field(1, position.ledger_id) + varint_field(2, position.entry_id)


def decode_position(data: bytes, *, source: str, base: int = 0) -> Position:
    """Reads a position inside of another record."""
    message = Message(data, source=source, base=base)
    return Position(message.required(1, message.integer(1)), message.required(2, message.integer(2)))


def bits_of(words: Iterable[int]) -> int:
    """Words of 64 bits, the lowest first, as one number."""
    bits = 0
    for index, word in enumerate(words):
        bits |= (word & _WORD_MASK) << (index * WORD_BITS)
    return bits


def words_of(bits: int) -> tuple[int, ...]:
    """A number as signed 64-bit words, the lowest first, without zeros at the end; as Java's BitSet gives them."""
    words = []
    while bits:
        words.append(signed64(bits & _WORD_MASK))
        bits >>= WORD_BITS
    return tuple(words)


# -- the wrapper ------------------------------------------------------------------------------------------------------


def unwrap(data: bytes, *, source: str) -> bytes:
    """The record inside of a node; a node that is not wrapped, or wrapped badly, is taken as it is.

    Raises:
        Refused: compressed in a way this Python cannot read. Corrupt: a relic in protobuf's text form.
    """
    if data[:2] != WRAPPED:
        if data[:1].isalpha() and data.isascii() and b":" in data:
            raise Corrupt("a record in text form", source=source, offset=0, expected="binary", found=data[:16])
        return data
    try:
        return _unwrapped(data, source)
    except (BadBytes, struct.error, zlib.error):
        return data


def _unwrapped(data: bytes, source: str) -> bytes:
    _, size = _WRAPPER.unpack_from(data)
    start = _WRAPPER.size + size
    head = Message(data[_WRAPPER.size : start], source=source, base=_WRAPPER.size)
    kind, expected = head.required(1, head.integer(1)), head.required(2, head.integer(2))
    if not 0 <= expected <= UNCOMPRESSED_SIZE_MAX:
        raise Corrupt("size", source=source, offset=0, expected=f"0..{UNCOMPRESSED_SIZE_MAX}", found=expected)
    body = data[start:]
    if kind == Compression.NONE:
        return body
    record = _decompressed(kind, body, expected, source)
    if len(record) != expected:
        raise Corrupt("uncompressed size", source=source, offset=start, expected=expected, found=len(record))
    return record


def _decompressed(kind: int, body: bytes, expected: int, source: str) -> bytes:
    if kind == Compression.ZLIB:
        return zlib.decompressobj().decompress(body, expected + 1)
    if kind not in Compression._value2member_map_:
        raise Refused(f"{source} is compressed with unknown method {kind}")
    name = Compression(kind).name
    try:
        import cramjam
    except ImportError:
        raise Refused(
            f"{source} is compressed with {name}, which needs cramjam", hint="install bkctl[broker]"
        ) from None
    try:
        into = {
            Compression.LZ4: cramjam.lz4.decompress_block_into,
            Compression.ZSTD: cramjam.zstd.decompress_into,
            Compression.SNAPPY: cramjam.snappy.decompress_raw_into,
        }[Compression(kind)]
        record = bytearray(expected)
        return bytes(record[: into(body, record)])
    except cramjam.DecompressionError as e:
        raise Corrupt("compressed record", source=source, offset=0, expected=name, found=str(e)) from None


def wrap(record: bytes) -> bytes:
    """The record as Java's brokers write it with managedLedgerInfoCompressionType=ZLIB; for tests and tools."""
    head = varint_field(1, Compression.ZLIB) + varint_field(2, len(record))
    return _WRAPPER.pack(WRAPPED, len(head)) + head + zlib.compress(record)


# -- schemas ----------------------------------------------------------------------------------------------------------


class SchemaIndex(NamedTuple):
    """Where one version of a schema is: the entry of a ledger, and the SHA-256 of its definition."""

    version: int
    position: Position
    hash: bytes


def encode_schema_locator(index: Sequence[SchemaIndex]) -> bytes:
    """The node of a schema, `/schemas/tenant/namespace/topic`: the latest version, then all, ascending."""
    every = [_encode_index(one) for one in index]
    return bytes_field(1, every[-1]) + b"".join(bytes_field(2, one) for one in every)


def decode_schema_locator(data: bytes, *, source: str) -> list[SchemaIndex]:
    """Reads the node of a schema: its versions, ascending."""
    message = Message(data, source=source)
    message.required(1, message.raw(1))
    return [_decode_index(raw, source, offset) for raw, offset in message.every(2)]


def encode_schema_entry(schema_data: bytes, index: Sequence[SchemaIndex]) -> bytes:
    """The entry of a schema's ledger."""
    return bytes_field(2, schema_data) + b"".join(bytes_field(5, _encode_index(one)) for one in index)


def decode_schema_entry(data: bytes, *, source: str) -> bytes:
    """The schema's own record inside of an entry of its ledger."""
    message = Message(data, source=source)
    return message.required(2, message.raw(2))


def _encode_index(one: SchemaIndex) -> bytes:
    return varint_field(1, one.version) + bytes_field(2, encode_position(one.position)) + bytes_field(3, one.hash)


def _decode_index(raw: bytes, source: str, base: int) -> SchemaIndex:
    one = Message(raw, source=source, base=base)
    return SchemaIndex(
        one.required(1, one.integer(1)),
        decode_position(one.required(2, one.raw(2)), source=source, base=base),
        one.required(3, one.raw(3)),
    )
