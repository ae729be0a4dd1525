"""Requests of consumers: SUBSCRIBE, FLOW, ACK, SEEK and others. Source: ServerCnx.java (handleSubscribe and later)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import ACK_CUMULATIVE, ACK_INDIVIDUAL, POSITION_EARLIEST, Command, ErrorCode, SubscriptionType
from bkctl.errors import BkctlError, NotFound
from bkctl.model.topic import EARLIEST, LATEST, Position
from bkdaemon.broker.dispatch.consumer import Consumer
from bkdaemon.broker.protocol.access import Action
from bkdaemon.broker.protocol.attempt import Attempt
from bkdaemon.broker.protocol.connection import CONSUMERS_MAX
from bkdaemon.broker.protocol.requests import Handler, topic_named
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.compatibility import AUTO_CONSUME, schema_of
from bkdaemon.broker.topic.migration import CONSUMER, redirect_client
from bkdaemon.broker.topic.subscription import TYPE_NAMES, Subscription, strict_name_refusal
from bkdaemon.broker.topic.topic import Topic, reserved
from bkdaemon.broker.topic.topics import AnyTopic

if TYPE_CHECKING:
    from bkdaemon.broker.protocol.connection import Connection
    from bkdaemon.broker.topic.nonpersistent import NonPersistentSubscription

logger = logging.getLogger(__name__)

AnySubscription: TypeAlias = Union[Subscription, "NonPersistentSubscription"]

REPLICATED: Final = "pulsar.replicated.subscription"
"""The cursor property that marks a replicated subscription."""
PERMITS_MAX: Final = 2**31 - 1
"""Permits of one FLOW; Java reads more as a negative number."""
_ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


def subscribe(connection: Connection, message: Any) -> None:
    """Handles SUBSCRIBE: creates a consumer, or confirms an existing one."""
    consumer_id, request_id = message.consumer_id, message.request_id
    failed = connection.error_for(request_id)
    if consumer_id in connection.consumers:
        if connection.consumers[consumer_id] is None:
            failed(ErrorCode.SERVICE_NOT_READY, "Consumer is already present on the connection")
        else:
            connection.send_command(Command.SUCCESS, request_id=request_id)
        return
    if len(connection.consumers) >= CONSUMERS_MAX:
        failed(ErrorCode.TOO_MANY_REQUESTS, f"Too many consumers on this connection: {CONSUMERS_MAX}")
        return
    attempt = Attempt(connection.consumers, connection.consumer_attempts, consumer_id)
    connection.later(_create(connection, message, attempt), attempt.failing(failed))


async def _create(connection: Connection, message: Any, attempt: Attempt[Consumer]) -> None:
    name = topic_named(connection, message.topic, Action.CONSUME)
    kind = SubscriptionType(message.subType)
    most = connection.server.limits.consumer_metadata_max
    if sum(len(m.key) + len(m.value) for m in message.metadata) > most:
        raise Refusal(ErrorCode.METADATA, f"metadata has a max size of {most} bytes")
    topics, make = connection.server.topics, message.force_topic_creation
    try:
        if not (make or name.persistent or name in topics.open):
            raise NotFound("", topic=str(name))
        topic = await topics.get(name, create=make)
    except NotFound:
        raise Refusal(ErrorCode.TOPIC_NOT_FOUND, f"Topic {name} does not exist") from None
    durable = message.durable and topic.persistent
    await _check(connection, topic, message, durable=durable)
    subscription = await _subscription(topic, message, durable=durable)
    if topic.rules.migrated_to is not None and not (
        isinstance(subscription, Subscription) and subscription.cursor.backlog()
    ):
        attempt.done()
        redirect_client(connection, CONSUMER, message.consumer_id, topic.rules.migrated_to)
        if isinstance(subscription, Subscription):
            await subscription.forget_if_unused()
        return
    new = Consumer(connection, message.consumer_id, message.consumer_name, partition=name.partition)
    new.priority = message.priority_level
    new.auto_schema = message.schema.type == AUTO_CONSUME
    new.read_compacted = message.read_compacted
    new.metadata = {m.key: m.value for m in message.metadata}
    new.connected_since_ms = connection.server.now_ms()
    if message.HasField("consumer_epoch") and kind in _ORDERED:
        new.epoch = message.consumer_epoch
    if kind == SubscriptionType.KEY_SHARED or (kind == SubscriptionType.EXCLUSIVE and message.keySharedMeta.hashRanges):
        new.key_shared = message.keySharedMeta if message.HasField("keySharedMeta") else None
    await _replace_silent_consumer(subscription, kind)
    try:
        if not attempt.active:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "Consumer was closed before it was created")
        identity = f"{connection.peer.rpartition(':')[0]} {new.name} {new.consumer_id}"
        if topic.persistent and not topic.limits.subscribing.admit(topic.rules.subscribe_rate, identity):
            raise Refusal(ErrorCode.NOT_ALLOWED, "Subscribe limited by subscribe rate limit per consumer.")
        _check_room(topic, connection.address)
        subscription.add(new, kind)
    except Refusal:
        await subscription.forget_if_unused()
        raise
    attempt.done(new)
    connection.send_command(Command.SUCCESS, request_id=message.request_id)


async def _check(connection: Connection, topic: AnyTopic, message: Any, *, durable: bool) -> None:
    """Checks a subscription against the topic's rules, in Java's order.

    Raises:
        Refusal: the topic accepts no such consumer.
    """
    kind = TYPE_NAMES[message.subType]
    _check_room(topic, None)
    if topic.rules.strict_subscription_names and message.subscription not in topic.subscriptions:
        wrong = strict_name_refusal(message.subscription)
        if wrong is not None:
            raise Refusal(ErrorCode.PRODUCER_BUSY, wrong)
    if durable and not topic.rules.auto_create_subscription and message.subscription not in topic.subscriptions:
        raise Refusal(ErrorCode.SUBSCRIPTION_NOT_FOUND, "Subscription does not exist")
    if message.HasField("schema"):
        await connection.server.schemas.admit_consumer(topic.name, schema_of(message.schema), used=_used(topic))
    if message.read_compacted and not topic.persistent:
        raise Refusal(ErrorCode.NOT_ALLOWED, "readCompacted only valid on persistent topics")
    if message.read_compacted and message.subType not in _ORDERED:
        raise Refusal(ErrorCode.NOT_ALLOWED, "readCompacted only allowed on failover or exclusive subscriptions")
    if kind == "Key_Shared" and topic.persistent and not topic.rules.key_shared:
        raise Refusal(ErrorCode.NOT_ALLOWED, "Key_Shared subscription is disabled by broker.")
    if kind not in topic.rules.subscription_types:
        raise Refusal(ErrorCode.NOT_ALLOWED, f"Topic[{{{topic.name}}}] doesn't support {kind} sub type!")
    if not message.subscription.strip():
        raise Refusal(ErrorCode.PRODUCER_BUSY, "Empty subscription name")
    if reserved(message.subscription):
        raise Refusal(ErrorCode.PRODUCER_BUSY, "Subscription with reserved subscription name attempted")


def _check_room(topic: AnyTopic, address: str | None) -> None:
    """Raises Refusal if the topic has its maximum of consumers, or that of the client's address."""
    rules = topic.rules
    if 0 < rules.consumers_max <= sum(len(s.consumers) for s in topic.subscriptions.values()):
        raise Refusal(ErrorCode.CONSUMER_BUSY, "Topic reached max consumers limit")
    if address is None or rules.same_address_consumers_max <= 0:
        return
    theirs = sum(c.connection.address == address for s in topic.subscriptions.values() for c in s.consumers)
    if theirs >= rules.same_address_consumers_max:
        raise Refusal(ErrorCode.CONSUMER_BUSY, "Topic reached max same address consumers limit")


def _used(topic: AnyTopic) -> bool:
    """Returns whether a client without a schema uses or used the topic."""
    if not isinstance(topic, Topic):
        return bool(len(topic.producers) or topic.subscriptions)
    consumers = (c for s in topic.subscriptions.values() for c in s.consumers)
    return bool(len(topic.producers) or topic.ledger.ledgers.size_total or not all(c.auto_schema for c in consumers))


async def _subscription(topic: AnyTopic, message: Any, *, durable: bool) -> AnySubscription:
    """Returns the requested subscription; creates it if it is missing, and moves it back in time if requested."""
    there = message.subscription in topic.subscriptions
    found = await topic.subscription(
        message.subscription,
        durable=durable,
        initial=await _initial(topic, message, durable),
        properties={p.key: p.value for p in message.subscription_properties},
    )
    if not isinstance(found, Subscription):
        return found
    if durable and message.replicate_subscription_state and REPLICATED not in found.cursor.longs:
        found.cursor.longs[REPLICATED] = 1
        found.cursor.touch()
    if there and message.start_message_rollback_duration_sec:
        try:
            await found.seek_time(found.now_ms() - 1000 * message.start_message_rollback_duration_sec)
        except BkctlError as error:
            logger.warning(
                "%s: failed to move the cursor back in time: %s; continuing at its position", found, error.message
            )
    await found.settled()
    return found


async def _replace_silent_consumer(subscription: AnySubscription, kind: SubscriptionType) -> None:
    """Removes the Exclusive consumer of a client that does not answer a PING."""
    if kind != SubscriptionType.EXCLUSIVE or subscription.type != kind or not subscription.consumers:
        return
    holder = subscription.consumers[0]
    if not await holder.connection.alive():
        await subscription.remove(holder)


async def _initial(topic: AnyTopic, message: Any, durable: bool) -> Position:
    """Returns the initial position of a new subscription."""
    if isinstance(topic, Topic) and message.start_message_rollback_duration_sec:
        since_ms = topic.now_ms() - 1000 * message.start_message_rollback_duration_sec
        return await topic.ledger.find_by_publish_time(since_ms)
    if not durable and message.HasField("start_message_id"):
        start = Position(message.start_message_id.ledgerId, message.start_message_id.entryId)
        before = Position(start.ledger_id, start.entry_id - (start.ledger_id >= 0 <= start.entry_id))
        if not isinstance(topic, Topic) or before <= topic.ledger.last_confirmed:
            return start  # a position after the end is like none
    return EARLIEST if message.initialPosition == POSITION_EARLIEST else LATEST


def flow(connection: Connection, message: Any) -> None:
    """Handles FLOW: grants permits for more messages."""
    consumer = connection.consumers.get(message.consumer_id)
    if consumer is None:
        return
    if not 0 < message.messagePermits <= PERMITS_MAX:
        connection.end(f"invalid number of permits in FLOW: {message.messagePermits}")
        return
    consumer.flow_ms = connection.server.now_ms()
    consumer.subscription.flow(consumer, message.messagePermits)


def ack(connection: Connection, message: Any) -> None:
    """Handles ACK: takes effect at once; a requested receipt follows when it is durable."""
    if message.ack_type not in (ACK_INDIVIDUAL, ACK_CUMULATIVE):
        connection.end(f"unknown type of ACK: {message.ack_type}")
        return
    consumer = connection.consumers.get(message.consumer_id)
    if consumer is None:
        return
    subscription = consumer.subscription
    consumer.acked_ms = connection.server.now_ms()
    if message.HasField("txnid_most_bits") and message.HasField("txnid_least_bits"):
        _ack_of_transaction(connection, consumer, message)
        return
    subscription.ack(consumer, message)
    if not message.HasField("request_id"):
        return
    consumer_id, request_id = message.consumer_id, message.request_id

    async def work() -> None:
        if subscription.topic.persistent:
            await subscription.cursor.flush()
        connection.send_command(Command.ACK_RESPONSE, consumer_id=consumer_id, request_id=request_id)

    def failed(code: ErrorCode, text: str) -> None:
        connection.send_command(
            Command.ACK_RESPONSE, consumer_id=consumer_id, request_id=request_id, error=code, message=text
        )

    connection.later(work(), failed)


def _ack_of_transaction(connection: Connection, consumer: Consumer, message: Any) -> None:
    """Refuses an ACK within a transaction, as transactions are not supported."""
    if not message.HasField("request_id"):
        return
    cumulative = message.ack_type == ACK_CUMULATIVE
    ignored = cumulative and (len(message.message_id) != 1 or consumer.subscription.type not in _ORDERED)
    connection.send_command(
        Command.ACK_RESPONSE,
        consumer_id=message.consumer_id,
        request_id=message.request_id,
        error=None if ignored else ErrorCode.NOT_ALLOWED,
        message=None if ignored else "Server don't support transaction ack!",
    )


def redeliver(connection: Connection, message: Any) -> None:
    """Handles REDELIVER_UNACKNOWLEDGED_MESSAGES: the messages are the only reply."""
    consumer = connection.consumers.get(message.consumer_id)
    if consumer is not None:
        consumer.subscription.redeliver(consumer, message)


def _consumer(connection: Connection, message: Any) -> Consumer | None:
    """Returns the consumer of a request; sends an error to the client if it is unknown."""
    consumer = connection.consumers.get(message.consumer_id)
    if consumer is None:
        connection.error_for(message.request_id)(ErrorCode.METADATA, "Consumer not found")
    return consumer


def seek(connection: Connection, message: Any) -> None:
    """Handles SEEK: closes the consumers, moves the cursor, then sends SUCCESS."""
    by_id = message.HasField("message_id")
    if not by_id and not message.HasField("message_publish_time"):
        why = "Message id and message publish time were not present"
        connection.error_for(message.request_id)(ErrorCode.METADATA, why)
        return
    consumer = _consumer(connection, message)
    if consumer is None:
        return
    subscription = consumer.subscription

    async def work() -> None:
        if by_id:
            place = message.message_id
            first = place.first_chunk_message_id if place.HasField("first_chunk_message_id") else place
            await subscription.seek(Position(first.ledgerId, first.entryId), list(first.ack_set))
        else:
            since_ms = message.message_publish_time
            await subscription.seek_time(since_ms if since_ms < 2**63 else -1)  # signed in Java
        connection.send_command(Command.SUCCESS, request_id=message.request_id)

    def failed(code: ErrorCode, text: str) -> None:
        what = "Error when resetting subscription" if by_id else "Reset subscription to publish time error"
        connection.error_for(message.request_id)(ErrorCode.UNKNOWN, f"{what}: {text}")

    connection.later(work(), failed)


def unsubscribe(connection: Connection, message: Any) -> None:
    """Handles UNSUBSCRIBE: fails while other consumers are attached, unless it is forced."""
    consumer = _consumer(connection, message)
    if consumer is None:
        return
    subscription = consumer.subscription

    async def work() -> None:
        others = [c for c in subscription.consumers if c is not consumer]
        if others and not message.force:
            raise Refusal(ErrorCode.METADATA, "Unconnected or shared consumer attempting to unsubscribe")
        subscription.disconnect(others)
        connection.forget_consumer(consumer)
        await subscription.remove(consumer)
        if subscription.topic.subscriptions.get(subscription.name) is subscription:
            await subscription.topic.delete_subscription(subscription)
        connection.send_command(Command.SUCCESS, request_id=message.request_id)

    connection.later(work(), connection.error_for(message.request_id))


def close_consumer(connection: Connection, message: Any) -> None:
    """Handles CLOSE_CONSUMER: its unacknowledged entries go to others; an unknown consumer is closed already."""
    consumer = connection.consumers.pop(message.consumer_id, None)
    if consumer is None:
        connection.send_command(Command.SUCCESS, request_id=message.request_id)
        return

    async def work() -> None:
        await consumer.subscription.remove(consumer)
        connection.send_command(Command.SUCCESS, request_id=message.request_id)

    connection.later(work(), connection.error_for(message.request_id))


def get_last_message_id(connection: Connection, message: Any) -> None:
    """Handles GET_LAST_MESSAGE_ID: sends the last entry and the mark-delete position."""
    consumer = _consumer(connection, message)
    if consumer is None:
        return
    subscription = consumer.subscription

    async def work() -> None:
        topic = subscription.topic
        last, batch_index = await topic.last_message_id()
        if consumer.read_compacted:
            last, batch_index = await topic.compaction.last_message_id(last, batch_index)
        partition = consumer.partition
        mark = subscription.cursor.mark_delete
        connection.send_command(
            Command.GET_LAST_MESSAGE_ID_RESPONSE,
            last_message_id=api.MessageIdData(
                ledgerId=last.ledger_id, entryId=last.entry_id, partition=partition, batch_index=batch_index
            ),
            request_id=message.request_id,
            consumer_mark_delete_position=api.MessageIdData(ledgerId=mark.ledger_id, entryId=mark.entry_id),
        )

    connection.later(work(), connection.error_for(message.request_id))


def consumer_stats(connection: Connection, message: Any) -> None:
    """Handles CONSUMER_STATS; rates are averages since the consumer subscribed."""
    if message.consumer_id not in connection.consumers:
        connection.end(f"CONSUMER_STATS of unknown consumer {message.consumer_id}")
        return
    consumer = connection.consumers[message.consumer_id]
    if consumer is None:  # it is being created
        connection.send_command(
            Command.CONSUMER_STATS_RESPONSE,
            request_id=message.request_id,
            error_code=ErrorCode.CONSUMER_NOT_FOUND,
            error_message=f"Consumer {message.consumer_id} not found",
        )
        return
    subscription = consumer.subscription
    backlog = subscription.cursor.backlog() if subscription.topic.persistent else 0
    since_s = max((connection.server.now_ms() - consumer.connected_since_ms) / 1000, 0.001)
    connected = datetime.fromtimestamp(consumer.connected_since_ms / 1000, UTC)
    connection.send_command(
        Command.CONSUMER_STATS_RESPONSE,
        request_id=message.request_id,
        msgRateOut=consumer.messages_out / since_s,
        msgThroughputOut=consumer.bytes_out / since_s,
        msgRateRedeliver=consumer.redelivered / since_s,
        consumerName=consumer.name,
        availablePermits=max(consumer.permits, 0),
        unackedMessages=consumer.unacked,
        blockedConsumerOnUnackedMsgs=consumer.blocked,
        address=f"/{connection.peer}",
        connectedSince=connected.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        type=TYPE_NAMES[subscription.type],
        msgRateExpired=0.0,
        msgBacklog=backlog,
        messageAckRate=consumer.messages_acked / since_s,
    )


HANDLERS: Final[dict[int, Handler]] = {
    Command.SUBSCRIBE: subscribe,
    Command.FLOW: flow,
    Command.ACK: ack,
    Command.REDELIVER_UNACKNOWLEDGED_MESSAGES: redeliver,
    Command.SEEK: seek,
    Command.UNSUBSCRIBE: unsubscribe,
    Command.CLOSE_CONSUMER: close_consumer,
    Command.GET_LAST_MESSAGE_ID: get_last_message_id,
    Command.CONSUMER_STATS: consumer_stats,
}
