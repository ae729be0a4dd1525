"""One consumer of a subscription: its permits, its unacknowledged entries and its counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from bkctl.codec.pulsar import encode_message_head
from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import BadBytes
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkctl.protocol.broker import BrokerConversation


AVERAGE_KEPT: Final = 0.9
"""The weight of the previous average with each new value."""


class Delivery(NamedTuple):
    """An entry to send to a consumer; messages is the number of its unacknowledged messages."""

    position: Position
    entry: bytes
    messages: int
    redelivery_count: int = 0
    ack_set: Sequence[int] = ()


class ClientLink(Protocol):
    """The part of a client's connection that topics, subscriptions and dispatchers use.

    Attributes:
        writable: the client reads; false while the write buffer is full.
        peer, address: of the client, with and without its port.
    """

    conversation: BrokerConversation
    writable: bool
    peer: str
    address: str

    def queue(self, parts: Sequence[bytes]) -> None:
        """Sends bytes at the end of this turn; drops them if the connection is closed."""

    async def alive(self) -> bool:
        """Returns whether the client answers a PING in time; closes the connection if it does not."""

    def forget_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer that is closed."""


class Consumer:
    """One consumer of one connection.

    Attributes:
        permits: messages that may be sent to it; a batch may make it negative.
        pending: of a shared subscription: the entries it holds, with their unacknowledged messages.
        unacked: messages in `pending`.
        blocked: it gets no messages until it holds at most half of its maximum.
        auto_schema: it accepts every schema.
        read_compacted: it reads the compacted ledger up to the horizon.
        epoch: sent with every message, if the client has sent one.
        messages_acked: of acknowledged entries, as Java counts them; chunks_out: chunks it was sent.
        messages_per_entry: recent average; 0 at first.
        acked_ms, sent_ms, flow_ms: when it last acknowledged, was sent a message, sent permits; 0 for never.
    """

    __slots__ = (
        "acked_ms",
        "auto_schema",
        "blocked",
        "bytes_out",
        "chunks_out",
        "connected_since_ms",
        "connection",
        "consumer_id",
        "epoch",
        "flow_ms",
        "gone",
        "key_shared",
        "messages_acked",
        "messages_out",
        "messages_per_entry",
        "metadata",
        "name",
        "partition",
        "pending",
        "permits",
        "priority",
        "read_compacted",
        "redelivered",
        "sent_ms",
        "subscription",
        "unacked",
    )

    def __init__(self, connection: ClientLink, consumer_id: int, name: str, *, partition: int = -1) -> None:
        self.connection = connection
        self.consumer_id = consumer_id
        self.name = name
        self.partition = partition
        self.priority = 0
        self.permits = 0
        self.pending: dict[Position, int] = {}
        self.unacked = 0
        self.blocked = False
        self.gone = False
        self.auto_schema = self.read_compacted = False
        self.epoch: int | None = None
        self.key_shared: Any = None
        self.metadata: dict[str, str] = {}
        self.subscription: Any = None
        self.messages_out = 0
        self.bytes_out = 0
        self.redelivered = 0
        self.messages_acked = self.chunks_out = 0
        self.messages_per_entry = 0.0
        self.connected_since_ms = self.acked_ms = self.sent_ms = self.flow_ms = 0

    @property
    def ready(self) -> bool:
        """True if a message can be sent to it now."""
        return self.permits > 0 and not self.blocked and not self.gone and self.connection.writable

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Sends entries as they are stored, and counts them."""
        connection = self.connection
        deliverable = connection.conversation.deliverable
        consumer_id, partition, epoch = self.consumer_id, self.partition, self.epoch
        topic = self.subscription.topic
        chunked = topic.chunked
        parts: list[bytes] = []
        messages = size = 0
        for position, entry, count, redelivery_count, ack_set in deliveries:
            body = deliverable(entry)
            head = encode_message_head(
                consumer_id,
                position[0],
                position[1],
                len(body),
                partition=partition,
                redelivery_count=redelivery_count,
                ack_set=ack_set,
                consumer_epoch=epoch,
            )
            parts += (head, body)
            messages += count
            size += len(body)
            if redelivery_count:
                self.redelivered += count
            if count == 1 and chunked and _is_chunk(entry):
                self.chunks_out += 1
        self.permits -= messages
        self.sent_ms = topic.now_ms()
        if parts:
            average, now = self.messages_per_entry, 2 * messages / len(parts)
            self.messages_per_entry = now if average < 1 else AVERAGE_KEPT * average + (1 - AVERAGE_KEPT) * now
        self.messages_out += messages
        self.bytes_out += size
        connection.queue(parts)
        if limits := self.subscription.dispatch_limits:
            counted = len(parts) // 2 if topic.rules.dispatch_by_entry else messages
            for bucket in limits:
                bucket.spend(counted, size)

    def can_resume(self, most: int) -> bool:
        """Returns whether it is blocked and holds at most half of `most` messages; 0 means unlimited."""
        return self.blocked and (most <= 0 or self.unacked <= most // 2)

    def hold(self, position: Position, messages: int) -> None:
        """Records that it holds an entry."""
        self.pending[position] = messages
        self.unacked += messages

    def release(self, position: Position) -> bool:
        """Removes an entry; returns false if it did not hold it."""
        messages = self.pending.pop(position, None)
        if messages is None:
            return False
        self.unacked -= messages
        return True


def _is_chunk(entry: bytes) -> bool:
    try:
        return bool(decode_metadata(entry).HasField("chunk_id"))
    except BadBytes:
        return False
