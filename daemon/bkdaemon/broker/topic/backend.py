"""What the protocol's half of the broker asks of the other: who owns a topic, its log, its rules, its names.

The server, its topics and subscriptions know no metadata store and no bookie; they are handed a Backend. The broker's
own is made of ownership, policies and managed ledgers; tests hand in one that lives in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.rules import TopicRules


class Lookup(NamedTuple):
    """Where a topic is served: connect there, or (redirect) ask there again with this `authoritative`."""

    broker_url: str
    broker_url_tls: str | None = None
    redirect: bool = False
    authoritative: bool = True


class StoredSchema(NamedTuple):
    """One version of a topic's schema; type is the number of the wire."""

    version: int
    type: int
    data: bytes
    properties: dict[str, str]
    name: str = ""
    timestamp_ms: int = 0


class Backend(Protocol):
    """The broker below the protocol. A topic is always one log: a partition, or a topic that has none."""

    max_message_size: int
    server_version: str

    @property
    def unconfirmed_bytes(self) -> int:
        """Of what was added to all logs and is not safe yet."""

    async def lookup(self, topic: TopicName, *, authoritative: bool) -> Lookup:
        """Returns the owner of a topic; takes the topic over if it has none.

        Raises:
            NotFound: there is no such namespace. Unavailable: no broker can take it now.
        """

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """How many partitions a topic has, 0 if it is not partitioned; made now if create and rules allow it.

        Raises:
            NotFound: no such topic, and it may not be made; or no such namespace.
        """

    async def check_owned(self, topic: TopicName) -> None:
        """Returns if this broker owns the topic's bundle.

        Raises:
            Unavailable: another broker owns it, or none; look it up again.
        """

    async def open_ledger(self, topic: TopicName, *, create: bool) -> ManagedLedger:
        """Opens the topic's log, which fences every other writer.

        Raises:
            NotFound: it is not there and create is false. Unavailable, Conflict, ServerError: it cannot be opened now.
        """

    async def rules(self, topic: TopicName) -> TopicRules:
        """What holds for a topic now."""

    async def check_namespace(self, namespace: str) -> None:
        """Returns if there is such a namespace. Raises: NotFound, there is not."""

    async def topics(self, namespace: str) -> list[str]:
        """Full names of the persistent topics of a namespace, partitions singly; [] if there is no such namespace."""

    def watch_topics(self, namespace: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls changed when topics may have come or gone, until the function it returns is called."""

    def producer_name(self) -> str:
        """A name for a producer that has none, unique in the cluster."""

    async def schema(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        """Returns a version of a topic's schema, or the latest; None if it does not exist."""

    async def schemas(self, topic: TopicName) -> list[StoredSchema]:
        """All versions, oldest first."""

    async def add_schema(self, topic: TopicName, schema: StoredSchema, after: int) -> StoredSchema:
        """Stores a schema as the version behind `after` (-1: the first) and returns it with its version.

        Raises:
            Conflict: there is another version by now; ask again.
        """
