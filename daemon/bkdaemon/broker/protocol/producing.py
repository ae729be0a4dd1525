"""Requests of producers: PRODUCER, CLOSE_PRODUCER, special SENDs. Source: ServerCnx.java (handleProducer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import AccessMode, Command, ErrorCode, encode_command
from bkctl.model.topic import EARLIEST
from bkdaemon.broker.protocol.access import Action
from bkdaemon.broker.protocol.attempt import Attempt
from bkdaemon.broker.protocol.connection import PRODUCERS_MAX
from bkdaemon.broker.protocol.requests import Handler, topic_named
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.compatibility import encode_version, schema_of
from bkdaemon.broker.topic.migration import PRODUCER, redirect_client
from bkdaemon.broker.topic.producers import Producer
from bkdaemon.broker.topic.topic import send_error

if TYPE_CHECKING:
    from bkdaemon.broker.protocol.connection import Connection
    from bkdaemon.broker.topic.topics import AnyTopic

_ACCESS_MODES: Final = frozenset(AccessMode)


def producer(connection: Connection, message: Any) -> None:
    """Handles PRODUCER: creates a producer, or confirms an existing one."""
    producer_id, request_id = message.producer_id, message.request_id
    failed = connection.error_for(request_id)
    if producer_id in connection.producers:
        there = connection.producers[producer_id]
        if there is None or not there.ready:
            failed(ErrorCode.SERVICE_NOT_READY, "Producer is already present on the connection")
        else:
            _confirm_existing(connection, there, request_id)
        return
    if len(connection.producers) >= PRODUCERS_MAX:
        failed(ErrorCode.TOO_MANY_REQUESTS, f"Too many producers on this connection: {PRODUCERS_MAX}")
        return
    attempt = Attempt(connection.producers, connection.producer_attempts, producer_id)
    connection.later(_create(connection, message, attempt), attempt.failing(failed))


def _confirm_existing(connection: Connection, there: Producer, request_id: int) -> None:
    """Confirms an existing producer; like Java without its last sequence id and the topic's epoch."""
    connection.send_command(
        Command.PRODUCER_SUCCESS,
        request_id=request_id,
        producer_name=there.name,
        last_sequence_id=-1,
        schema_version=there.schema_version,
        producer_ready=True,
    )


async def _create(connection: Connection, message: Any, attempt: Attempt[Producer]) -> None:
    name = topic_named(connection, message.topic, Action.PRODUCE)
    topic = await connection.server.topics.get(name, create=True)
    if topic.rules.migrated_to is not None:
        attempt.done()
        redirect_client(connection, PRODUCER, message.producer_id, topic.rules.migrated_to)
        return
    topic.check_admission(encrypted=message.encrypted)  # before a schema is stored for it
    schema = schema_of(message.schema) if message.HasField("schema") else None
    version = await connection.server.schemas.admit(name, schema)
    given = message.producer_name if message.HasField("producer_name") and message.producer_name else None
    new = Producer(
        connection,
        topic,
        message.producer_id,
        given or connection.server.backend.producer_name(),
        generated_name=given is None or not message.user_provided_producer_name,
        mode=message.producer_access_mode if message.producer_access_mode in _ACCESS_MODES else AccessMode.SHARED,
        epoch=message.epoch,
        topic_epoch=message.topic_epoch if message.HasField("topic_epoch") else None,
    )
    new.request_id = message.request_id
    new.schema_version = encode_version(version)
    new.encrypted = message.encrypted
    new.metadata = {m.key: m.value for m in message.metadata}
    new.connected_since_ms = connection.server.now_ms()
    await _first_subscription(topic, message.initial_subscription_name)
    await _admit(connection, new, attempt)


async def _first_subscription(topic: AnyTopic, name: str) -> None:
    """Creates the subscription that a producer requests before its first message."""
    if not name or not topic.persistent or name in topic.subscriptions:
        return
    if not topic.rules.auto_create_subscription:
        raise Refusal(
            ErrorCode.NOT_ALLOWED,
            "Could not create the initial subscription due to the auto subscription creation is not allowed.",
        )
    await topic.subscription(name, durable=True, initial=EARLIEST)


async def _admit(connection: Connection, new: Producer, attempt: Attempt[Producer]) -> None:
    """Adds a producer to its topic, unless the client has cancelled the request."""
    topic = new.topic
    holder = topic.producers.by_name.get(new.name)
    if holder is not None and new.mode == AccessMode.SHARED and holder.connection is not connection:
        await holder.connection.alive()  # a silent client is disconnected, which frees the name
    if not attempt.active:
        raise Refusal(ErrorCode.SERVICE_NOT_READY, "Producer was closed before it was created")
    try:
        await topic.add_producer(new)
    except BaseException:
        await topic.remove_producer(new)
        raise
    if not attempt.active or topic.closed:
        await topic.remove_producer(new)
        raise Refusal(ErrorCode.SERVICE_NOT_READY, "Producer was closed before it was created")
    attempt.done(new)
    connection.producer_ready(new)


def close_producer(connection: Connection, message: Any) -> None:
    """Handles CLOSE_PRODUCER: replies after the last receipt; an unknown producer is closed already."""
    there = connection.producers.pop(message.producer_id, None)
    success = encode_command(Command.SUCCESS, request_id=message.request_id)
    if there is None:
        connection.queue((success,))
        return
    connection.closing_producers[message.producer_id] = there
    there.topic.answer_in_order(there, success)
    connection.server.spawn(there.topic.remove_producer(there))


def send_with_more(connection: Connection, message: Any) -> None:
    """Refuses a SEND within a transaction or with a message id, which only shadow topics support."""
    there = connection.sending(message.producer_id, ((message.sequence_id, message.highest_sequence_id),))
    if there is None:
        return
    why = "Only shadow topic supports sending messages with messageId"
    if message.HasField("txnid_most_bits") and message.HasField("txnid_least_bits"):
        why = "Transaction buffer disable!"
    named = max(message.sequence_id, message.highest_sequence_id)
    there.topic.answer_in_order(there, send_error(there, named, ErrorCode.NOT_ALLOWED, why))


HANDLERS: Final[dict[int, Handler]] = {
    Command.PRODUCER: producer,
    Command.CLOSE_PRODUCER: close_producer,
    Command.SEND: send_with_more,
}
