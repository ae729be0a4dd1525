"""The producers of one topic: their names and access modes.

    Shared                  with other shared ones; refused while one is exclusive or waits to become it
    Exclusive               the only one, or refused
    WaitForExclusive        the only one, or queued until the others are closed
    ExclusiveWithFencing    the only one at once: the others are removed, their next message closes their connection

An exclusive producer raises the topic's epoch, which is stored before the producer gets it; a producer that
reconnects with an older epoch is fenced. Source: AbstractTopic.java (incrementTopicEpochIfNeeded, addProducer).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from bkctl.codec.pulsar import AccessMode, ErrorCode
from bkctl.errors import BkctlError
from bkdaemon.broker.dispatch.consumer import ClientLink
from bkdaemon.broker.refusal import Refusal

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkctl.protocol.broker import Send
    from bkdaemon.broker.dispatch.throttle import TopicLimits
    from bkdaemon.broker.rules import TopicRules

WAITING_MAX: Final = 1000
"""Producers of one topic that wait to become exclusive."""


class ProducerLink(ClientLink, Protocol):
    """The connection of a producer.

    Attributes:
        pending: unconfirmed sends of all its producers.
    """

    pending: int

    def forget_producer(self, producer: Producer, *, closed_by_broker: bool = False) -> None:
        """Removes a producer; its further sends are ignored for a while if it was notified."""

    def producer_ready(self, producer: Producer) -> None:
        """Sends PRODUCER_SUCCESS to a producer."""

    def error_for(self, request_id: int) -> Callable[[ErrorCode, str], None]:
        """Returns a function that sends an ERROR for a request."""

    def confirmed(self, sends: int) -> None:
        """Counts sends whose receipts are sent."""


class ProducedTopic(Protocol):
    """The topic of a producer, persistent or not."""

    name: TopicName
    producers: ProducerTable
    limits: TopicLimits
    closed: bool

    @property
    def rules(self) -> TopicRules:
        """The rules in effect now."""

    @property
    def congested(self) -> bool:
        """True while its ledger accepts no more."""

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the highest sequence id known to be stored, or -1."""

    def publish(self, producer: Producer, sends: list[Send], size: int) -> None:
        """Adds sends of a producer; receipts and errors follow in their order."""

    def answer_in_order(self, producer: Producer, answer: bytes) -> None:
        """Sends a reply after the receipts of the producer's earlier sends."""

    async def add_producer(self, producer: Producer) -> None:
        """Adds a producer; it is ready, or waits to become exclusive."""

    async def remove_producer(self, producer: Producer) -> None:
        """Removes a producer; the first waiting one may be admitted and notified."""


class Producer:
    """One producer of one connection.

    Attributes:
        ready: it may send; false while it waits to become exclusive.
        gone: closed, fenced, or disconnected.
        pending: its unconfirmed sends.
    """

    __slots__ = (
        "__weakref__",
        "bytes_in",
        "chunks_in",
        "connected_since_ms",
        "connection",
        "encrypted",
        "epoch",
        "generated_name",
        "gone",
        "messages_in",
        "metadata",
        "mode",
        "name",
        "pending",
        "producer_id",
        "ready",
        "request_id",
        "schema_version",
        "topic",
        "topic_epoch",
    )

    def __init__(
        self,
        connection: ProducerLink,
        topic: ProducedTopic,
        producer_id: int,
        name: str,
        *,
        generated_name: bool = False,
        mode: int = AccessMode.SHARED,
        epoch: int = 0,
        topic_epoch: int | None = None,
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.producer_id = producer_id
        self.name = name
        self.generated_name = generated_name
        self.mode = mode
        self.epoch = epoch
        self.topic_epoch = topic_epoch
        self.request_id = 0
        self.schema_version = b""
        self.encrypted = False
        self.metadata: dict[str, str] = {}
        self.ready = False
        self.gone = False
        self.pending = 0
        self.messages_in = 0
        self.bytes_in = self.chunks_in = 0
        self.connected_since_ms = 0


class ProducerTable:
    """The producers of a topic, and those that wait to become exclusive.

    Args:
        topic: its name, for errors.
        epoch: the stored epoch of the topic, or None.
        store_epoch: stores a new epoch.
    """

    def __init__(self, topic: str, epoch: int | None, store_epoch: Callable[[int], Awaitable[None]]) -> None:
        self.by_name: dict[str, Producer] = {}
        self.epoch = epoch
        self._topic = topic
        self._store_epoch = store_epoch
        self._exclusive: Producer | None = None
        self._waiting: deque[Producer] = deque()

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def waiting(self) -> int:
        """Number of producers that wait to become exclusive."""
        return len(self._waiting)

    async def admit(self, producer: Producer) -> None:
        """Adds a producer: it is `ready` afterwards, or waits.

        Raises:
            Refusal: PRODUCER_BUSY or PRODUCER_FENCED.
        """
        if producer.mode == AccessMode.SHARED:
            self._admit_shared(producer)
        elif producer.mode == AccessMode.EXCLUSIVE_WITH_FENCING:
            self._check_epoch(producer)
            for fenced in self.by_name.values():
                fenced.gone = True
                fenced.connection.forget_producer(fenced)
            self.by_name.clear()
            self.refuse_waiting(ErrorCode.PRODUCER_FENCED, "Fenced out")
            self._exclusive = None
            await self._grant(producer)
        elif producer.mode == AccessMode.WAIT_FOR_EXCLUSIVE and (self.by_name or self._waiting):
            if len(self._waiting) >= WAITING_MAX:
                raise Refusal(
                    ErrorCode.PRODUCER_BUSY, f"Too many producers are waiting for topic '{self._topic}': {WAITING_MAX}"
                )
            self._waiting.append(producer)
        else:
            if self.by_name or self._waiting:
                raise Refusal(ErrorCode.PRODUCER_FENCED, self._others())
            self._check_epoch(producer)
            await self._grant(producer)

    def _check_epoch(self, producer: Producer) -> None:
        """Raises Refusal (PRODUCER_FENCED) if another producer was exclusive after this one."""
        if producer.topic_epoch is not None and self.epoch is not None and producer.topic_epoch < self.epoch:
            raise Refusal(
                ErrorCode.PRODUCER_FENCED,
                f"Topic epoch has already moved. Current epoch: {self.epoch}, Producer epoch: {producer.topic_epoch}",
            )

    def _admit_shared(self, producer: Producer) -> None:
        if self._exclusive is not None or self._waiting:
            raise Refusal(ErrorCode.PRODUCER_BUSY, self._others())
        most = producer.topic.rules.same_address_producers_max
        if 0 < most <= sum(p.connection.address == producer.connection.address for p in self.by_name.values()):
            raise Refusal(ErrorCode.PRODUCER_BUSY, f"Topic '{self._topic}' reached max same address producers limit")
        other = self.by_name.get(producer.name)
        if other is not None and not other.gone:
            raise Refusal(
                ErrorCode.PRODUCER_BUSY,
                f"Producer with name '{producer.name}' is already connected to topic '{self._topic}'",
            )
        self.by_name[producer.name] = producer
        producer.ready = True

    def _others(self) -> str:
        if self._exclusive is not None or self._waiting:
            name = self._exclusive.name if self._exclusive is not None else "null"
            return f"Topic has an existing exclusive producer: {name}"
        return "Topic has existing shared producers"

    async def _grant(self, producer: Producer) -> None:
        """Makes a producer exclusive; its epoch is stored before it is ready."""
        self.by_name[producer.name] = self._exclusive = producer
        wanted = producer.topic_epoch
        if wanted is None:
            wanted = 0 if self.epoch is None else self.epoch + 1
        try:
            if wanted != self.epoch:
                await self._store_epoch(wanted)
                self.epoch = wanted
        except BaseException:
            self.remove(producer)
            raise
        producer.topic_epoch = wanted
        producer.ready = not producer.gone

    def remove(self, producer: Producer) -> bool:
        """Removes a producer; returns whether the next in the queue can be admitted (`next_waiting`)."""
        producer.gone = True
        if self.by_name.get(producer.name) is producer:
            del self.by_name[producer.name]
        if self._exclusive is producer:
            self._exclusive = None
        if producer in self._waiting:
            self._waiting.remove(producer)
        return bool(self._waiting) and not self.by_name

    def refuse_waiting(self, code: ErrorCode, why: str) -> None:
        """Refuses all waiting producers with a reason."""
        while self._waiting:
            _refuse(self._waiting.popleft(), code, why)

    async def next_waiting(self) -> Producer | None:
        """Makes the first producer of the queue exclusive, if no other is connected, and returns it."""
        while self._waiting and not self.by_name:
            producer = self._waiting.popleft()
            if not producer.gone:
                producer.topic_epoch = None
                try:
                    await self._grant(producer)
                except BkctlError as error:  # the client retries
                    _refuse(producer, ErrorCode.SERVICE_NOT_READY, error.message)
                    continue
                if producer.ready:
                    return producer
                self.remove(producer)
        return None


def _refuse(producer: Producer, code: ErrorCode, why: str) -> None:
    """Refuses a waiting producer."""
    producer.gone = True
    producer.connection.forget_producer(producer)
    producer.connection.error_for(producer.request_id)(code, why)
