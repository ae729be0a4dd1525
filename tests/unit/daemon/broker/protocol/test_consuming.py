"""Requests about consumers: subscriptions, acknowledgements, seeks and statistics, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.protocol.consuming import REPLICATED
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import NO_REQUEST, Command, ErrorCode, encode_command
from bkctl.codec.pulsar_entry import encode_entry
from tests.broker.raw import RawClient, Stage, batch_of, on_stage
from tests.broker.scenarios import (
    FAILOVER,
    FIRST_ID,
    NON_PERSISTENT_TOPIC,
    SHARED,
    TOPIC,
    entry_ids,
    open_topic,
    producing,
)

LIMITS = ServerLimits()


async def refusal(client: RawClient, code: ErrorCode, **fields: Any) -> str:
    told = await client.subscribe(TOPIC, **fields)
    assert told.error == code
    return str(told.message)


def late(sequence_id: int, at_ms: int) -> bytes:
    return encode_entry(api.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=at_ms), b"x")


BEFORE = -1


async def stats(client: RawClient, consumer_id: int = 0) -> Any:
    return await client.ask(Command.CONSUMER_STATS, Command.CONSUMER_STATS_RESPONSE, consumer_id=consumer_id)


def test_invalid_subscriptions_are_refused_with_java_s_errors() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC, "there", SHARED)
        long = [api.KeyValue(key="k", value="v" * LIMITS.consumer_metadata_max)]
        assert "max size" in await refusal(client, ErrorCode.METADATA, consumer_id=1, metadata=long)
        assert await refusal(client, ErrorCode.PRODUCER_BUSY, name=" ", consumer_id=1) == "Empty subscription name"
        assert "reserved" in await refusal(client, ErrorCode.PRODUCER_BUSY, name="pulsar.repl.x", consumer_id=1)
        topic = open_topic(stage)
        topic.rules = TopicRules(auto_create_subscription=False)
        why = await refusal(client, ErrorCode.SUBSCRIPTION_NOT_FOUND, name="new", consumer_id=1)
        assert why == "Subscription does not exist"
        topic.rules = TopicRules(consumers_max=1)
        why = await refusal(client, ErrorCode.CONSUMER_BUSY, name="there", kind=SHARED, consumer_id=1)
        assert why == "Topic reached max consumers limit"
        assert (await client.subscribe("persistent://a", consumer_id=1)).error == ErrorCode.INVALID_TOPIC_NAME
        told = await client.subscribe(NON_PERSISTENT_TOPIC, consumer_id=1, read_compacted=True)
        assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, "readCompacted only valid on persistent topics")

    on_stage(scenario)


@pytest.mark.parametrize("topic", [TOPIC, NON_PERSISTENT_TOPIC])
def test_an_exclusive_consumer_whose_client_is_silent_is_replaced(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.subscribe(topic)
        assert (await other.subscribe(topic)).error == ErrorCode.CONSUMER_BUSY
        held.answers_pings = False
        assert not hasattr(await other.subscribe(topic), "error")
        await held.end()

    on_stage(scenario)


def test_the_cursor_of_a_replicated_subscription_is_marked() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC, "r", replicate_subscription_state=True)
        await client.subscribe(TOPIC, "s", consumer_id=1, replicate_subscription_state=False)
        topic = open_topic(stage)
        await stage.server.topics.unload(topic.name)
        await client.subscribe(TOPIC, "r", consumer_id=2)
        cursors = open_topic(stage).ledger.cursors
        assert open_topic(stage) is not topic
        assert (cursors["r"].longs, cursors["s"].longs) == ({REPLICATED: 1}, {})

    on_stage(scenario)


def test_subscribing_with_a_rollback_duration_moves_the_cursor_back() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.flow(10)
        client.send(Command.SEND, late(0, stage.server.now_ms() - 60_000), producer_id=0, sequence_id=0)
        client.send(Command.SEND, late(1, stage.server.now_ms()), producer_id=0, sequence_id=1)
        both = await client.messages(2)
        client.ack(*both, request_id=60)
        await client.next(Command.ACK_RESPONSE)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        assert not hasattr(await client.subscribe(TOPIC, start_message_rollback_duration_sec=30), "error")
        client.flow(10)
        (one,) = await client.messages(1)
        assert one.message.message_id == both[1].message.message_id

    on_stage(scenario)


def test_positions_before_the_first_and_after_the_last_entry_are_accepted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 3)
        reader: dict[str, Any] = {"durable": False}
        earliest = api.MessageIdData(ledgerId=BEFORE, entryId=BEFORE)
        assert earliest.SerializeToString().hex() == "08ffffffffffffffffff0110ffffffffffffffffff01"
        latest = api.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1)
        await client.subscribe(TOPIC, "first", start_message_id=earliest, **reader)
        await client.subscribe(TOPIC, "last", consumer_id=1, start_message_id=latest, **reader)
        client.flow(10, 0)
        client.flow(10, 1)
        said = await client.messages(3)
        assert [(s.message.consumer_id, s.message.message_id.entryId) for s in said] == [(0, 0), (0, 1), (0, 2)]
        assert said[0].message.message_id.partition == -1
        await client.subscribe(TOPIC, "s", consumer_id=2)
        before = api.MessageIdData(ledgerId=said[0].message.message_id.ledgerId, entryId=BEFORE)
        client.send(Command.ACK, consumer_id=2, ack_type=1, message_id=[before], request_id=77)
        assert not (await client.next(Command.ACK_RESPONSE)).message.HasField("error")
        client.flow(10, 2)
        assert [s.message.message_id.entryId for s in await client.messages(3)] == [0, 1, 2]

    on_stage(scenario)


def test_an_ack_in_a_transaction_is_refused_and_acknowledges_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.flow(10)
        client.publish(0)
        (one,) = await client.messages(1)
        client.ack(one, request_id=70, txnid_most_bits=1, txnid_least_bits=1)
        told = (await client.next(Command.ACK_RESPONSE)).message
        assert (told.request_id, told.error) == (70, ErrorCode.NOT_ALLOWED)
        assert told.message == "Server don't support transaction ack!"
        assert open_topic(stage).subscriptions["s"].cursor.backlog() == 1
        client.ack(one, request_id=71)
        assert not (await client.next(Command.ACK_RESPONSE)).message.HasField("error")
        assert open_topic(stage).subscriptions["s"].cursor.backlog() == 0

    on_stage(scenario)


def test_seek_closes_the_consumers_before_its_reply() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 5)
        await client.subscribe(TOPIC)
        client.flow(10)
        said = await client.messages(5)
        client.ack(*said)
        assert (await client.ask(Command.SEEK, consumer_id=0)).error == ErrorCode.METADATA
        client.send(Command.SEEK, consumer_id=0, request_id=50, message_id=said[2].message.message_id)
        first, second = await client.next(), await client.next()
        assert (first.kind, first.message.request_id) == (Command.CLOSE_CONSUMER, NO_REQUEST)
        assert (second.kind, second.message.request_id) == (Command.SUCCESS, 50)
        await client.subscribe(TOPIC)
        client.flow(10)
        assert entry_ids(await client.messages(3)) == [2, 3, 4]

    on_stage(scenario)


def test_a_failed_seek_is_an_unknown_error_and_one_without_target_a_metadata_error() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.ask(Command.SEEK, consumer_id=9)
        assert (told.error, told.message) == (
            ErrorCode.METADATA,
            "Message id and message publish time were not present",
        )
        await client.subscribe(TOPIC, kind=SHARED)
        open_topic(stage).subscriptions["s"].closed = True
        told = await client.ask(Command.SEEK, consumer_id=0, message_id=FIRST_ID)
        assert (told.error, told.message) == (
            ErrorCode.UNKNOWN,
            "Error when resetting subscription: Failed to fence subscription",
        )
        told = await client.ask(Command.SEEK, consumer_id=0, message_publish_time=1)
        assert told.message.startswith("Reset subscription to publish time error: ")

    on_stage(scenario)


def test_unsubscribe_fails_beside_other_consumers_unless_forced() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 1)
        await client.subscribe(TOPIC, kind=1)
        await client.subscribe(TOPIC, kind=1, consumer_id=1)
        assert (await client.ask(Command.UNSUBSCRIBE, consumer_id=0)).error == ErrorCode.METADATA
        client.send(Command.UNSUBSCRIBE, consumer_id=0, request_id=90, force=True)
        first, second = await client.next(), await client.next()
        assert (first.kind, first.message.consumer_id) == (Command.CLOSE_CONSUMER, 1)
        assert (second.kind, second.message.request_id) == (Command.SUCCESS, 90)
        (topic,) = stage.server.topics.open.values()
        assert topic.subscriptions == {}

    on_stage(scenario)


def test_the_last_message_id_of_an_empty_topic_of_a_message_and_of_a_batch() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 0)
        await client.subscribe(TOPIC)

        async def last() -> tuple[int, int]:
            answer = await client.ask(
                Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, Command.ERROR, consumer_id=0
            )
            assert answer.HasField("consumer_mark_delete_position")
            return answer.last_message_id.entryId, answer.last_message_id.batch_index

        assert await last() == (-1, -1)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        assert await last() == (0, -1)
        client.send(Command.SEND, batch_of(1, [b"a", b"b"]), producer_id=0, sequence_id=1, num_messages=2)
        await client.next(Command.SEND_RECEIPT)
        assert await last() == (1, 1)
        unknown = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.ERROR, consumer_id=9)
        assert (unknown.error, unknown.message) == (ErrorCode.METADATA, "Consumer not found")

    on_stage(scenario)


def test_consumer_epochs_are_echoed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 2)
        await client.subscribe(TOPIC, consumer_epoch=0)
        client.flow(10)
        assert [s.message.consumer_epoch for s in await client.messages(2)] == [0, 0]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, consumer_epoch=3)
        assert [s.message.consumer_epoch for s in await client.messages(2)] == [3, 3]

    on_stage(scenario)


def test_consumer_epochs_are_sent_only_for_ordered_subscriptions() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, "shared", SHARED, 0, consumer_epoch=3)
        await client.subscribe(TOPIC, "failover", FAILOVER, 1)
        client.flow(10, 0)
        client.flow(10, 1)
        client.publish(0)
        first = {m.message.consumer_id: m.message for m in await client.messages(2)}
        assert not any(m.HasField("consumer_epoch") for m in first.values())
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, consumer_epoch=0)
        (again,) = await client.messages(1)
        assert again.message.HasField("consumer_epoch")
        assert again.message.consumer_epoch == 0
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, consumer_epoch=4)
        (again,) = await client.messages(1)
        assert not again.message.HasField("consumer_epoch")

    on_stage(scenario)


@pytest.mark.parametrize(("kind", "name"), [(0, "Exclusive"), (1, "Shared"), (2, "Failover"), (3, "Key_Shared")])
def test_consumer_stats_have_the_fields_of_java_s_broker(kind: int, name: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind, consumer_name="me")
        client.flow(100)
        client.send(Command.SEND, batch_of(0, [b"a", b"b", b"c"]), producer_id=0, sequence_id=0, num_messages=3)
        client.publish(1)
        said = await client.messages(2)
        await asyncio.sleep(10)
        told = await stats(client)
        assert (told.type, told.consumerName, told.availablePermits) == (name, "me", 96)
        assert (told.msgBacklog, told.blockedConsumerOnUnackedMsgs) == (2, False)
        assert told.msgRateOut > 0
        assert told.msgThroughputOut > told.msgRateOut
        assert told.address.startswith("/")
        assert told.connectedSince.endswith("Z")
        assert not told.HasField("error_code")
        if kind == SHARED:
            assert told.unackedMessages == 4
        client.ack(*said)
        await asyncio.sleep(10)
        told = await stats(client)
        assert (told.msgBacklog, told.unackedMessages) == (0, 0)

    on_stage(scenario)


def test_stats_of_a_consumer_that_is_being_created_are_not_found() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        client.write(
            encode_command(Command.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=4, request_id=1)
            + encode_command(Command.CONSUMER_STATS, request_id=2, consumer_id=4)
        )
        told = (await client.next(Command.CONSUMER_STATS_RESPONSE)).message
        assert (told.error_code, told.error_message) == (ErrorCode.CONSUMER_NOT_FOUND, "Consumer 4 not found")
        assert (await client.next(Command.SUCCESS)).message.request_id == 1

    on_stage(scenario)
