"""The least that a broker's protocol half needs below it: one owner of everything, partitions and schemas in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.backend import Lookup, StoredSchema

from bkctl.errors import Conflict, NotFound
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext
from bkctl.log.settings import LedgerSettings
from bkctl.model.topic import TopicName

SETTINGS = LedgerSettings(mark_delete_rate=0, retention_check_s=1e6, retention_s=-1, retention_bytes=-1)


class SoleBackend:
    """A broker that is alone. `url` is filled in once its port is known.

    Args:
        namespaces: those there are.
        rules: what holds for every topic; `topic_rules` has those of single topics.
    """

    def __init__(
        self,
        context: LedgerContext,
        *,
        settings: LedgerSettings = SETTINGS,
        rules: TopicRules | None = None,
        max_message_size: int = 5 * 1024 * 1024,
        namespaces: tuple[str, ...] = ("public/default",),
    ) -> None:
        self.max_message_size = max_message_size
        self.server_version = "bkctl test"
        self.url = "pulsar://127.0.0.1:0"
        self.rules_now = rules or TopicRules()
        self.topic_rules: dict[str, dict[str, object]] = {}
        self.namespaces = set(namespaces)
        self.partitioned: dict[TopicName, int] = {}
        self.known: set[TopicName] = set()
        self.owned: Callable[[TopicName], bool] = lambda topic: True
        self._context = context
        self._settings = settings
        self._numbers = itertools.count()
        self._schemas: dict[TopicName, list[StoredSchema]] = {}
        self._watchers: list[tuple[str, Callable[[], None]]] = []

    @property
    def unconfirmed_bytes(self) -> int:
        return self._context.cache.unconfirmed_bytes

    async def lookup(self, topic: TopicName, *, authoritative: bool) -> Lookup:
        if topic.namespace_name not in self.namespaces:
            raise NotFound("Namespace not found")
        return Lookup(self.url)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        if topic.namespace_name not in self.namespaces:
            raise NotFound("Namespace not found")
        if topic in self.partitioned:
            return self.partitioned[topic]
        rules = await self.rules(topic)
        exists = topic in self.known
        if not exists and topic.partition >= 0 and self.partitioned.get(topic.partitioned, 0) <= topic.partition:
            raise NotFound("")
        if not exists and not (create and rules.auto_create_topic):
            raise NotFound("")
        if not exists and rules.auto_partitions and topic.partition < 0:
            self.partitioned[topic] = rules.auto_partitions
            return rules.auto_partitions
        return 0

    async def check_owned(self, topic: TopicName) -> None:
        if not self.owned(topic):
            raise Conflict(f"{topic} is not served here")

    async def open_ledger(self, topic: TopicName, *, create: bool) -> ManagedLedger:
        log = await ManagedLedger.open(self._context, topic.path, self._settings, create=create)
        if topic not in self.known:
            self.known.add(topic)
            for namespace, changed in list(self._watchers):
                if namespace == topic.namespace_name:
                    changed()
        return log

    async def rules(self, topic: TopicName) -> TopicRules:
        return replace(self.rules_now, **self.topic_rules.get(topic.local, {}))  # type: ignore[arg-type]

    async def check_namespace(self, namespace: str) -> None:
        if namespace not in self.namespaces:
            raise NotFound("")

    async def topics(self, namespace: str) -> list[str]:
        return sorted(str(t) for t in self.known if t.namespace_name == namespace)

    def watch_topics(self, namespace: str, changed: Callable[[], None]) -> Callable[[], None]:
        entry = (namespace, changed)
        self._watchers.append(entry)
        return lambda: self._watchers.remove(entry)

    def producer_name(self) -> str:
        return f"test-0-{next(self._numbers)}"

    async def schema(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        stored = self._schemas.get(topic, [])
        if version is None:
            return stored[-1] if stored else None
        return stored[version] if 0 <= version < len(stored) else None

    async def schemas(self, topic: TopicName) -> list[StoredSchema]:
        return list(self._schemas.get(topic, []))

    async def add_schema(self, topic: TopicName, schema: StoredSchema, after: int) -> StoredSchema:
        stored = self._schemas.setdefault(topic, [])
        if len(stored) - 1 != after:
            raise Conflict("another schema was stored meanwhile")
        stored.append(schema._replace(version=after + 1))
        return stored[-1]
