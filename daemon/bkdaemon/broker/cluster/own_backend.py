"""The broker's own Backend: ownership, policies, managed ledgers, schemas and names, all in one metadata store.

Topics are created here: a topic's node when its log is first opened, a partitioned topic's node when a client requests
it for the first time and the rules allow it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from bkinspect.topic_policies import TopicPolicyReader
from bkrecovery.ledger import recover_ledger

from bkctl.errors import AlreadyExists, BkctlError, NotFound, Refused
from bkctl.log.cache import EntryCache
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext
from bkctl.meta.managed_ledgers import ROOT
from bkctl.meta.pulsar import Stores
from bkdaemon.broker.cluster.ownership import BrokerAddress, Ownership
from bkdaemon.broker.cluster.policies import TopicPolicies
from bkdaemon.broker.cluster.schema_storage import SchemaStorage
from bkdaemon.broker.config import MIB, BrokerConfig
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.backend import Lookup, StoredSchema

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.meta.store import MetadataStore, WatchEvent
    from bkctl.model.topic import TopicName
    from bkctl.world import World

WATCH_RETRY_S: Final = 1.0
PULSAR_VERSION: Final = "4.0.7"
"""Version of the Java broker that this broker corresponds to."""
SERVER_VERSION: Final = f"Pulsar Server {PULSAR_VERSION} (bkctl)"

_log = logging.getLogger(__name__)


class OwnBackend:
    """One broker's Backend. `start` makes it serve."""

    server_version = SERVER_VERSION

    def __init__(
        self, config: BrokerConfig, store: MetadataStore, bookkeeper: BookKeeper, address: BrokerAddress, world: World
    ) -> None:
        self.config = config
        self.max_message_size = config.max_message_size
        self.meta = Stores.of(store)
        self.ownership = Ownership(store, address, config.cluster)
        self.ownership.overloaded = config.overloaded_percentage / 100
        self.policies = TopicPolicies(config, self.meta.namespaces, TopicPolicyReader(bookkeeper, self.meta.ledgers))
        cache = EntryCache(config.cache_mb * MIB, max(config.cache_mb * MIB // 2, MIB))
        self.context = LedgerContext(bookkeeper, self.meta.ledgers, cache, world, recover_ledger)
        self.schema_storage = SchemaStorage(bookkeeper, self.meta.topics, world, config.ledger_settings)
        self._instance = 0
        self._names = count()
        self._watches: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Registers the broker.

        Raises:
            Unavailable: the store does not answer.
        """
        self._instance = await self.ownership.brokers.next_instance()
        await self.ownership.start()

    async def stop(self) -> None:
        """Unregisters it; topics are closed before."""
        for task in list(self._watches):
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self.ownership.stop()
        self.context.workers.close()

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes of entries that were added to all logs and are not confirmed yet."""
        return self.context.cache.unconfirmed_bytes

    # -- where topics are --

    async def lookup(self, topic: TopicName, *, authoritative: bool) -> Lookup:
        """Returns the owner of a topic; takes the topic over if it has none."""
        return await self.ownership.lookup(topic, authoritative=authoritative)

    async def check_owned(self, topic: TopicName) -> None:
        """Returns if this broker owns the topic's bundle."""
        await self.ownership.check_owned(topic)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Returns the number of partitions, 0 if the topic is not partitioned; creates it if create and rules allow it.

        Raises:
            NotFound: the topic does not exist and may not be created; or the namespace does not exist.
        """
        await self.policies.of(topic.namespace_name)
        topics = self.meta.topics
        if topic.partition >= 0:
            whole = await topics.partitions(topic.partitioned)
            if topic.partition < whole or (topic.persistent and await topics.exists(topic)):
                return 0
            if whole or not create or not (await self.rules(topic)).auto_create_topic:
                raise NotFound(f"topic {topic} does not exist", topic=str(topic))
            return 0  # a topic of its own, whatever it is called
        found = await topics.partitions(topic)
        if found or not topic.persistent or await topics.exists(topic):
            return found
        rules = await self.rules(topic)
        if not create or not rules.auto_create_topic:
            raise NotFound(f"topic {topic} does not exist", topic=str(topic))
        if rules.auto_partitions:
            try:
                await topics.create_partitioned(topic, rules.auto_partitions)
            except AlreadyExists:
                return await topics.partitions(topic)
        return rules.auto_partitions

    async def check_room(self, topic: TopicName, count: int = 1) -> None:
        """Returns if the topic's namespace may have this many topics more.

        Raises:
            Refused: it would have too many. NotFound: the namespace does not exist.
        """
        most = await self.policies.topics_max(topic.namespace_name)
        if most <= 0 or topic.local.startswith("__"):
            return
        there = [one for one in await self.meta.topics.topics(topic.namespace_name) if not one.local.startswith("__")]
        if len(there) + count > most:
            raise Refused("Exceed maximum number of topics in namespace.", topic=str(topic))

    # -- topics --

    async def open_ledger(self, topic: TopicName, *, create: bool) -> ManagedLedger:
        """Opens the topic's log, which fences every other writer.

        Raises:
            NotFound: it does not exist and create is false. Unavailable, Conflict, ServerError: it cannot be opened.
        """
        if create and not await self.meta.topics.exists(topic):
            await self._check_kept(topic)
            await self.check_room(topic)
        settings = await self.policies.ledger_settings(topic)
        return await ManagedLedger.open(self.context, topic.path, settings, create=create)

    async def _check_kept(self, topic: TopicName) -> None:
        """Returns if the topic's namespace exists and is not being deleted, read again as another broker may delete it.

        Raises:
            NotFound: it is being deleted, or does not exist.
        """
        if (await self.meta.namespaces.policies(topic.namespace_name)).get("deleted"):
            raise NotFound(f"the namespace of {topic} is being deleted", topic=str(topic))

    async def rules(self, topic: TopicName) -> TopicRules:
        """Return the rules of a topic."""
        return await self.policies.rules(topic)

    async def check_namespace(self, namespace: str) -> None:
        """Returns if the namespace exists. Raises: NotFound if it does not exist."""
        await self.policies.of(namespace)

    async def topics(self, namespace: str) -> list[str]:
        """Returns the full names of a namespace's persistent topics, with each partition; [] if it does not exist."""
        return [str(topic) for topic in await self.meta.topics.topics(namespace)]

    def watch_topics(self, namespace: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls changed when topics may have been created or deleted, until the returned function is called."""
        task = asyncio.create_task(self._watch(namespace, changed), name=f"topics of {namespace}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

        def stop() -> None:
            task.cancel()

        return stop

    async def _watch(self, namespace: str, changed: Callable[[], None]) -> None:
        path = f"{ROOT}/{namespace}/persistent"
        event = asyncio.Event()

        def fired(_: WatchEvent) -> None:
            event.set()

        while True:
            event.clear()
            try:
                try:
                    cancel = await self.meta.store.watch_children(path, fired)
                except NotFound:
                    cancel = await self.meta.store.watch_data(path, fired)
            except BkctlError as e:
                _log.info("topics of %s cannot be watched: %s", namespace, e)
                await asyncio.sleep(WATCH_RETRY_S)
                continue
            try:
                await event.wait()
            finally:
                cancel()
            changed()

    # -- names and schemas --

    def producer_name(self) -> str:
        """Returns a name for a producer without one, unique in the cluster."""
        return f"{self.config.cluster}-{self._instance}-{next(self._names)}"

    async def schema(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        """Returns a version of a topic's schema, or the latest; None if it does not exist."""
        return await self.schema_storage.get(topic, version)

    async def schemas(self, topic: TopicName) -> list[StoredSchema]:
        """Returns all versions, oldest first."""
        return await self.schema_storage.all(topic)

    async def add_schema(self, topic: TopicName, schema: StoredSchema, after: int) -> StoredSchema:
        """Stores a schema as the version after `after` (-1: the first) and returns it with its version.

        Raises:
            Conflict: another version was added meanwhile; retry.
        """
        return await self.schema_storage.add(topic, schema, after)
