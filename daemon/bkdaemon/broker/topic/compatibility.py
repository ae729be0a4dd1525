"""Schemas of topics: a new one must be compatible with the stored ones, according to the namespace's strategy.

Schemas in Avro's terms (Avro, JSON, Protobuf) are compared by Avro's rules for readers and writers, both schemas of a
pair of key and value; native Protobuf schemas keep the name of their message; other types must not change. A definition
that is stored already keeps its version. A consumer's schema is stored only if no client has used the topic yet; else
it must be able to read the stored data.

    BACKWARD   the new schema reads data of the last one            …_TRANSITIVE: of all of them
    FORWARD    the last schema reads data of the new one            FULL: both

Source: SchemaRegistryServiceImpl.java, AvroSchemaBasedCompatibilityCheck.java, SchemaCompatibilityStrategy.java.
"""

from __future__ import annotations

import json
import struct
import warnings
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import ErrorCode
from bkctl.errors import Conflict
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.backend import Backend, StoredSchema

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName

SCHEMA_TYPES: Final = {
    -1: "BYTES", 0: "NONE", 1: "STRING", 2: "JSON", 3: "PROTOBUF", 4: "AVRO", 5: "BOOLEAN", 6: "INT8", 7: "INT16",
    8: "INT32", 9: "INT64", 10: "FLOAT", 11: "DOUBLE", 12: "DATE", 13: "TIME", 14: "TIMESTAMP", 15: "KEY_VALUE",
    16: "INSTANT", 17: "LOCAL_DATE", 18: "LOCAL_TIME", 19: "LOCAL_DATE_TIME", 20: "PROTOBUF_NATIVE",
}  # fmt: skip
"""Names of the protocol's numbers; BYTES is only in the REST interface, as clients send NONE for it."""
_NUMBERS: Final = {name: number for number, name in SCHEMA_TYPES.items()}
_JSON_SCHEMA_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null", "any"})
BYTES: Final = -1
NONE: Final = 0
STRING: Final = 1
JSON: Final = 2
PROTOBUF: Final = 3
AVRO: Final = 4
KEY_VALUE: Final = 15
PROTOBUF_NATIVE: Final = 20
AUTO_CONSUME: Final = 21
_BY_AVRO: Final = (JSON, PROTOBUF, AVRO)
_BY_AVRO_NAMES: Final = ("JSON", "PROTOBUF", "AVRO")
_BACKWARD_FOR_CONSUMERS: Final = ("BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL")
_VERSION: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_NOT_PARSED: Final = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""The errors of Avro's parser for JSON that is not a schema."""
ATTEMPTS_MAX: Final = 10
"""Attempts to store a version while other clients store versions."""


def encode_version(version: int) -> bytes:
    """Returns the bytes of a version; b"" without one."""
    return _VERSION.pack(version) if version >= 0 else b""


def decode_version(data: bytes) -> int | None:
    """Returns the number of a version; None if it has fewer than 8 bytes. Older brokers appended bytes without use."""
    return int(_VERSION.unpack_from(data)[0]) if len(data) >= _VERSION.size else None


def schema_of(message: Any) -> StoredSchema:
    """Returns the schema in a command."""
    properties = {p.key: p.value for p in message.properties}
    return StoredSchema(-1, message.type, message.schema_data, properties, message.name)


def to_wire(schema: StoredSchema, name: str) -> Any:
    """Returns a schema as responses have it."""
    message = api.Schema(name=name, schema_data=schema.data, type=max(schema.type, NONE))
    for key, value in schema.properties.items():
        message.properties.add(key=key, value=value)
    return message


class Schemas:
    """Checks and stores schemas of producers and consumers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def admit(self, topic: TopicName, schema: StoredSchema | None, *, by_client: bool = True) -> int:
        """Returns the version of a producer's schema, -1 without one; stores a new schema.

        An operator (not by_client) may change a schema where clients may not.

        Raises:
            Refusal: INCOMPATIBLE_SCHEMA.
        """
        base = topic.partitioned
        if schema is None:
            rules = await self._backend.rules(topic)
            if rules.schema_validation_enforced and await self._backend.schema(base, None):
                raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "Producers cannot connect without a schema")
            return -1
        check_definition(schema)
        rules = await self._backend.rules(topic)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._backend.schemas(base)
            for old in reversed(stored):
                if _same(old, schema):
                    return old.version
            if stored and by_client and not rules.schema_auto_update:
                raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "Schema not found and schema auto updating is disabled.")
            check(schema, stored, rules)
            try:
                return (await self._backend.add_schema(base, schema, stored[-1].version if stored else -1)).version
            except Conflict:
                continue
        raise Refusal(
            ErrorCode.SERVICE_NOT_READY,
            "failed to store the schema: other clients change the topic's schema at the same time",
        )

    async def admit_consumer(self, topic: TopicName, schema: StoredSchema, *, used: bool) -> None:
        """Checks a consumer's schema; it becomes that of the topic if the topic has none and is not used yet.

        Raises:
            Refusal: INCOMPATIBLE_SCHEMA.
        """
        if schema.type == AUTO_CONSUME:
            return
        stored = await self._backend.schemas(topic.partitioned)
        if not stored and not used:
            await self.admit(topic, schema)
            return
        rules = await self._backend.rules(topic)
        strategy = _strategy(rules.schema_compatibility)
        if strategy == "ALWAYS_COMPATIBLE":
            return
        if not stored:
            raise Refusal(
                ErrorCode.INCOMPATIBLE_SCHEMA,
                "Failed to add schema to an active topic with empty(BYTES) schema: "
                f"new schema type {SCHEMA_TYPES.get(schema.type, schema.type)}",
            )
        check(schema, stored, rules, "BACKWARD" if strategy in _BACKWARD_FOR_CONSUMERS else strategy)


def _strategy(name: str) -> str:
    return "FULL" if name.upper() == "UNDEFINED" else name.upper()


def _same(one: StoredSchema, other: StoredSchema) -> bool:
    """Returns whether two schemas are equal, apart from white space in their definitions."""
    if one.type != other.type:
        return False
    if one.data == other.data or one.type not in _BY_AVRO:
        return one.data == other.data
    try:
        return bool(json.loads(one.data) == json.loads(other.data))
    except ValueError:
        return False


def check_definition(schema: StoredSchema) -> None:
    """Checks a schema's definition as far as Java's broker does.

    Raises:
        Refusal: INCOMPATIBLE_SCHEMA.
    """
    name, data = SCHEMA_TYPES.get(schema.type, str(schema.type)), schema.data
    if schema.type == AUTO_CONSUME:
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "Schema AUTO_CONSUME is a client-side schema type")
    if schema.type in _BY_AVRO:
        if not _is_avro(data, records=schema.type == AVRO) and not (schema.type == JSON and _is_json_schema(data)):
            raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, f"Invalid schema definition data for {name} schema")
    elif schema.type == KEY_VALUE and data:
        for part, definition in zip(("key", "value"), _pair(data), strict=True):
            kind = _NUMBERS.get(schema.properties.get(f"{part}.schema.type", ""), NONE)
            check_definition(StoredSchema(-1, kind, definition, {}))
    elif schema.type == STRING:
        if data not in (b"", b"null"):
            text = data.decode(errors="replace")
            raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, f"Invalid schema definition data for string schema : '{text}'")
    elif schema.type == PROTOBUF_NATIVE:
        _root(schema)
    elif schema.type not in (BYTES, NONE) and data:
        raise Refusal(
            ErrorCode.INCOMPATIBLE_SCHEMA,
            "Invalid schema definition data for primitive schemas :"
            f"length of schema data should be zero, but {len(data)} bytes is found",
        )


def _is_avro(data: bytes, *, records: bool) -> bool:
    """Returns whether this is an Avro schema; a union is not valid for messages that are Avro records."""
    from avro.errors import AvroException
    from avro.schema import UnionSchema

    try:
        return not (isinstance(_avro(data), UnionSchema) and records)
    except (AvroException, *_NOT_PARSED):
        return False


def _avro(data: bytes) -> Any:
    """Parses a schema without a check of names: those of nested classes have a $."""
    from avro.schema import parse

    with warnings.catch_warnings():  # of logical types that it does not know
        warnings.simplefilter("ignore")
        return parse(data.decode(), validate_names=False)


def _is_json_schema(data: bytes) -> bool:
    """Returns whether this is a JSON schema, which old clients sent for JSON."""
    try:
        found = json.loads(data)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("type") in _JSON_SCHEMA_TYPES


def check(new: StoredSchema, stored: list[StoredSchema], rules: TopicRules, strategy: str | None = None) -> None:
    """Compares a new schema with those that are stored, oldest first, by the topic's strategy or another.

    Raises:
        Refusal: INCOMPATIBLE_SCHEMA.
    """
    strategy = _strategy(strategy or rules.schema_compatibility)
    if not stored or strategy == "ALWAYS_COMPATIBLE":
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "the strategy ALWAYS_INCOMPATIBLE allows no other schema")
    kind = strategy.removesuffix("_TRANSITIVE")
    for old in stored if kind != strategy else stored[-1:]:
        if new.type != old.type:
            raise Refusal(
                ErrorCode.INCOMPATIBLE_SCHEMA,
                f"Incompatible schema: exists schema type {SCHEMA_TYPES.get(old.type, old.type)}, "
                f"new schema type {SCHEMA_TYPES.get(new.type, new.type)}",
            )
        if new.type in _BY_AVRO:
            _compare(new.data, old.data, kind)
        elif new.type == KEY_VALUE:
            _compare_pairs(new, old, kind)
        elif new.type == PROTOBUF_NATIVE and _root(new) != _root(old):
            raise Refusal(
                ErrorCode.INCOMPATIBLE_SCHEMA,
                f"Protobuf root message change is not allowed: from '{_root(old)}' to '{_root(new)}'",
            )


def _compare(new: bytes, old: bytes, kind: str) -> None:
    if kind in ("BACKWARD", "FULL"):
        _can_read(new, old)
    if kind in ("FORWARD", "FULL"):
        _can_read(old, new)


def _compare_pairs(new: StoredSchema, old: StoredSchema, kind: str) -> None:
    """Compares keys with keys and values with values; both keep their types."""
    for part, mine, theirs in zip(("key", "value"), _pair(new.data), _pair(old.data), strict=True):
        field = f"{part}.schema.type"
        types = new.properties.get(field, "BYTES"), old.properties.get(field, "BYTES")
        if types[0] != types[1]:
            raise Refusal(
                ErrorCode.INCOMPATIBLE_SCHEMA, f"Incompatible {part}: exists type {types[1]}, new type {types[0]}"
            )
        if types[0] in _BY_AVRO_NAMES:
            _compare(mine, theirs, kind)


def _pair(data: bytes) -> tuple[bytes, bytes]:
    """Returns the schemas of key and value; each follows its length, which is -1 for none.

    Raises:
        Refusal: INCOMPATIBLE_SCHEMA, it is not a pair.
    """
    parts, at = [], 0
    for _ in range(2):
        if len(data) < at + _LENGTH.size:
            raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "the schema has no lengths of key and value")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        parts.append(data[at : at + max(length, 0)])
        at += max(length, 0)
    return parts[0], parts[1]


def _root(schema: StoredSchema) -> str:
    """Returns the name of the message that a native Protobuf schema describes.

    Raises:
        Refusal: INCOMPATIBLE_SCHEMA, it names none.
    """
    try:
        return str(json.loads(schema.data)["rootMessageTypeName"])
    except (ValueError, KeyError, TypeError):
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "the schema names no root message") from None


def _can_read(reader: bytes, writer: bytes) -> None:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.errors import AvroException

    checker: Any = ReaderWriterCompatibilityChecker
    try:
        result = checker().get_compatibility(_avro(reader), _avro(writer))
    except (AvroException, *_NOT_PARSED) as error:
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, f"failed to parse the schema: {error}") from None
    if result.compatibility is not SchemaCompatibilityType.compatible:
        reasons = "; ".join(sorted(result.messages)) or "the reader's schema cannot read data of the writer's"
        raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, f"Incompatible schema: {reasons}")
