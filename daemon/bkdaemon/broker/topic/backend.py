"""The interface between the protocol's half of the broker and the other: owners, logs, rules and names of topics.

The server, its topics and subscriptions use no metadata store and no bookie but a Backend. The broker's own Backend
consists of ownership, policies and managed ledgers; tests use one in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.rules import TopicRules


class Lookup(NamedTuple):
    """The broker that serves a topic, or (redirect) that answers the lookup with this value of `authoritative`."""

    broker_url: str
    broker_url_tls: str | None = None
    redirect: bool = False
    authoritative: bool = True


class StoredSchema(NamedTuple):
    """One version of a topic's schema; type is its number in the protocol."""

    version: int
    type: int
    data: bytes
    properties: dict[str, str]
    name: str = ""
    timestamp_ms: int = 0


class Backend(Protocol):
    """The broker below the protocol. A topic here is one log: a partition, or a topic without partitions."""

    max_message_size: int
    server_version: str

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes added to all logs that are not stored yet."""

    async def lookup(self, topic: TopicName, *, authoritative: bool) -> Lookup:
        """Returns the owner of a topic; acquires the topic if it has none.

        Raises:
            NotFound: the namespace does not exist. Unavailable: no broker can acquire it now.
        """

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Returns the number of partitions, 0 for a topic without; creates the topic if create and its rules allow it.

        Raises:
            NotFound: the topic does not exist and is not created, or the namespace does not exist.
        """

    async def check_owned(self, topic: TopicName) -> None:
        """Checks that this broker owns the topic's bundle.

        Raises:
            Unavailable, Conflict: it does not; the client has to repeat its lookup.
        """

    async def open_ledger(self, topic: TopicName, *, create: bool) -> ManagedLedger:
        """Opens the topic's log, which fences every other writer.

        Raises:
            NotFound: it does not exist and create is false.
            Unavailable, Conflict, ServerError: it cannot be opened now.
        """

    async def rules(self, topic: TopicName) -> TopicRules:
        """Returns the rules of a topic that are in effect now."""

    async def check_namespace(self, namespace: str) -> None:
        """Checks that a namespace exists.

        Raises:
            NotFound: it does not exist.
        """

    async def topics(self, namespace: str) -> list[str]:
        """Returns the names of the persistent topics and partitions of a namespace; [] if it does not exist."""

    def watch_topics(self, namespace: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls changed when topics may be created or deleted; returns a function that stops this."""

    def producer_name(self) -> str:
        """Returns a producer name that is unique in the cluster."""

    async def schema(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        """Returns a version of a topic's schema, or the latest; None if it does not exist."""

    async def schemas(self, topic: TopicName) -> list[StoredSchema]:
        """Returns all versions of a topic's schema, oldest first."""

    async def add_schema(self, topic: TopicName, schema: StoredSchema, after: int) -> StoredSchema:
        """Stores a schema as the version after `after` (-1: the first) and returns it with its version.

        Raises:
            Conflict: that version exists by now.
        """
