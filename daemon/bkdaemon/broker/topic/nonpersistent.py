"""Non-persistent topics: messages go to consumers that have permits now, and are dropped for all others.

Receipts are sent at once and have the message id (0, 0), as every message has. Source: NonPersistentTopic.java,
NonPersistentDispatcherMultipleConsumers.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import (
    NO_REQUEST,
    Command,
    ErrorCode,
    SubscriptionType,
    encode_command,
    encode_receipts,
)
from bkctl.codec.pulsar_entry import checksum_ok, decode_metadata
from bkctl.errors import BadBytes
from bkctl.model.topic import Position, TopicName
from bkdaemon.broker.dispatch.consumer import Consumer, Delivery
from bkdaemon.broker.dispatch.slots import Division, Ring, entry_slot, new_division
from bkdaemon.broker.dispatch.throttle import BrokerLimits, Limits, TopicLimits
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.producers import Producer, ProducerTable
from bkdaemon.broker.topic.sent import SentBefore

if TYPE_CHECKING:
    from bkctl.protocol.broker import Send
    from bkdaemon.broker.rules import TopicRules

NOWHERE: Final = Position(0, 0)


class NonPersistentSubscription:
    """A subscription of a non-persistent topic: selects the consumer of each message."""

    durable = False
    dispatch_limits: Limits = ()
    """No message is queued, so none is delayed."""

    def __init__(self, topic: NonPersistentTopic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.type = SubscriptionType.EXCLUSIVE
        self.consumers: list[Consumer] = []
        self.dropped = 0
        self.sent_before = SentBefore()
        self._turn = 0
        self._division: Division = Ring()

    def add(self, consumer: Consumer, kind: SubscriptionType) -> None:
        """Adds a consumer.

        Raises:
            Refusal: CONSUMER_BUSY, CONSUMER_ASSIGN; SERVICE_NOT_READY if another subscription has this name by now.
        """
        self.topic.check_open()
        if self.topic.subscriptions.setdefault(self.name, self) is not self:  # removed with its last, silent consumer
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "Subscription is fenced")
        if self.consumers and kind != self.type:
            raise Refusal(ErrorCode.CONSUMER_BUSY, "Subscription is of different type")
        if self.consumers and kind == SubscriptionType.EXCLUSIVE:
            raise Refusal(ErrorCode.CONSUMER_BUSY, "Exclusive consumer is already connected")
        most = self.topic.rules.consumers_per_subscription_max
        if 0 < most <= len(self.consumers):
            raise Refusal(ErrorCode.CONSUMER_BUSY, "Subscription reached max consumers limit")
        if not self.consumers:
            self.type = kind
            meta = consumer.key_shared
            sticky = meta is not None and meta.keySharedMode
            self._division = new_division(self.topic.rules, sticky=bool(sticky))
        if kind == SubscriptionType.KEY_SHARED:
            self._division.add(consumer)
        consumer.subscription = self
        self.consumers.append(consumer)
        if kind == SubscriptionType.FAILOVER:
            self.consumers.sort(key=lambda c: (c.priority, c.name))

    async def remove(self, consumer: Consumer) -> None:
        """Removes a consumer, and with the last one the subscription."""
        consumer.gone = True
        if consumer in self.consumers:
            self._forget(consumer)
        await self.forget_if_unused()

    async def forget_if_unused(self) -> None:
        """Removes a subscription without consumers."""
        if not self.consumers and self.topic.subscriptions.get(self.name) is self:
            self.topic.forget(self)

    def _forget(self, consumer: Consumer) -> None:
        self.sent_before.add_consumer(consumer)
        self.consumers.remove(consumer)
        self._division.remove(consumer)

    def disconnect(self, consumers: list[Consumer]) -> None:
        """Closes consumers, which makes clients reconnect."""
        for consumer in consumers:
            consumer.gone = True
            consumer.connection.forget_consumer(consumer)
            consumer.connection.queue(
                (encode_command(Command.CLOSE_CONSUMER, consumer_id=consumer.consumer_id, request_id=NO_REQUEST),)
            )
            if consumer in self.consumers:
                self._forget(consumer)

    def offer(self, entry: bytes, metadata: Any) -> None:
        """Sends an entry to one consumer, or drops it."""
        consumer = self._taker(metadata)
        if consumer is None or not consumer.ready:
            self.dropped += 1
            return
        consumer.deliver((Delivery(NOWHERE, entry, max(metadata.num_messages_in_batch, 1)),))

    def _taker(self, metadata: Any) -> Consumer | None:
        if not self.consumers:
            return None
        if self.type == SubscriptionType.KEY_SHARED:
            return self._division.owner(entry_slot(metadata, self._division))
        if self.type != SubscriptionType.SHARED:
            return self.consumers[0]
        for offset in range(1, len(self.consumers) + 1):
            consumer = self.consumers[(self._turn + offset) % len(self.consumers)]
            if consumer.ready:
                self._turn = (self._turn + offset) % len(self.consumers)
                return consumer
        return None

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Grants permits to a consumer."""
        consumer.permits += permits

    def wake(self) -> None:
        """Does nothing: no message is queued."""

    def ack(self, consumer: Consumer, message: Any) -> None:
        """Counts acknowledgements, as Java does; they have no other effect."""
        consumer.messages_acked += len(message.message_id)

    def redeliver(self, consumer: Consumer, message: Any) -> None:
        """Does nothing: no message is stored."""

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Returns at once, as in Java: a non-persistent topic has no positions."""

    async def seek_time(self, ms: int) -> None:
        """Returns at once, as `seek`."""


class NonPersistentTopic:
    """A topic without storage."""

    persistent = False
    terminated = False
    congested = chunked = False

    def __init__(self, name: TopicName, rules: TopicRules, now_ms: Callable[[], int]) -> None:
        self.name = name
        self.rules = rules
        self.now_ms = now_ms
        self.closed = False
        self.partition = name.partition
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self.producers = ProducerTable(str(name), None, self._keep_epoch)
        self.messages_in = 0
        self.bytes_in = 0
        self.sent_before = SentBefore()
        self.used_ms = now_ms()
        self.limits = TopicLimits(lambda: now_ms() / 1000)
        self.on_closed: Callable[[NonPersistentTopic], None] = lambda topic: None

    def apply_rates(self, broker: BrokerLimits | None, published: tuple[float, float] = (0, 0)) -> None:
        """Enforces the publish rates of its rules and of the broker from now on."""
        self.limits.apply(self.rules, broker, published)

    async def _keep_epoch(self, epoch: int) -> None:
        """Does nothing: the epoch is not stored."""

    def check_open(self) -> None:
        """Raises Refusal (SERVICE_NOT_READY) if the topic is closed; the client has to repeat its lookup."""
        if self.closed:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "Topic is temporarily unavailable")

    async def add_producer(self, producer: Producer) -> None:
        """Adds a producer.

        Raises:
            Refusal: the rules or other producers do not allow it.
        """
        self.check_open()
        self.check_admission(encrypted=producer.encrypted)
        await self.producers.admit(producer)

    def check_admission(self, *, encrypted: bool) -> None:
        """Raises Refusal with the reason if no further producer is accepted."""
        if 0 < self.rules.producers_max <= len(self.producers):
            raise Refusal(ErrorCode.PRODUCER_BUSY, f"Topic '{self.name}' reached max producers limit")
        if self.rules.encryption_required and not encrypted:
            raise Refusal(ErrorCode.METADATA, f"Encryption is required in {self.name}")

    async def remove_producer(self, producer: Producer) -> None:
        """Removes a producer; the first waiting one may be admitted."""
        if self.producers.remove(producer):
            waiting = await self.producers.next_waiting()
            if waiting is not None:
                waiting.connection.producer_ready(waiting)

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns -1: no sequence id is known."""
        return -1

    def answer_in_order(self, producer: Producer, answer: bytes) -> None:
        """Sends a reply; every receipt has been sent already."""
        producer.connection.queue((answer,))

    def publish(self, producer: Producer, sends: list[Send], size: int) -> None:
        """Offers entries to every subscription and sends receipts at once."""
        receipts = []
        answers = []
        most = self.rules.message_size_max
        for sequence_id, highest, messages, entry, chunk in sends:
            try:
                if not checksum_ok(entry):
                    raise Refusal(ErrorCode.CHECKSUM, "Checksum failed on the broker")
                metadata = decode_metadata(entry)
                if self.rules.encryption_required and not metadata.encryption_keys:
                    raise Refusal(ErrorCode.METADATA, "Messages must be encrypted")
                if 0 < most < len(entry) and not chunk:
                    raise Refusal(ErrorCode.NOT_ALLOWED, "Exceed maximum message size")
            except (BadBytes, Refusal) as error:
                code = error.code if isinstance(error, Refusal) else ErrorCode.METADATA
                answers.append(
                    encode_command(
                        Command.SEND_ERROR,
                        producer_id=producer.producer_id,
                        sequence_id=max(sequence_id, highest),
                        error=code,
                        message=error.message,
                    )
                )
                continue
            self.messages_in += messages
            producer.messages_in += messages
            for subscription in self.subscriptions.values():
                subscription.offer(entry, metadata)
            receipts.append((sequence_id, highest, 0, 0))
        self.bytes_in += size
        producer.bytes_in += size
        producer.connection.queue((encode_receipts(producer.producer_id, receipts), *answers))

    async def subscription(
        self,
        name: str,
        *,
        durable: bool,
        initial: Position,
        create: bool = True,
        properties: dict[str, str] | None = None,
    ) -> NonPersistentSubscription:
        """Returns the subscription of that name; creates it if it is missing."""
        self.check_open()
        if name not in self.subscriptions:
            self.subscriptions[name] = NonPersistentSubscription(self, name)
        return self.subscriptions[name]

    async def delete_subscription(self, subscription: NonPersistentSubscription, *, force: bool = True) -> None:
        """Forgets a subscription and closes its consumers."""
        if subscription.consumers and not force:
            raise Refusal(ErrorCode.METADATA, "Subscription has active consumers")
        subscription.disconnect(list(subscription.consumers))
        self.forget(subscription)

    def forget(self, subscription: NonPersistentSubscription) -> None:
        """Removes a subscription, and keeps its counters."""
        if self.subscriptions.pop(subscription.name, None) is not None:
            self.sent_before.add_subscription(subscription)
            subscription.sent_before = SentBefore()

    async def last_message_id(self) -> tuple[Position, int]:
        """Raises Refusal (UNKNOWN), as Java does: no message is stored."""
        raise Refusal(ErrorCode.UNKNOWN, "getLastMessageId is not supported on a non-persistent topic")

    async def close(self) -> None:
        """Closes producers and consumers, which reconnect to the topic's new owner."""
        self.fail()

    def fail(self) -> None:
        """Closes the topic at once: another broker owns it."""
        if self.closed:
            return
        self.closed = True
        self.producers.refuse_waiting(ErrorCode.SERVICE_NOT_READY, "Topic is temporarily unavailable")
        for producer in list(self.producers.by_name.values()):
            producer.gone = True
            producer.connection.forget_producer(producer, closed_by_broker=True)
            producer.connection.queue(
                (encode_command(Command.CLOSE_PRODUCER, producer_id=producer.producer_id, request_id=NO_REQUEST),)
            )
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect(list(subscription.consumers))
        self.on_closed(self)
