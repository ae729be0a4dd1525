"""Schemas of topics: a new one must fit those before it, as the namespace's strategy wants.

Avro, and what is described in Avro's terms (JSON, Protobuf), is compared by Avro's own rules for readers and writers;
other types must stay the same type. A definition that is stored already keeps its version.

    BACKWARD   the new schema reads what the last one wrote         …_TRANSITIVE: what every one wrote
    FORWARD    the last schema reads what the new one writes        FULL: both

Source: SchemaRegistryServiceImpl.java, AvroSchemaBasedCompatibilityCheck.java, SchemaCompatibilityStrategy.java.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import ErrorCode
from bkctl.errors import Conflict
from bkdaemon.broker.backend import Backend, StoredSchema, TopicRules
from bkdaemon.broker.refusal import Refusal

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName

NONE: Final = 0
JSON: Final = 2
PROTOBUF: Final = 3
AVRO: Final = 4
AUTO_CONSUME: Final = 21
_BY_AVRO: Final = (JSON, PROTOBUF, AVRO)
_VERSION: Final = struct.Struct(">q")
ATTEMPTS_MAX: Final = 10
"""Of storing a version that others store too."""


def encode_version(version: int) -> bytes:
    """A version as the wire has it; none is no bytes."""
    return _VERSION.pack(version) if version >= 0 else b""


def decode_version(data: bytes) -> int:
    """The number of a version.

    Raises:
        Refusal: METADATA, it has not 8 bytes.
    """
    if len(data) != _VERSION.size:
        raise Refusal(ErrorCode.METADATA, f"a schema version has 8 bytes, not {len(data)}")
    return int(_VERSION.unpack(data)[0])


def schema_of(message: Any) -> StoredSchema:
    """The schema in a command."""
    properties = {p.key: p.value for p in message.properties}
    return StoredSchema(-1, message.type, message.schema_data, properties, message.name)


def to_wire(schema: StoredSchema, name: str) -> Any:
    """The schema as an answer has it."""
    message = api.Schema(name=name, schema_data=schema.data, type=schema.type)
    for key, value in schema.properties.items():
        message.properties.add(key=key, value=value)
    return message


class Schemas:
    """Admits schemas of producers and consumers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def admit(
        self, topic: TopicName, schema: StoredSchema | None, *, consumer: bool = False, by_client: bool = True
    ) -> int:
        """The version a producer or consumer works with; -1 without a schema. A new schema is stored.

        An operator (not by_client) may change a schema that clients may not.

        Raises:
            Refusal: INCOMPATIBLE_SCHEMA.
        """
        base = topic.partitioned
        if schema is None or schema.type in (NONE, AUTO_CONSUME):
            rules = await self._backend.rules(topic)
            if rules.schema_validation_enforced and not consumer and await self._backend.schema(base, None):
                raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "Producers cannot connect without a schema")
            return -1
        rules = await self._backend.rules(topic)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._backend.schemas(base)
            for old in reversed(stored):
                if (old.type, old.data) == (schema.type, schema.data):
                    return old.version
            if stored and by_client and not rules.schema_auto_update:
                raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "Schema not found and schema auto updating is disabled.")
            check(schema, stored, rules)
            try:
                return (await self._backend.add_schema(base, schema, stored[-1].version if stored else -1)).version
            except Conflict:
                continue
        raise Refusal(ErrorCode.SERVICE_NOT_READY, "the topic's schema is being changed by many")


def check(new: StoredSchema, stored: list[StoredSchema], rules: TopicRules) -> None:
    """Compares a new schema with those that are stored, oldest first.

    Raises:
        Refusal: INCOMPATIBLE_SCHEMA.
    """
    strategy = rules.schema_compatibility.upper()
    if strategy == "UNDEFINED":
        strategy = "FULL"
    if not stored or strategy == "ALWAYS_COMPATIBLE":
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "the strategy ALWAYS_INCOMPATIBLE allows no other schema")
    if new.type != stored[-1].type:
        raise Refusal(
            ErrorCode.INCOMPATIBLE_SCHEMA,
            f"Incompatible schema: exists schema type {stored[-1].type}, new schema type {new.type}",
        )
    if new.type not in _BY_AVRO:
        return
    against = stored if strategy.endswith("_TRANSITIVE") else stored[-1:]
    kind = strategy.removesuffix("_TRANSITIVE")
    for old in against:
        if kind in ("BACKWARD", "FULL"):
            _can_read(new.data, old.data)
        if kind in ("FORWARD", "FULL"):
            _can_read(old.data, new.data)


def _can_read(reader: bytes, writer: bytes) -> None:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.errors import AvroException
    from avro.schema import parse

    checker: Any = ReaderWriterCompatibilityChecker
    try:
        result = checker().get_compatibility(parse(reader.decode()), parse(writer.decode()))
    except (AvroException, UnicodeDecodeError) as error:
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, f"the schema cannot be read: {error}") from None
    if result.compatibility is not SchemaCompatibilityType.compatible:
        reasons = "; ".join(sorted(result.messages)) or "a reader could not read what a writer wrote"
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, f"Incompatible schema: {reasons}")
