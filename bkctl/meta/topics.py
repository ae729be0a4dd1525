"""Topics in the metadata store: those with a managed ledger, partitioned ones, and their schemas.

    /managed-ledgers/tenant/namespace/persistent/topic           a topic, or one partition
    /admin/partitioned-topics/tenant/namespace/domain/topic      {"partitions": n, "deleted": false}
    /schemas/tenant/namespace/topic                              SchemaLocator: the versions of a topic's schema

Source: TopicResources.java, NamespaceResources.java, BookkeeperSchemaStorage.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bkctl.codec.managed_ledger import SchemaIndex, decode_schema_locator, encode_schema_locator
from bkctl.errors import AlreadyExists, NotFound
from bkctl.meta.documents import Document, Json, encode_json, read_document, update_document
from bkctl.meta.managed_ledgers import ROOT as MANAGED_LEDGERS
from bkctl.meta.store import FIRST_VERSION, MetadataStore, Version
from bkctl.model.topic import NON_PERSISTENT, PERSISTENT, TopicName, decode_name

PARTITIONED_TOPICS: Final = "/admin/partitioned-topics"
SCHEMAS: Final = "/schemas"


class TopicStore:
    """The existing topics, without their content."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    # -- topics -----------------------------------------------------------------------------------------------------

    async def topics(self, namespace: str) -> list[TopicName]:
        """The persistent topics of a namespace, partitions by their own names, sorted."""
        tenant, _, local = namespace.partition("/")
        names = await self._children(f"{MANAGED_LEDGERS}/{namespace}/{PERSISTENT}")
        return sorted(TopicName(PERSISTENT, tenant, local, decode_name(name)) for name in names)

    async def exists(self, topic: TopicName) -> bool:
        """True if a persistent topic, or partition, has a managed ledger."""
        return await self.store.exists(f"{MANAGED_LEDGERS}/{topic.path}") is not None

    # -- partitioned topics -------------------------------------------------------------------------------------------

    def _partitioned(self, topic: TopicName) -> str:
        return f"{PARTITIONED_TOPICS}/{topic.path}"

    async def partitions(self, topic: TopicName) -> int:
        """The number of partitions of a topic; 0 if it is not partitioned."""
        found = await self.partitioned(topic)
        return 0 if found is None else int(found.value.get("partitions", 0))

    async def partitioned(self, topic: TopicName) -> Document | None:
        """The stored object of a partitioned topic."""
        return await read_document(self.store, self._partitioned(topic))

    async def partitioned_topics(self, namespace: str, domain: str = PERSISTENT) -> list[TopicName]:
        """The partitioned topics of a namespace, sorted."""
        tenant, _, local = namespace.partition("/")
        names = await self._children(f"{PARTITIONED_TOPICS}/{namespace}/{domain}")
        return sorted(TopicName(domain, tenant, local, decode_name(name)) for name in names)

    async def create_partitioned(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Creates a partitioned topic; its partitions are created when they are first used.

        Raises:
            AlreadyExists: it is there.
        """
        value: Json = {"partitions": partitions}
        if properties:
            value["properties"] = dict(properties)
        value["deleted"] = False
        try:
            await self.store.create(self._partitioned(topic), encode_json(value), parents=True)
        except AlreadyExists:
            raise AlreadyExists(f"partitioned topic {topic} exists already", topic=str(topic)) from None

    async def update_partitions(self, topic: TopicName, partitions: int) -> int:
        """Raises the number of partitions and returns the old one. NotFound where it is not partitioned."""
        before = 0

        def change(old: Json) -> Json:
            nonlocal before
            before = int(old.get("partitions", 0))
            return old | {"partitions": partitions}

        await update_document(self.store, self._partitioned(topic), change)
        return before

    async def update_properties(self, topic: TopicName, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Changes the properties of a partitioned topic. NotFound where it is not partitioned."""
        await update_document(
            self.store,
            self._partitioned(topic),
            lambda old: old | {"properties": change(dict(old.get("properties") or {}))},
        )

    async def delete_partitioned(self, topic: TopicName) -> None:
        """Deletes the partitioned topic's node; no error if it does not exist."""
        found = await self.partitioned(topic)
        if found is not None:
            await self.store.delete(self._partitioned(topic), found.version)

    # -- schemas ----------------------------------------------------------------------------------------------------

    def schema_path(self, topic: TopicName) -> str:
        """Where the versions of a topic's schema are listed; partitions share that of their topic."""
        whole = topic.partitioned
        return f"{SCHEMAS}/{whole.tenant}/{whole.namespace}/{whole.encoded_local}"

    async def schema_versions(self, topic: TopicName) -> tuple[list[SchemaIndex], Version | None]:
        """All versions, ascending, with the version of the node; None if the node does not exist."""
        path = self.schema_path(topic)
        try:
            node = await self.store.get(path)
        except NotFound:
            return [], None
        return decode_schema_locator(node.data, source=path), node.stat.version

    async def write_schema_versions(
        self, topic: TopicName, index: Sequence[SchemaIndex], version: Version | None
    ) -> Version:
        """Stores all versions if they have not changed since they were read; version None creates the node.

        Raises:
            Conflict, AlreadyExists: they have changed; read and decide again.
        """
        path, data = self.schema_path(topic), encode_schema_locator(index)
        if version is None:
            await self.store.create(path, data, parents=True)
            return FIRST_VERSION
        return await self.store.set(path, data, version)

    async def delete_schema(self, topic: TopicName) -> None:
        """Deletes a topic's schemas; no error if it has none."""
        path = self.schema_path(topic)
        stat = await self.store.exists(path)
        if stat is not None:
            await self.store.delete(path, stat.version)

    # -- all together -------------------------------------------------------------------------------------------------

    async def all_topics(self, namespace: str) -> list[tuple[TopicName, int]]:
        """(topic, partitions) of a namespace, sorted: a partitioned topic once, without its partitions."""
        wholes = {}
        for domain in (PERSISTENT, NON_PERSISTENT):
            for topic in await self.partitioned_topics(namespace, domain):
                wholes[topic] = await self.partitions(topic)
        single = [(t, 0) for t in await self.topics(namespace) if t.partition < 0 or t.partitioned not in wholes]
        return sorted([*wholes.items(), *((t, n) for t, n in single if t not in wholes)])

    async def _children(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NotFound:
            return []
