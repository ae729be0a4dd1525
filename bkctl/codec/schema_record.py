"""A schema as Pulsar's registry stores it, inside of the entry of a schema's ledger.

    1 schema_id (tenant/namespace/topic)   2 user   3 type   4 schema   5 timestamp (ms)   6 deleted   7 props {1, 2}*

The numbers of types are not the wire's: the wire's plus one, where it has one. Source: SchemaRegistryFormat.proto,
SchemaRegistryServiceImpl.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bkctl.codec.protobuf import Message, bytes_field, text_field, varint_field


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One version of a schema; type is the wire's number."""

    schema_id: str
    type: int
    data: bytes
    timestamp_ms: int
    properties: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    deleted: bool = False


def encode_schema(record: SchemaRecord) -> bytes:
    """The record, all fields present."""
    return b"".join(
        (
            text_field(1, record.schema_id),
            text_field(2, record.user),
            varint_field(3, record.type + 1),
            bytes_field(4, record.data),
            varint_field(5, record.timestamp_ms),
            varint_field(6, record.deleted),
            *(bytes_field(7, text_field(1, k) + text_field(2, v)) for k, v in record.properties.items()),
        )
    )


def decode_schema(data: bytes, *, source: str) -> SchemaRecord:
    """Reads a record.

    Raises:
        Corrupt: it is something else.
    """
    message = Message(data, source=source)
    properties = {}
    for raw, offset in message.every(7):
        pair = Message(raw, source=source, base=offset)
        properties[pair.required(1, pair.text(1))] = pair.required(2, pair.text(2))
    return SchemaRecord(
        message.required(1, message.text(1)),
        message.required(3, message.integer(3)) - 1,
        message.required(4, message.raw(4)),
        message.required(5, message.integer(5)),
        properties,
        message.required(2, message.text(2)),
        bool(message.required(6, message.integer(6))),
    )
