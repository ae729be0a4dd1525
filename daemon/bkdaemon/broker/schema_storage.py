"""Schemas of topics: a ledger for each version, and a node that lists them. Source: BookkeeperSchemaStorage.java."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkctl.codec.managed_ledger import SchemaIndex, decode_schema_entry, encode_schema_entry
from bkctl.codec.schema_record import SchemaRecord, decode_schema, encode_schema
from bkctl.errors import AlreadyExists, BkctlError, Conflict
from bkctl.model.topic import Position
from bkdaemon.broker.backend import StoredSchema
from bkdaemon.broker.recovered import create_with_marks, delete_ledger

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.meta.topics import TopicStore
    from bkctl.model.topic import TopicName
    from bkctl.world import World
    from bkdaemon.broker.ledger_settings import LedgerSettings


class SchemaStorage:
    """Reads and adds versions of schemas; partitions share those of their topic."""

    def __init__(self, bookkeeper: BookKeeper, topics: TopicStore, world: World, settings: LedgerSettings) -> None:
        self._bookkeeper = bookkeeper
        self._topics = topics
        self._world = world
        self._settings = settings

    async def get(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        """A version of a topic's schema, or the latest; None where there is none, or it was deleted."""
        versions, _ = await self._topics.schema_versions(topic)
        wanted = versions[-1:] if version is None else [v for v in versions if v.version == version]
        return await self._read(topic, wanted[0]) if wanted else None

    async def all(self, topic: TopicName) -> list[StoredSchema]:
        """Every version that was not deleted, oldest first."""
        versions, _ = await self._topics.schema_versions(topic)
        found = [await self._read(topic, index) for index in versions]
        return [schema for schema in found if schema is not None]

    async def _read(self, topic: TopicName, index: SchemaIndex) -> StoredSchema | None:
        reader = await self._bookkeeper.open(index.position.ledger_id, self._settings.password)
        entry = await reader.read_entry(index.position.entry_id)
        source = f"ledger {index.position.ledger_id}"
        record = decode_schema(decode_schema_entry(bytes(entry.payload), source=source), source=source)
        if record.deleted:
            return None
        return StoredSchema(index.version, record.type, record.data, dict(record.properties), topic.partitioned.local)

    async def add(self, topic: TopicName, schema: StoredSchema, after: int) -> StoredSchema:
        """Stores a schema as the version behind `after` (-1: the first).

        Raises:
            Conflict: there is another version by now; ask again.
        """
        versions, stored = await self._topics.schema_versions(topic)
        if (versions[-1].version if versions else -1) != after:
            raise Conflict(f"{topic} has another schema by now", topic=str(topic))
        schema_id = f"{topic.namespace_name}/{topic.partitioned.local}"
        data = encode_schema(
            SchemaRecord(schema_id, schema.type, schema.data, self._world.clock.now_ms(), schema.properties)
        )
        position = await self._write(schema_id, data, versions)
        index = [*versions, SchemaIndex(after + 1, position, hashlib.sha256(schema.data).digest())]
        try:
            await self._topics.write_schema_versions(topic, index, stored)
        except (Conflict, AlreadyExists) as e:
            await delete_ledger(self._bookkeeper, position.ledger_id)
            raise Conflict(f"{topic} has another schema by now", topic=str(topic)) from e
        return schema._replace(version=after + 1)

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
        """Forgets every version, with its ledger."""
        versions, _ = await self._topics.schema_versions(topic)
        await self._topics.delete_schema(topic)
        for index in versions:
            await delete_ledger(self._bookkeeper, index.position.ledger_id)
