"""A persistent topic: adds entries of producers to a managed ledger, sends receipts in order, wakes subscriptions.

    Sends ─► checksums, rules, duplicates ─► ManagedLedger.add_many ─► on_confirmed ─► receipts, subscriptions

An entry is not copied between frame and ledger. `_pending` has the unconfirmed sends in the order of the adds, which is
the order of the confirmations. A ledger that fails closes the topic with its producers and consumers; their clients get
no error for unconfirmed sends, and reconnect. Source: PersistentTopic.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bkctl.codec.managed_ledger import COMPACTION_CURSOR
from bkctl.codec.pulsar import NO_REQUEST, Command, ErrorCode, encode_command, encode_receipts
from bkctl.codec.pulsar_entry import checksum_ok, decode_metadata
from bkctl.errors import BkctlError, NotFound
from bkctl.log.state import State
from bkctl.model.topic import EARLIEST, Position, TopicName
from bkdaemon.broker.compaction.compaction import TopicCompaction
from bkdaemon.broker.dispatch.throttle import BrokerLimits, TopicLimits
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.deduplication import Deduplication, DuplicateStatus
from bkdaemon.broker.topic.entry_stamps import EntryStamps
from bkdaemon.broker.topic.message_rules import forbidden
from bkdaemon.broker.topic.migration import CONSUMER, PRODUCER, redirect_client, send_migrated
from bkdaemon.broker.topic.producers import Producer, ProducerTable
from bkdaemon.broker.topic.sent import SentBefore
from bkdaemon.broker.topic.subscription import Subscription

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.protocol.broker import Send
    from bkdaemon.broker.rules import TopicRules

logger = logging.getLogger(__name__)

EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
DEDUPLICATION_CURSOR: Final = "pulsar.dedup"
REPLICATOR_PREFIX: Final = "pulsar.repl"
SUBSCRIPTIONS_MAX: Final = 10_000
MARKERS_SKIPPED_MAX: Final = 1000
"""Markers that are skipped in the search for a topic's last message."""
_DUPLICATE: Final = -1


def reserved(subscription: str) -> bool:
    """Returns whether a name is that of a cursor of the broker, not of a subscription."""
    return subscription in (DEDUPLICATION_CURSOR, COMPACTION_CURSOR) or subscription.startswith(REPLICATOR_PREFIX)


class _PendingSends:
    """Sends of one producer that were added to the ledger together.

    Attributes:
        confirmed: how many of them are stored.
        replies: sent to the producer once all of them are confirmed.
    """

    __slots__ = ("confirmed", "producer", "replies", "sends")

    def __init__(self, producer: Producer, sends: list[Send]) -> None:
        self.producer = producer
        self.sends = sends
        self.confirmed = 0
        self.replies: list[bytes] = []


class Topic:
    """One topic, or one partition, that this broker owns. `Topic.open` creates it.

    Attributes:
        producers: its producers.
        subscriptions: by name.
        compaction: its compactions and the compacted ledger.
        closed: it is no longer served; clients have to repeat their lookup.
        terminated: no entry can be added.
        chunked: chunks were published since it was opened.
        deduplication: None if the rules had it disabled when the topic was opened.
        sent_before: messages and bytes of subscriptions that are deleted.
    """

    persistent = True

    def __init__(self, name: TopicName, ledger: ManagedLedger, rules: TopicRules, now_ms: Callable[[], int]) -> None:
        self.name = name
        self.ledger = ledger
        self._rules = rules
        self.now_ms = now_ms
        self.closed = False
        self.terminated = ledger.state is State.TERMINATED
        self.on_closed: Callable[[Topic], None] = lambda topic: None
        self.subscriptions: dict[str, Subscription] = {}
        self.messages_in = 0
        self.bytes_in = 0
        self.chunked = False
        self.sent_before = SentBefore()
        self.used_ms = now_ms()
        epoch = ledger.properties.get(EPOCH_PROPERTY)
        self.producers = ProducerTable(str(name), None if epoch is None else int(epoch), self._store_epoch)
        self.partition = name.partition
        self._entry_size_max = ledger.context.entry_size_max
        self._pending: deque[_PendingSends] = deque()
        self.deduplication: Deduplication | None = None
        self._stamps: EntryStamps | None = None
        self.compaction = TopicCompaction(name, ledger, now_ms)
        self.limits = TopicLimits(lambda: now_ms() / 1000)
        self._opening = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        ledger.on_confirmed = self._confirmed
        ledger.on_failed = self.fail

    @classmethod
    async def open(cls, name: TopicName, ledger: ManagedLedger, rules: TopicRules, now_ms: Callable[[], int]) -> Topic:
        """Creates a topic over its open ledger: durable cursors become subscriptions, sequence ids are recovered."""
        topic = cls(name, ledger, rules, now_ms)
        for cursor_name, cursor in ledger.cursors.items():
            if not reserved(cursor_name):
                topic.subscriptions[cursor_name] = Subscription(topic, cursor_name, cursor)
        if rules.deduplication:
            names = rules.deduplication_producers
            topic.deduplication = await Deduplication.recover(ledger, rules.deduplication_entries, names)
        topic._stamps = await EntryStamps.recover(ledger, rules, now_ms)
        if rules.compacts:
            await topic.compaction.prepare()
        return topic

    async def _store_epoch(self, epoch: int) -> None:
        await self.ledger.set_property(EPOCH_PROPERTY, str(epoch))

    def snapshot(self) -> None:
        """Stores a snapshot of the producers' sequence ids."""
        if self.deduplication is not None:
            self.deduplication.snapshot(self.ledger.last_confirmed)

    @property
    def rules(self) -> TopicRules:
        """The rules in effect now. Rules with an exceeded backlog quota close its producers."""
        return self._rules

    @rules.setter
    def rules(self, rules: TopicRules) -> None:
        old, self._rules = self._rules, rules
        if old.pause_on_ack_state and not rules.pause_on_ack_state:
            for subscription in self.subscriptions.values():
                subscription.wake()
        if rules.backlog_exceeded is not None and old.backlog_exceeded is None:
            self._close_producers()
        if rules.migrated_to is not None:
            self._redirect_clients(rules.migrated_to)

    def apply_rates(self, broker: BrokerLimits | None, published: tuple[float, float] = (0, 0)) -> None:
        """Enforces the rates of its rules and of the broker from now on."""
        self.limits.apply(self._rules, broker, published)
        for name, subscription in self.subscriptions.items():
            subscription.apply(self.limits.of_subscription(name, self._rules))

    # -- producers ---------------------------------------------------------------------------------------------------

    async def add_producer(self, producer: Producer) -> None:
        """Adds a producer; it is ready, or waits to become exclusive.

        Raises:
            Refusal: the rules or other producers do not allow it.
        """
        self.check_open()
        self.check_admission(encrypted=producer.encrypted)
        if self.terminated:
            raise Refusal(ErrorCode.TOPIC_TERMINATED, "Topic was already terminated")
        self.used_ms = self.now_ms()
        if self.deduplication is not None:
            self.deduplication.connected(producer.name)
        await self.producers.admit(producer)

    def check_admission(self, *, encrypted: bool) -> None:
        """Raises Refusal with the reason if no further producer is accepted."""
        if 0 < self.rules.producers_max <= len(self.producers):
            raise Refusal(ErrorCode.PRODUCER_BUSY, f"Topic '{self.name}' reached max producers limit")
        if self.rules.backlog_exceeded == "producer_request_hold":
            raise Refusal(
                ErrorCode.PRODUCER_BLOCKED_QUOTA_ERROR, "Cannot create producer on topic with backlog quota exceeded"
            )
        if self.rules.backlog_exceeded == "producer_exception":
            raise Refusal(
                ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION,
                "Cannot create producer on topic with backlog quota exceeded",
            )
        if self.rules.encryption_required and not encrypted:
            raise Refusal(ErrorCode.METADATA, f"Encryption is required in {self.name}")

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the highest sequence id known to be stored, or -1."""
        return -1 if self.deduplication is None else self.deduplication.last(producer_name)

    async def remove_producer(self, producer: Producer) -> None:
        """Removes a producer; the first waiting one may be admitted and notified."""
        self.used_ms = self.now_ms()
        if self.producers.remove(producer) and not self.closed:
            waiting = await self.producers.next_waiting()
            if waiting is not None:
                waiting.connection.producer_ready(waiting)

    def publish(self, producer: Producer, sends: list[Send], size: int) -> None:
        """Adds sends of a producer; receipts and errors follow in their order."""
        if self.closed:
            return  # CLOSE_PRODUCER is on its way
        accepted: list[Send] = []
        for send in sends:
            refusal = self._refused(producer, send)
            if refusal is None:
                accepted.append(send)
                continue
            self._add(producer, accepted)
            accepted = []
            self.answer_in_order(producer, refusal)
        self._add(producer, accepted)

    def _refused(self, producer: Producer, send: Send) -> bytes | None:
        """Returns the reply to a send that is not stored; None for one that is accepted."""
        sequence_id, highest, _, entry, chunk = send
        named = max(sequence_id, highest)  # identifies a batch
        if len(entry) > self._entry_size_max:
            return send_error(
                producer,
                named,
                ErrorCode.NOT_ALLOWED,
                f"The message has {len(entry)} bytes, bookies take {self._entry_size_max}: see nettyMaxFrameSizeBytes",
            )
        if not checksum_ok(entry):
            return send_error(producer, named, ErrorCode.CHECKSUM, "Checksum failed on the broker")
        rules = self._rules
        if rules.encryption_required or rules.message_size_max > 0 or rules.delay_max_ms > 0:
            why = forbidden(rules, entry, chunk=chunk)
            if why is not None:
                return send_error(producer, named, *why)
        if self.deduplication is not None:
            status = self.deduplication.status_of(producer.name, sequence_id, highest, entry if chunk else None)
            if status is DuplicateStatus.DUPLICATE:
                return encode_receipts(producer.producer_id, [(sequence_id, highest, _DUPLICATE, _DUPLICATE)])
            if status is DuplicateStatus.UNKNOWN:
                return send_error(
                    producer,
                    named,
                    ErrorCode.PERSISTENCE,
                    f"[{self.name}][{producer.name}]Cannot determine whether the message is a duplicate at this time",
                )
        if chunk:
            producer.chunks_in += 1
            self.chunked = True
        return None

    def _add(self, producer: Producer, sends: list[Send]) -> None:
        if not sends or self.closed:
            return
        self._pending.append(_PendingSends(producer, sends))
        producer.pending += len(sends)
        producer.connection.pending += len(sends)
        entries = [send[3] for send in sends]
        size = sum(map(len, entries))
        messages = sum([send[2] for send in sends])
        producer.messages_in += messages
        producer.bytes_in += size
        self.messages_in += messages
        self.bytes_in += size
        if self._stamps is not None:
            entries = self._stamps.stamp(entries, [send[2] for send in sends])
        try:
            self.ledger.add_many(entries)
        except BkctlError as error:
            self.fail(error)

    def answer_in_order(self, producer: Producer, answer: bytes) -> None:
        """Sends a reply after the receipts of the producer's earlier sends."""
        if producer.pending:
            for pending in reversed(self._pending):
                if pending.producer is producer:
                    pending.replies.append(answer)
                    return
        producer.connection.queue((answer,))

    def _confirmed(self, positions: list[Position]) -> None:
        """Sends receipts for entries that the ledger has stored, in the order of the adds."""
        if self._stamps is not None:
            self._stamps.stored(len(positions))
        pending = self._pending
        at, count = 0, len(positions)
        while at < count and pending:
            first = pending[0]
            sends, done = first.sends, first.confirmed
            taken = min(len(sends) - done, count - at)
            now = sends[done : done + taken] if taken < len(sends) else sends
            producer = first.producer
            if self.deduplication is not None:
                self.deduplication.stored(producer.name, now, positions[at + taken - 1])
            receipts = encode_receipts(
                producer.producer_id,
                [(send[0], send[1], p[0], p[1]) for send, p in zip(now, positions[at : at + taken], strict=True)],
            )
            first.confirmed += taken
            at += taken
            producer.pending -= taken
            connection = producer.connection
            if first.confirmed == len(sends):
                pending.popleft()
                if first.replies:
                    receipts = b"".join((receipts, *first.replies))
            connection.queue((receipts,))
            connection.confirmed(taken)
        for subscription in self.subscriptions.values():
            subscription.wake()

    @property
    def congested(self) -> bool:
        """True while its ledger accepts no more."""
        return self.ledger.congested

    # -- subscriptions -----------------------------------------------------------------------------------------------

    async def subscription(
        self,
        name: str,
        *,
        durable: bool,
        initial: Position,
        create: bool = True,
        properties: dict[str, str] | None = None,
    ) -> Subscription:
        """Returns the subscription of that name; creates it if it is missing.

        Raises:
            Refusal: SUBSCRIPTION_NOT_FOUND if it may not be created, NOT_ALLOWED if it differs in durability.
        """
        async with self._opening:
            self.check_open()
            self.used_ms = self.now_ms()
            found = self.subscriptions.get(name)
            if found is not None:
                if found.durable != durable:
                    kind = "Durable" if found.durable else "NonDurable"
                    raise Refusal(ErrorCode.NOT_ALLOWED, f"{kind} subscription with the same name already exists.")
                return found
            if not create:
                raise Refusal(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"Subscription {name} does not exist")
            if len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
                raise Refusal(ErrorCode.NOT_ALLOWED, f"The topic has {SUBSCRIPTIONS_MAX} subscriptions already")
            if 0 < self.rules.subscriptions_max <= len(self.subscriptions):
                why = f"Exceed the maximum number of subscriptions of the topic: {self.name}"
                raise Refusal(ErrorCode.NOT_ALLOWED, why)
            cursor = await self.ledger.open_cursor(name, initial, durable=durable, properties=properties or {})
            self.check_open()
            subscription = Subscription(self, name, cursor, durable=durable)
            subscription.dispatch_limits = self.limits.of_subscription(name, self._rules)
            self.subscriptions[name] = subscription
            return subscription

    async def delete_subscription(self, subscription: Subscription, *, force: bool = True) -> None:
        """Forgets a subscription for good; its consumers are closed if force is set.

        Raises:
            Refusal: METADATA, it has consumers.
        """
        if subscription.consumers and not force:
            raise Refusal(ErrorCode.METADATA, "Subscription has active consumers")
        subscription.close()
        try:
            await self.ledger.delete_cursor(subscription.name)
        except NotFound:
            pass  # another process has deleted it meanwhile
        except BkctlError:
            subscription.closed = False
            raise
        if self.subscriptions.get(subscription.name) is subscription:
            self.sent_before.add_subscription(subscription)
            del self.subscriptions[subscription.name]
            self.limits.forget(subscription.name)

    async def last_message_id(self) -> tuple[Position, int]:
        """The last entry, and the index of its last message in its batch; -1 without a batch or an entry."""
        last = self.ledger.last_confirmed
        for _ in range(MARKERS_SKIPPED_MAX):
            if last.entry_id < 0:
                return EARLIEST, -1
            entries = await self.ledger.read(last, 1, 1)
            if not entries or entries[0][0] != last:
                break
            metadata = decode_metadata(entries[0][1])
            if not metadata.HasField("marker_type"):
                return last, metadata.num_messages_in_batch - 1 if metadata.HasField("num_messages_in_batch") else -1
            last = self.ledger.ledgers.previous(last)  # markers are not delivered to consumers
        return last, -1

    # -- its end -----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises Refusal (SERVICE_NOT_READY) if the topic is closed; the client has to repeat its lookup."""
        if self.closed:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "Topic is temporarily unavailable")

    def fail(self, error: BkctlError) -> None:
        """Closes the topic as its ledger has failed; unconfirmed sends get no reply."""
        if self.closed:
            return
        logger.warning("%s: closing the topic, as its ledger has failed: %s", self.name, error.message)
        self._disconnect()
        self._closing = asyncio.ensure_future(self._close_ledger())

    async def _close_ledger(self) -> None:
        await self.compaction.close()
        try:
            await self.ledger.close()
        except BkctlError as error:
            logger.warning("%s: failed to close the ledger: %s", self.name, error.message)
        self.on_closed(self)

    def _disconnect(self) -> None:
        self.closed = True
        producers = list(self.producers.by_name.values())
        for producer in producers:
            producer.gone = True
            producer.connection.forget_producer(producer, closed_by_broker=True)
            producer.connection.queue(
                (encode_command(Command.CLOSE_PRODUCER, producer_id=producer.producer_id, request_id=NO_REQUEST),)
            )
        self.producers.refuse_waiting(ErrorCode.SERVICE_NOT_READY, "Topic is temporarily unavailable")
        for pending in self._pending:
            pending.producer.connection.confirmed(len(pending.sends) - pending.confirmed)
        self._pending.clear()
        for subscription in self.subscriptions.values():
            subscription.close()

    async def close(self) -> None:
        """Closes producers and consumers, which reconnect to the topic's new owner; stores the cursors.

        Raises:
            BkctlError: the ledger could not be closed; the topic is closed anyway.
        """
        if self.closed:
            return
        self._disconnect()
        await self.compaction.close()
        try:
            await self.ledger.close()
        finally:
            self.on_closed(self)

    def _close_producers(self) -> None:
        for producer in list(self.producers.by_name.values()):
            self.producers.remove(producer)
            producer.connection.forget_producer(producer, closed_by_broker=True)
            producer.connection.queue(
                (encode_command(Command.CLOSE_PRODUCER, producer_id=producer.producer_id, request_id=NO_REQUEST),)
            )

    def _redirect_clients(self, url: str) -> None:
        """Redirects clients to another cluster: producers now, consumers once their subscription has no backlog."""
        for producer in list(self.producers.by_name.values()):
            self.producers.remove(producer)
            producer.connection.forget_producer(producer, closed_by_broker=True)
            redirect_client(producer.connection, PRODUCER, producer.producer_id, url)
        for subscription in self.subscriptions.values():
            if not subscription.cursor.backlog():
                for consumer in list(subscription.consumers):
                    send_migrated(consumer.connection, CONSUMER, consumer.consumer_id, url)
                subscription.disconnect(list(subscription.consumers))

    def _refuse_pending(self) -> None:
        """Refuses sends that are not stored, as the topic is terminated."""
        for pending in self._pending:
            producer, unconfirmed = pending.producer, pending.sends[pending.confirmed :]
            producer.pending -= len(unconfirmed)
            answers = [
                send_error(producer, max(send[0], send[1]), ErrorCode.TOPIC_TERMINATED, "Topic was already terminated")
                for send in unconfirmed
            ]
            producer.connection.queue((*answers, *pending.replies))
            producer.connection.confirmed(len(unconfirmed))
        self._pending.clear()

    async def terminate(self) -> Position:
        """Terminates the topic, so that no entry can be added; returns the last position."""
        self.check_open()
        last = await self.ledger.terminate()
        self.terminated = True
        self._close_producers()  # before the send errors, so that clients know the reason
        self._refuse_pending()
        for subscription in self.subscriptions.values():
            subscription.wake()
        return last


def send_error(producer: Producer, sequence_id: int, code: ErrorCode, message: str) -> bytes:
    """Returns the SEND_ERROR of a message, or of a batch by its highest sequence id."""
    return encode_command(
        Command.SEND_ERROR, producer_id=producer.producer_id, sequence_id=sequence_id, error=code, message=message
    )
