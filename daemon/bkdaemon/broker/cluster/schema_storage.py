"""Schemas of topics: a ledger for each version, and a node that lists them. Source: BookkeeperSchemaStorage.java."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bkctl.codec.managed_ledger import SchemaIndex, decode_schema_entry, encode_schema_entry
from bkctl.codec.schema_record import SchemaRecord, decode_schema, encode_schema
from bkctl.errors import AlreadyExists, BkctlError, Conflict
from bkctl.log.recovered import create_with_marks, delete_ledger
from bkctl.model.topic import Position
from bkdaemon.broker.topic.backend import StoredSchema
from bkdaemon.broker.topic.compatibility import BYTES

DELETED_HASH: Final = b""
"""Hash in the record of a deletion, as Java writes it."""

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.log.settings import LedgerSettings
    from bkctl.meta.store import Version
    from bkctl.meta.topics import TopicStore
    from bkctl.model.topic import TopicName
    from bkctl.world import World


class SchemaStorage:
    """Reads and adds versions of schemas; partitions share those of their topic."""

    def __init__(self, bookkeeper: BookKeeper, topics: TopicStore, world: World, settings: LedgerSettings) -> None:
        self._bookkeeper = bookkeeper
        self._topics = topics
        self._world = world
        self._settings = settings

    async def get(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        """Returns a version of a topic's schema, or the latest; None if it does not exist, or was deleted."""
        versions, _ = await self._topics.schema_versions(topic)
        following = versions[-1:] if version is None else [v for v in versions if v.version >= version]
        found = await self._live(topic, following)
        return found[0] if found and version in (None, found[0].version) else None

    async def all(self, topic: TopicName) -> list[StoredSchema]:
        """Returns every version since the last deletion of the schema, oldest first."""
        versions, _ = await self._topics.schema_versions(topic)
        return await self._live(topic, versions)

    async def _live(self, topic: TopicName, versions: Sequence[SchemaIndex]) -> list[StoredSchema]:
        found: list[StoredSchema] = []
        for index in versions:
            schema = await self._read(topic, index)
            found = [] if schema is None else [*found, schema]
        return found

    async def _read(self, topic: TopicName, index: SchemaIndex) -> StoredSchema | None:
        reader = await self._bookkeeper.open(index.position.ledger_id, self._settings.password)
        entry = await reader.read_entry(index.position.entry_id)
        source = f"ledger {index.position.ledger_id}"
        record = decode_schema(decode_schema_entry(bytes(entry.payload), source=source), source=source)
        if record.deleted:
            return None
        properties, name = dict(record.properties), topic.partitioned.local
        return StoredSchema(index.version, record.type, record.data, properties, name, record.timestamp_ms)

    async def add(self, topic: TopicName, schema: StoredSchema, after: int) -> StoredSchema:
        """Stores a schema as the version after `after` (-1: the first); deletions do not count as versions.

        Raises:
            Conflict: there is another version by now; ask again.
        """
        versions, stored = await self._topics.schema_versions(topic)
        live = await self._live(topic, versions)
        if (live[-1].version if live else -1) != after:
            raise Conflict(f"{topic} has another schema by now", topic=str(topic))
        schema_id = f"{topic.namespace_name}/{topic.partitioned.local}"
        now_ms = self._world.clock.now_ms()
        record = SchemaRecord(schema_id, schema.type, schema.data, now_ms, schema.properties)
        version = await self._append(topic, record, versions, stored)
        return schema._replace(version=version, timestamp_ms=now_ms)

    async def mark_deleted(self, topic: TopicName) -> int:
        """Adds a version that says that the schema is deleted, and returns its number.

        Raises:
            Conflict: there is another version by now; ask again.
        """
        versions, stored = await self._topics.schema_versions(topic)
        schema_id = f"{topic.namespace_name}/{topic.partitioned.local}"
        record = SchemaRecord(schema_id, BYTES, b"", self._world.clock.now_ms(), deleted=True)
        return await self._append(topic, record, versions, stored)

    async def _append(
        self, topic: TopicName, record: SchemaRecord, versions: Sequence[SchemaIndex], stored: Version | None
    ) -> int:
        """Writes a record as the next version."""
        version = versions[-1].version + 1 if versions else 0
        position = await self._write(record.schema_id, encode_schema(record), versions)
        digest = DELETED_HASH if record.deleted else hashlib.sha256(record.data).digest()
        index = [*versions, SchemaIndex(version, position, digest)]
        try:
            await self._topics.write_schema_versions(topic, index, stored)
        except (Conflict, AlreadyExists) as e:
            await delete_ledger(self._bookkeeper, position.ledger_id)
            raise Conflict(f"{topic} has another schema by now", topic=str(topic)) from e
        return version

    async def _write(self, schema_id: str, data: bytes, versions: Sequence[SchemaIndex]) -> Position:
        marks = {"component": "schema", "pulsar/schemaId": schema_id}
        writer = await create_with_marks(self._bookkeeper, self._settings, marks)
        try:
            entry_id = writer.append(encode_schema_entry(data, versions))
            await writer.close()
        except BkctlError:
            await delete_ledger(self._bookkeeper, writer.ledger_id)
            raise
        return Position(writer.ledger_id, entry_id)

    async def delete(self, topic: TopicName) -> None:
        """Deletes every version, with its ledger."""
        versions, _ = await self._topics.schema_versions(topic)
        await self._topics.delete_schema(topic)
        for index in versions:
            await delete_ledger(self._bookkeeper, index.position.ledger_id)
