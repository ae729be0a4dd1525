"""Ledgers of Apache Pulsar: those that topics, cursors, compacted topics and schemas name.

    /managed-ledgers/tenant/namespace/persistent/topic          ManagedLedgerInfo: the topic's ledgers
    /managed-ledgers/tenant/namespace/persistent/topic/cursor   ManagedCursorInfo: the cursor's ledger; of the cursor
                                                                __compaction also the compacted ledger
    /schemas/tenant/namespace/topic                             SchemaLocator: the ledgers of all versions

    custom metadata         names
    pulsar/managed-ledger   the topic's path below /managed-ledgers
    pulsar/cursor           the cursor, beside the key above
    pulsar/compactedTopic   the topic, persistent://…
    pulsar/schemaId         the schema's path below /schemas

A broker creates a ledger first and stores the reference afterwards, so a new ledger is named by its custom metadata
alone for a moment. The node of the topic exists before its first ledger is created.
Source: MLDataFormats.proto, MetaStoreImpl.java, CompactedTopicImpl.java, BookkeeperSchemaStorage.java,
LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from bkctl.codec.managed_ledger import (
    COMPACTED,
    NO_CURSOR_LEDGER,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    decode_cursor_info,
    decode_ledger_info,
    decode_schema_locator,
)
from bkctl.errors import BadBytes, UsageError
from bkctl.meta.managed_ledgers import ROOT as MANAGED_LEDGERS
from bkctl.meta.owners.application import APPLICATION_KEY
from bkctl.meta.owners.base import (
    APPLICATION,
    COMPACTION,
    CURSOR,
    SCHEMA,
    TOPIC,
    Claim,
    Owner,
    OwnerPlugin,
    Reference,
    text_of,
)
from bkctl.meta.store import check_path
from bkctl.meta.topics import PARTITIONED_TOPICS, SCHEMAS
from bkctl.model.topic import PERSISTENT, TopicName, decode_name, encode_name

_PULSAR: Final = b"pulsar"
_KEYS: Final = "pulsar/"
_MANAGED_LEDGER_KEY: Final = "pulsar/managed-ledger"
_CURSOR_KEY: Final = "pulsar/cursor"
_COMPACTED_KEY: Final = "pulsar/compactedTopic"
_SCHEMA_KEY: Final = "pulsar/schemaId"
_NAMESPACE_PARTS: Final = (2, 3)  # tenant/namespace, or the old tenant/cluster/namespace


class TopicNode(NamedTuple):
    """The node of a topic, decoded."""

    topic: str
    info: ManagedLedgerInfo


class CursorNode(NamedTuple):
    """The node of a cursor, decoded; name is encoded as in the path."""

    topic: str
    cursor: str
    name: str
    info: ManagedCursorInfo

    @property
    def ledger_id(self) -> int | None:
        """The ledger of the cursor's state; None where the state is in the node."""
        return None if self.info.ledger_id == NO_CURSOR_LEDGER else self.info.ledger_id

    @property
    def compacted_ledger_id(self) -> int | None:
        """The compacted ledger of the topic, which the cursor __compaction names."""
        found = None if self.info.state is None else self.info.state.longs.get(COMPACTED)
        return found if found is not None and found >= 0 else None


class SchemaNode(NamedTuple):
    """The node of a schema, decoded; each ledger once."""

    topic: str
    ledger_ids: tuple[int, ...]


def decode_node(path: str, data: bytes, *, source: str) -> TopicNode | CursorNode | SchemaNode | None:
    """Decodes a node by its path, which is relative to the path of Pulsar's metadata; None for a directory.

    Raises:
        BadBytes: the node is not what its path says. Refused: it is compressed in an unsupported way.
    """
    if path.startswith(f"{SCHEMAS}/"):
        return _schema(path[len(SCHEMAS) + 1 :].split("/"), data, source)
    if not path.startswith(f"{MANAGED_LEDGERS}/"):
        return None
    parts = path[len(MANAGED_LEDGERS) + 1 :].split("/")
    at = next((i for i in _NAMESPACE_PARTS if len(parts) > i and parts[i] == PERSISTENT), None)
    if at is None or len(parts) not in (at + 2, at + 3):
        return _unusual(parts, data, source)
    topic = _topic_name(parts[:at], parts[at + 1])
    if len(parts) == at + 2:
        return TopicNode(topic, decode_ledger_info(data, source=source))
    return _cursor(topic, parts[-1], data, source) if data else None


def _topic_name(namespace: Sequence[str], local: str) -> str:
    return f"{PERSISTENT}://{'/'.join(namespace)}/{decode_name(local)}"


def _cursor(topic: str, name: str, data: bytes, source: str) -> CursorNode:
    return CursorNode(topic, decode_name(name), name, decode_cursor_info(data, source=source))


def _unusual(parts: Sequence[str], data: bytes, source: str) -> TopicNode | CursorNode | None:
    """A managed ledger whose name is not a topic's, or a cursor of one; a directory has no data."""
    if not data:
        return None
    try:
        return TopicNode("/".join(parts), decode_ledger_info(data, source=source))
    except BadBytes:
        return _cursor("/".join(parts[:-1]), parts[-1], data, source)


def _schema(parts: Sequence[str], data: bytes, source: str) -> SchemaNode | None:
    if len(parts) <= _NAMESPACE_PARTS[0] or not data:
        return None
    versions = decode_schema_locator(data, source=source)
    ledger_ids = dict.fromkeys(version.position.ledger_id for version in versions)
    return SchemaNode(_topic_name(parts[:-1], parts[-1]), tuple(ledger_ids))


def plugin(prefixes: Sequence[str]) -> OwnerPlugin:
    """The plug-in for Pulsar's metadata below these paths; "" is the store's root."""
    roots = tuple(prefix + tree for prefix in prefixes for tree in (MANAGED_LEDGERS, SCHEMAS))
    return OwnerPlugin("Pulsar", roots, partial(references, prefixes), partial(claim, prefixes))


def references(prefixes: Sequence[str], path: str, data: bytes) -> Iterator[Reference]:
    """The ledgers that a topic, a cursor or a schema names.

    Raises:
        BadBytes, Refused: the node cannot be decoded.
    """
    trees = (MANAGED_LEDGERS, SCHEMAS)
    prefix = next((p for p in prefixes if path.startswith(tuple(f"{p}{tree}/" for tree in trees))), None)
    node = None if prefix is None else decode_node(path[len(prefix) :], data, source=path)
    if isinstance(node, TopicNode):
        for ledger in node.info.ledgers:
            yield Reference(ledger.ledger_id, Owner(TOPIC, node.topic, path))
    elif isinstance(node, CursorNode):
        if node.ledger_id is not None:
            yield Reference(node.ledger_id, Owner(CURSOR, f"{node.topic}/{node.name}", path))
        if node.compacted_ledger_id is not None:
            yield Reference(node.compacted_ledger_id, Owner(COMPACTION, node.topic, path))
    elif isinstance(node, SchemaNode):
        for ledger_id in node.ledger_ids:
            yield Reference(ledger_id, Owner(SCHEMA, node.topic, path))


def claim(prefixes: Sequence[str], custom: Mapping[str, bytes]) -> Claim | None:
    """The topic, cursor, schema or compacted topic that custom metadata names."""
    if custom.get(APPLICATION_KEY) != _PULSAR and not any(key.startswith(_KEYS) for key in custom):
        return None
    texts = {key: text_of(value) for key, value in custom.items() if key.startswith(_KEYS)}
    owner, paths = _named(texts)
    try:
        nodes = tuple(check_path(prefix + path) for prefix in prefixes for path in paths)
    except UsageError:
        return Claim(owner)
    return Claim(owner, tuple(prefix + MANAGED_LEDGERS for prefix in prefixes), nodes)


def _named(texts: Mapping[str, str]) -> tuple[Owner, tuple[str, ...]]:
    """The owner, and nodes of which one exists as long as the owner does."""
    if (name := texts.get(_MANAGED_LEDGER_KEY)) is not None:
        parts = name.split("/")
        topic = _topic_name(parts[:-2], parts[-1]) if PERSISTENT in parts[-2:-1] else name
        cursor = texts.get(_CURSOR_KEY)
        owner = Owner(TOPIC, topic) if cursor is None else Owner(CURSOR, f"{topic}/{encode_name(cursor)}")
        return owner, (f"{MANAGED_LEDGERS}/{name}",)
    if (schema := texts.get(_SCHEMA_KEY)) is not None:
        namespace, _, local = schema.rpartition("/")
        topics = (f"{tree}/{namespace}/{PERSISTENT}/{local}" for tree in (MANAGED_LEDGERS, PARTITIONED_TOPICS))
        return Owner(SCHEMA, _topic_name((namespace,), local)), (f"{SCHEMAS}/{schema}", *topics)
    if (compacted := texts.get(_COMPACTED_KEY)) is not None:
        try:
            topic_path = TopicName.parse(compacted).path
        except UsageError:
            return Owner(COMPACTION, compacted), ()
        return Owner(COMPACTION, compacted), (f"{MANAGED_LEDGERS}/{topic_path}",)
    return Owner(APPLICATION, "pulsar"), ()
