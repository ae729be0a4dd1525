"""A subscription of a topic: a cursor, its consumers, and a dispatcher of their type.

The type is that of the attached consumers; after the last one has left, the next may choose another. A durable
subscription stays without consumers, another one is deleted with its last. While its cursor is moved or deleted it is
`fenced` and accepts no consumer. Source: PersistentSubscription.java.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from bkctl.codec.pulsar import (
    ACK_CUMULATIVE,
    NO_REQUEST,
    Command,
    ErrorCode,
    SubscriptionType,
    encode_command,
)
from bkctl.model.topic import EARLIEST, LATEST, Position
from bkdaemon.broker.dispatch.base import Dispatcher, SingleActive
from bkdaemon.broker.dispatch.consumer import Consumer
from bkdaemon.broker.dispatch.key_shared import KeyShared
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.dispatch.throttle import Limits
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.sent import SentBefore

if TYPE_CHECKING:
    from bkctl.log.cursor import Cursor
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.compaction.compaction import TopicCompaction
    from bkdaemon.broker.dispatch.throttle import TopicLimits
    from bkdaemon.broker.rules import TopicRules

logger = logging.getLogger(__name__)

RECONNECT_S: Final = 60.0
"""A subscription that is not durable waits this long for the consumer that was closed for a seek."""
TYPE_NAMES: Final = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
_MANY: Final = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
_STRICT_NAME: Final = re.compile(r"[-=:.\w]*", re.ASCII)


def strict_name_refusal(name: str) -> str | None:
    """Returns why strictlyVerifySubscriptionName forbids a name; None if it is valid."""
    if _STRICT_NAME.fullmatch(name):
        return None
    return f"Please let the subscription only contains '/w(a-zA-Z_0-9)' or '_', the current value is {name}"


class SubscribedTopic(Protocol):
    """The topic of a subscription."""

    name: TopicName
    ledger: ManagedLedger
    compaction: TopicCompaction
    limits: TopicLimits
    subscriptions: dict[str, Subscription]
    closed: bool
    terminated: bool
    chunked: bool
    now_ms: Callable[[], int]

    @property
    def rules(self) -> TopicRules:
        """The rules in effect now."""

    async def delete_subscription(self, subscription: Subscription, *, force: bool = True) -> None:
        """Deletes a subscription and its cursor; closes its consumers if force is set."""


class Subscription:
    """One subscription of a persistent topic.

    Attributes:
        type: of the consumers that are attached or were attached last.
        closed: its cursor is being deleted, or its topic is closed.
        properties: stored in the cursor.
        sent_before: messages and bytes of consumers that are closed.
        dispatch_limits: the dispatch rates of its consumers; throttled: how often each was reached.
        expired, expired_ms: entries that have expired, and when the last did.
        flow_ms: when a consumer that is not blocked last sent permits; mark_moved_ms: when acks or expiry last moved
            the mark-delete position; 0 for never.
    """

    def __init__(self, topic: SubscribedTopic, name: str, cursor: Cursor, *, durable: bool = True) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor
        self.durable = durable
        self.type = SubscriptionType.EXCLUSIVE
        self.closed = False
        self.dispatcher: Dispatcher | None = None
        self.sent_before = SentBefore()
        self.expired = self.expired_ms = 0
        self.flow_ms = self.mark_moved_ms = 0
        self.dispatch_limits: Limits = ()
        self.throttled: dict[str, int] = {}
        self.paused = False
        self._end_reported: set[int] = set()
        self._going: asyncio.Task[None] | None = None
        self._moving: asyncio.Future[None] | None = None  # during a seek

    def __str__(self) -> str:
        return f"{self.topic.name} {self.name}"

    @property
    def consumers(self) -> list[Consumer]:
        """The attached consumers."""
        return self.dispatcher.consumers if self.dispatcher is not None else []

    @property
    def fenced(self) -> bool:
        """True while its cursor is being moved or deleted; the end of a seek does not reopen a closed subscription."""
        return self.closed or self._moving is not None

    @property
    def ledger(self) -> ManagedLedger:
        """The topic's log."""
        return self.topic.ledger

    @property
    def rules(self) -> TopicRules:
        """The rules of the topic."""
        return self.topic.rules

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the subscription."""
        return self.cursor.properties

    def now_ms(self) -> int:
        """Returns the time of day."""
        return self.topic.now_ms()

    # -- consumers -----------------------------------------------------------------------------------------------------

    def add(self, consumer: Consumer, kind: SubscriptionType) -> None:
        """Adds a consumer.

        Raises:
            Refusal: CONSUMER_BUSY for another type or a second exclusive one, CONSUMER_ASSIGN for overlapping ranges,
                SERVICE_NOT_READY while the subscription is fenced.
        """
        if self.fenced or self.topic.closed or self.topic.subscriptions.get(self.name) is not self:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "Subscription is fenced")
        if self.consumers and kind != self.type:
            raise Refusal(
                ErrorCode.CONSUMER_BUSY,
                f"Subscription is of different type. Active subscription type of '{TYPE_NAMES[self.type]}' is "
                f"different than the connecting consumer's type '{TYPE_NAMES[kind]}'.",
            )
        most = self.rules.consumers_per_subscription_max
        if 0 < most <= len(self.consumers):
            raise Refusal(ErrorCode.CONSUMER_BUSY, "Subscription reached max consumers limit")
        if self.dispatcher is None or not self.consumers:
            if self.dispatcher is not None:
                self.dispatcher.close()
            self.type, self.paused = kind, False
            self.dispatcher = self._new_dispatcher(kind)
        consumer.subscription = self
        self.dispatcher.add(consumer)
        self.cursor.active()
        if not self.rules.dispatch_caught_up:
            self.apply(self.topic.limits.of_subscription(self.name, self.rules))

    def apply(self, limits: Limits) -> None:
        """Enforces these dispatch rates; a subscription that has caught up is exempt if the rules say so."""
        rules = self.rules
        off = not rules.dispatch_caught_up and self.consumers and self.cursor.backlog() < rules.caught_up_entries
        self.dispatch_limits = () if off else limits

    def _new_dispatcher(self, kind: SubscriptionType) -> Dispatcher:
        self.cursor.read_position = self.ledger.next_position(self.cursor.mark_delete)
        if kind == SubscriptionType.SHARED:
            return Shared(self)
        if kind == SubscriptionType.KEY_SHARED:
            return KeyShared(self)
        return SingleActive(self, failover=kind == SubscriptionType.FAILOVER)

    async def remove(self, consumer: Consumer) -> None:
        """Removes a consumer, and with the last one a subscription that is not durable."""
        consumer.gone = True
        if self._detach(consumer):
            self.cursor.active()
            await self.forget_if_unused()

    async def forget_if_unused(self) -> None:
        """Deletes the subscription if it is not durable and has no consumer."""
        if not self.durable and not self.consumers and not self.fenced:
            await self.topic.delete_subscription(self)

    def disconnect(self, consumers: list[Consumer]) -> None:
        """Closes consumers, which makes clients reconnect."""
        for consumer in consumers:
            consumer.gone = True
            consumer.connection.forget_consumer(consumer)
            consumer.connection.queue(
                (encode_command(Command.CLOSE_CONSUMER, consumer_id=consumer.consumer_id, request_id=NO_REQUEST),)
            )
            self._detach(consumer)

    def _detach(self, consumer: Consumer) -> bool:
        if self.dispatcher is None or consumer not in self.consumers:
            return False
        self.sent_before.add_consumer(consumer)
        self.dispatcher.remove(consumer)
        return True

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Grants permits to a consumer."""
        if self.dispatcher is not None:
            if not consumer.blocked:
                self.flow_ms = consumer.flow_ms
            self.dispatcher.flow(consumer, permits)

    def wake(self) -> None:
        """Wakes the dispatcher: there are new entries, or consumers can be sent more."""
        if self.dispatcher is not None:
            self.dispatcher.wake()

    def reached_end(self, consumer: Consumer) -> None:
        """Notifies a consumer, once, that it has read all of a terminated topic."""
        if not self.topic.terminated or consumer.consumer_id in self._end_reported or self.cursor.backlog():
            return
        self._end_reported.add(consumer.consumer_id)
        if consumer.connection.conversation.knows_end_of_topic:
            consumer.connection.queue((encode_command(Command.REACHED_END_OF_TOPIC, consumer_id=consumer.consumer_id),))

    def pauses(self) -> bool:
        """Updates and returns `paused`: more ranges are acknowledged than the cursor stores. An ack may end it."""
        self.paused = self.rules.pause_on_ack_state and self.cursor.range_count > self.ledger.settings.ranges_max
        return self.paused

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def ack(self, consumer: Consumer, message: Any) -> None:
        """Applies an ACK command; ignores positions that cannot be acknowledged, as Java's broker does."""
        if self.fenced or self.dispatcher is None:
            return
        before = self.cursor.mark_delete
        if message.ack_type == ACK_CUMULATIVE:
            if self.type not in _MANY and len(message.message_id) == 1:
                consumer.messages_acked += 1
                self._ack_cumulative(message.message_id[0])
        else:
            self._ack_each(self.dispatcher, consumer, message.message_id)
        if self.cursor.mark_delete != before:
            self.mark_moved_ms = consumer.acked_ms
        self._check_end()

    def _ack_each(self, dispatcher: Dispatcher, consumer: Consumer, places: Any) -> None:
        last, unacked = self.ledger.last_confirmed, consumer.unacked
        whole: list[Position] = []
        for place in places:
            position = Position(place.ledgerId, place.entryId)
            if position > last:
                continue
            if place.ack_set:
                if self.rules.batch_index_acks:
                    self.cursor.ack_batch(position, list(place.ack_set))
                    dispatcher.acked_partly(consumer, position)
            else:
                whole.append(position)
        consumer.messages_acked += unacked - consumer.unacked  # messages of partly acknowledged batches
        if whole:
            consumer.messages_acked += self._messages_of(consumer, whole)
            self.cursor.ack(whole)
            dispatcher.acked(consumer, whole)
        if self.paused:
            dispatcher.wake()

    def _messages_of(self, consumer: Consumer, positions: list[Position]) -> int:
        """Returns the number of messages in acknowledged entries, one for an entry that no consumer holds."""
        if self.type not in _MANY:
            return len(positions)
        try:
            return sum(map(consumer.pending.__getitem__, positions))
        except KeyError:  # held by another consumer, or by no consumer
            holders = [consumer.pending, *(other.pending for other in self.consumers)]
            return sum(next((held[one] for held in holders if one in held), 1) for one in positions)

    def _ack_cumulative(self, place: Any) -> None:
        position = Position(place.ledgerId, place.entryId)
        if position > self.ledger.last_confirmed:
            return
        if not place.ack_set:
            self.cursor.ack_cumulative(position)
        elif self.rules.batch_index_acks:
            self.cursor.ack_cumulative(position, list(place.ack_set))
        else:
            self.cursor.ack_cumulative(self.cursor.before(position))

    def acknowledge_until(self, position: Position) -> None:
        """Acknowledges all entries up to position, also pending ones: they have expired or are skipped."""
        self.cursor.ack_cumulative(position)
        self._release_acknowledged()

    async def skip(self, entries: int) -> None:
        """Acknowledges the next entries of the backlog, also pending ones; durable when it returns."""
        await self.cursor.skip(entries)
        self._release_acknowledged()

    def _release_acknowledged(self) -> None:
        """Releases pending entries up to the mark-delete position; queued ones are dropped when they are read.

        Java releases them before its next read, but still counts them as unacknowledged: consumers may stay blocked.
        """
        dispatcher, mark_delete = self.dispatcher, self.cursor.mark_delete
        if not isinstance(dispatcher, Shared):
            return
        for consumer in dispatcher.consumers:
            dispatcher.acked(consumer, [position for position in consumer.pending if position <= mark_delete])
        if isinstance(dispatcher, KeyShared):
            dispatcher.passed(mark_delete)
        dispatcher.wake()

    def _check_end(self) -> None:
        if self.topic.terminated:
            for consumer in self.consumers:
                self.reached_end(consumer)

    def redeliver(self, consumer: Consumer, message: Any) -> None:
        """Applies a REDELIVER command."""
        if self.fenced or self.dispatcher is None:
            return
        known = -1 if consumer.epoch is None else consumer.epoch
        if self.type not in _MANY and message.HasField("consumer_epoch") and message.consumer_epoch > known:
            consumer.epoch = message.consumer_epoch
        ids = [Position(place.ledgerId, place.entryId) for place in message.message_ids]
        self.dispatcher.redeliver(consumer, ids or None)

    # -- the cursor ----------------------------------------------------------------------------------------------------

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Makes position the next entry, without its messages acknowledged in ack_set. Closes the consumers first.

        Raises:
            Refusal: SERVICE_NOT_READY during another seek. Conflict, Unavailable: the position could not be stored.
        """
        if self.fenced:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "Failed to fence subscription")
        self._moving = asyncio.get_running_loop().create_future()
        asked = position
        try:
            self.disconnect(list(self.consumers))
            if position == EARLIEST:
                position = self.ledger.first_position
            elif position >= LATEST:
                position = self.ledger.next_position(self.ledger.last_confirmed)
            await self.cursor.reset(position, asked)
            if any(ack_set) and self.rules.batch_index_acks:
                self.cursor.ack_batch(position, ack_set)
            if self.dispatcher is not None:
                self.dispatcher.reset()
                self.dispatcher.close()
                self.dispatcher = None
            self._end_reported.clear()
        finally:
            self._moving.set_result(None)
            self._moving = None
            if not self.durable:
                asyncio.get_running_loop().call_later(RECONNECT_S, self._forget_if_still_unused)

    async def settled(self) -> None:
        """Waits for the end of a seek."""
        while self._moving is not None:
            await asyncio.wait((self._moving,))

    def _forget_if_still_unused(self) -> None:
        """Deletes the subscription if its reader has not reconnected after a seek."""
        if not self.consumers and not self.topic.closed:
            self._going = asyncio.ensure_future(self.forget_if_unused())

    async def seek_time(self, ms: int) -> None:
        """Makes the first entry that was published at or after ms the next entry."""
        await self.seek(await self.ledger.find_by_publish_time(ms))

    def close(self, *, notify: bool = True) -> None:
        """Stops dispatch; closes the consumers if `notify` is set."""
        self.closed = True
        if notify:
            self.disconnect(list(self.consumers))
        if self.dispatcher is not None:
            self.dispatcher.close()
