"""Corners of the protocol where Java's ServerCnx, Producer and Consumer say more than a client usually asks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.broker.protocol.consuming import REPLICATED
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.backend import StoredSchema
from bkdaemon.broker.topic.compatibility import check
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import AccessMode, Command, ErrorCode, SubscriptionType, encode_command
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.codec.pulsar_hash import slot_of, topics_hash
from bkctl.model.topic import Position, TopicName
from tests.broker.raw import RawClient, Stage, batch_of, entry_of, on_stage

TOPIC = "persistent://public/default/t"
NOT_KEPT = "non-persistent://public/default/t"
SHARED, FAILOVER = SubscriptionType.SHARED, SubscriptionType.FAILOVER
EARLIEST = api.MessageIdData(ledgerId=-1, entryId=-1)
LIMITS = ServerLimits()


def served(stage: Stage) -> Topic:
    (topic,) = (t for t in stage.server.topics.open.values() if t.persistent)
    assert isinstance(topic, Topic)
    return topic


def broken(entry: bytes) -> bytes:
    return entry[:-1] + bytes((entry[-1] ^ 1,))


# -- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_a_batch_that_is_not_stored_is_named_by_its_highest_number(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(topic, producer_name="p")
        body = broken(batch_of(5, [b"a", b"b", b"c"]))
        client.send(Command.SEND, body, producer_id=0, sequence_id=5, highest_sequence_id=7, num_messages=3)
        client.send(Command.SEND, broken(entry_of(8)), producer_id=0, sequence_id=8)
        for number in (7, 8):
            told = (await client.next(Command.SEND_ERROR)).message
            assert (told.sequence_id, told.error) == (number, ErrorCode.CHECKSUM)

    on_stage(scenario)


def test_sends_that_ask_for_more_are_refused_in_their_order() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        place = api.MessageIdData(ledgerId=1, entryId=1)
        more: list[dict[str, Any]] = [{}, {"message_id": place}, {}, {"txnid_most_bits": 1, "txnid_least_bits": 2}, {}]
        frames = [
            encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i, **fields)
            for i, fields in enumerate(more)
        ]
        client.write(b"".join(frames))
        told = [(await client.next(Command.SEND_RECEIPT, Command.SEND_ERROR)) for _ in more]
        assert [t.message.sequence_id for t in told] == [0, 1, 2, 3, 4]
        refused = {t.message.sequence_id: t.message for t in told if t.kind == Command.SEND_ERROR}
        assert {k: m.error for k, m in refused.items()} == {1: ErrorCode.NOT_ALLOWED, 3: ErrorCode.NOT_ALLOWED}
        assert refused[1].message == "Only shadow topic supports sending messages with messageId"
        assert served(stage).ledger.last_confirmed.entry_id == 2
        client.send(Command.SEND, entry_of(9), producer_id=7, sequence_id=9, message_id=place)
        await client.end()

    on_stage(scenario)


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (TopicRules(encryption_required=True), ErrorCode.METADATA),
        (TopicRules(backlog_exceeded="producer_exception"), ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION),
    ],
)
def test_a_producer_that_is_refused_leaves_no_schema(rules: TopicRules, code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = api.Schema(name="s", schema_data=b"", type=1)
        assert (await client.produce(TOPIC, schema=schema)).error == code
        asked = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC)
        assert asked.error_code == ErrorCode.TOPIC_NOT_FOUND

    on_stage(scenario, rules=rules)


def test_a_producer_s_first_subscription() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert not hasattr(await client.produce(TOPIC, initial_subscription_name=""), "error")
        assert served(stage).subscriptions == {}
        await client.produce(TOPIC, 1, initial_subscription_name="first")
        assert list(served(stage).subscriptions) == ["first"]
        stage.backend.rules_now = TopicRules(auto_create_subscription=False)
        await stage.server.topics.unload(served(stage).name)
        assert not hasattr(await client.produce(TOPIC, 2, initial_subscription_name="first"), "error")
        refused = await client.produce(TOPIC, 3, initial_subscription_name="second")
        assert refused.error == ErrorCode.NOT_ALLOWED

    on_stage(scenario)


def test_whoever_waits_to_be_alone_hears_that_another_took_over() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, 0, producer_name="a", producer_access_mode=AccessMode.EXCLUSIVE)
        waiting = await client.produce(TOPIC, 1, producer_name="b", producer_access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not waiting.producer_ready
        taker = await stage.client()
        fencing = AccessMode.EXCLUSIVE_WITH_FENCING
        assert (await taker.produce(TOPIC, producer_name="c", producer_access_mode=fencing)).topic_epoch == 1
        told = (await client.next(Command.ERROR)).message
        assert (told.request_id, told.error) == (waiting.request_id, ErrorCode.PRODUCER_FENCED)

    on_stage(scenario)


def test_the_mode_counts_before_the_name_and_all_are_told_the_epoch() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.produce(TOPIC, 0, producer_name="a")).HasField("topic_epoch")
        refused = await client.produce(TOPIC, 1, producer_name="a", producer_access_mode=AccessMode.EXCLUSIVE)
        assert (refused.error, refused.message) == (ErrorCode.PRODUCER_FENCED, "Topic has existing shared producers")
        waiting = await client.produce(TOPIC, 2, producer_name="a", producer_access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not waiting.producer_ready
        refused = await client.produce(TOPIC, 3, producer_name="d")
        assert refused.error == ErrorCode.PRODUCER_BUSY
        await client.ask(Command.CLOSE_PRODUCER, producer_id=0)
        ready = (await client.next(Command.PRODUCER_SUCCESS)).message
        assert (ready.request_id, ready.topic_epoch, ready.producer_ready) == (waiting.request_id, 0, True)
        await client.ask(Command.CLOSE_PRODUCER, producer_id=2)
        shared = await client.produce(TOPIC, 4, producer_name="e")
        assert shared.HasField("topic_epoch")
        assert shared.topic_epoch == 0

    on_stage(scenario)


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_the_name_of_a_producer_whose_client_is_silent_becomes_free(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.produce(topic, producer_name="p")
        assert (await other.produce(topic, producer_name="p")).error == ErrorCode.PRODUCER_BUSY
        held.answers_pings = False
        since = stage.server.now_ms()
        assert not hasattr(await other.produce(topic, producer_name="p"), "error")
        assert stage.server.now_ms() - since >= 1000 * LIMITS.liveness_s
        await held.end()
        other.publish(0)
        assert (await other.next(Command.SEND_RECEIPT, Command.SEND_ERROR)).kind == Command.SEND_RECEIPT

    on_stage(scenario)


def test_what_a_client_gave_up_does_not_take_the_place_of_what_it_asked_for_then() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        one = {"topic": TOPIC, "producer_id": 0, "producer_name": "p"}
        two = {"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 0}
        client.write(
            encode_command(Command.PRODUCER, request_id=1, **one)
            + encode_command(Command.SUBSCRIBE, request_id=2, **two)
            + encode_command(Command.CLOSE_PRODUCER, request_id=3, producer_id=0)
            + encode_command(Command.CLOSE_CONSUMER, request_id=4, consumer_id=0)
            + encode_command(Command.PRODUCER, request_id=5, **one)
            + encode_command(Command.SUBSCRIBE, request_id=6, **two)
        )
        told = [await client.next() for _ in range(4)]
        assert {(t.kind, t.message.request_id) for t in told} == {
            (Command.SUCCESS, 3),
            (Command.SUCCESS, 4),
            (Command.PRODUCER_SUCCESS, 5),
            (Command.SUCCESS, 6),
        }
        client.flow(1)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        await client.messages(1)
        (connection,) = stage.server.connections
        assert (connection.making_producers, connection.making_consumers, client.said) == ({}, {}, [])

    on_stage(scenario)


# -- consumers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_the_place_of_a_consumer_whose_client_is_silent_becomes_free(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.subscribe(topic)
        assert (await other.subscribe(topic)).error == ErrorCode.CONSUMER_BUSY
        held.answers_pings = False
        assert not hasattr(await other.subscribe(topic), "error")
        await held.end()

    on_stage(scenario)


async def refusal(client: RawClient, code: ErrorCode, **fields: Any) -> str:
    told = await client.subscribe(TOPIC, **fields)
    assert told.error == code
    return str(told.message)


def test_subscriptions_that_are_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC, "there", SHARED)
        long = [api.KeyValue(key="k", value="v" * LIMITS.consumer_metadata_max)]
        assert "max size" in await refusal(client, ErrorCode.METADATA, consumer_id=1, metadata=long)
        assert await refusal(client, ErrorCode.PRODUCER_BUSY, name=" ", consumer_id=1) == "Empty subscription name"
        assert "reserved" in await refusal(client, ErrorCode.PRODUCER_BUSY, name="pulsar.repl.x", consumer_id=1)
        topic = served(stage)
        topic.rules = TopicRules(auto_create_subscription=False)
        why = await refusal(client, ErrorCode.SUBSCRIPTION_NOT_FOUND, name="new", consumer_id=1)
        assert why == "Subscription does not exist"
        topic.rules = TopicRules(consumers_max=1)
        why = await refusal(client, ErrorCode.CONSUMER_BUSY, name="there", kind=SHARED, consumer_id=1)
        assert why == "Topic reached max consumers limit"
        assert (await client.subscribe("persistent://a", consumer_id=1)).error == ErrorCode.INVALID_TOPIC_NAME
        told = await client.subscribe(NOT_KEPT, consumer_id=1, read_compacted=True)
        assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, "readCompacted only valid on persistent topics")

    on_stage(scenario)


def test_an_ack_of_a_transaction_counts_for_nothing() -> None:
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
        assert served(stage).subscriptions["s"].cursor.backlog() == 1
        client.ack(one, request_id=71)
        assert not (await client.next(Command.ACK_RESPONSE)).message.HasField("error")
        assert served(stage).subscriptions["s"].cursor.backlog() == 0

    on_stage(scenario)


def test_a_cumulative_ack_within_a_batch_reaches_back_over_the_end_of_a_ledger() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        await stage.server.topics.unload(served(stage).name)  # the next entry is the first of another ledger
        await client.produce(TOPIC, 1, producer_name="p")
        await client.subscribe(TOPIC)
        body = batch_of(1, [b"a", b"b"])
        client.send(Command.SEND, body, producer_id=1, sequence_id=1, num_messages=2)
        place = (await client.next(Command.SEND_RECEIPT)).message.message_id
        assert place.entryId == 0
        place.ack_set.append(0b10)
        client.send(Command.ACK, consumer_id=0, ack_type=1, message_id=[place], request_id=9)
        await client.next(Command.ACK_RESPONSE)
        assert served(stage).subscriptions["s"].cursor.backlog() == 1

    on_stage(scenario, rules=TopicRules(batch_index_acks=False))


def test_a_seek_into_a_batch_brings_what_its_bits_leave() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.send(Command.SEND, batch_of(0, [b"a", b"b", b"c"]), producer_id=0, sequence_id=0, num_messages=3)
        place = (await client.next(Command.SEND_RECEIPT)).message.message_id
        place.ack_set.append(0b110)
        await client.ask(Command.SEEK, consumer_id=0, message_id=place)
        await client.next(Command.CLOSE_CONSUMER)
        await client.subscribe(TOPIC)
        client.flow(10)
        (one,) = await client.messages(1)
        assert list(one.message.ack_set) == [0b110]

    on_stage(scenario)


def test_who_subscribes_during_a_seek_waits_for_it() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        for i in range(3):
            client.publish(i)
            await client.next(Command.SEND_RECEIPT)
        client.send(Command.SEEK, consumer_id=0, request_id=50, message_id=EARLIEST)
        await client.next(Command.CLOSE_CONSUMER)
        assert served(stage).subscriptions["s"].fenced
        assert not hasattr(await client.subscribe(TOPIC), "error")
        assert (await client.next(Command.SUCCESS)).message.request_id == 50

    on_stage(scenario)


def test_a_seek_that_fails_is_an_unknown_error_and_one_without_a_place_is_told_first() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.ask(Command.SEEK, consumer_id=9)
        assert (told.error, told.message) == (
            ErrorCode.METADATA,
            "Message id and message publish time were not present",
        )
        await client.subscribe(TOPIC, kind=SHARED)
        served(stage).subscriptions["s"].closed = True
        told = await client.ask(Command.SEEK, consumer_id=0, message_id=EARLIEST)
        assert (told.error, told.message) == (
            ErrorCode.UNKNOWN,
            "Error when resetting subscription: Failed to fence subscription",
        )
        told = await client.ask(Command.SEEK, consumer_id=0, message_publish_time=1)
        assert told.message.startswith("Reset subscription to publish time error: ")

    on_stage(scenario)


def test_a_subscription_that_is_there_is_moved_back_in_time() -> None:
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


def late(sequence_id: int, at_ms: int) -> bytes:
    return encode_entry(api.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=at_ms), b"x")


def test_the_cursor_of_a_replicated_subscription_is_marked() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC, "r", replicate_subscription_state=True)
        await client.subscribe(TOPIC, "s", consumer_id=1, replicate_subscription_state=False)
        topic = served(stage)
        await stage.server.topics.unload(topic.name)
        await client.subscribe(TOPIC, "r", consumer_id=2)
        cursors = served(stage).ledger.cursors
        assert served(stage) is not topic
        assert (cursors["r"].longs, cursors["s"].longs) == ({REPLICATED: 1}, {})

    on_stage(scenario)


def test_a_reader_of_some_keys_gets_them_alone() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        at = slot_of(b"k1")
        meta = api.KeySharedMeta(keySharedMode=1, hashRanges=[api.IntRange(start=at, end=at)])
        await client.subscribe(TOPIC, durable=False, start_message_id=EARLIEST, keySharedMeta=meta)
        client.flow(10)
        for i in range(6):
            client.publish(i, partition_key=f"k{i % 2 + 1}")
        assert [m.message.message_id.entryId for m in await client.messages(3)] == [0, 2, 4]
        wrong = api.KeySharedMeta(keySharedMode=1, hashRanges=[api.IntRange(start=9, end=5)])
        told = await client.subscribe(TOPIC, "other", consumer_id=1, durable=False, keySharedMeta=wrong)
        assert told.error == ErrorCode.CONSUMER_ASSIGN

    on_stage(scenario)


def test_an_epoch_is_for_consumers_that_get_everything_in_order() -> None:
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


def test_the_last_message_is_no_marker() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.publish(0)
        client.publish(1, marker_type=10)
        client.publish(2, marker_type=10)
        for _ in range(3):
            await client.next(Command.SEND_RECEIPT)
        last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
        assert last.last_message_id.entryId == 0
        await client.produce(f"{TOPIC}2", 1)
        await client.subscribe(f"{TOPIC}2", consumer_id=1)
        client.publish(0, producer_id=1, marker_type=10)
        await client.next(Command.SEND_RECEIPT)
        last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
        assert Position(last.last_message_id.ledgerId, last.last_message_id.entryId) == (-1, -1)

    on_stage(scenario)


def test_statistics_of_a_consumer_that_is_being_made() -> None:
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


def test_a_terminated_topic_keeps_its_last_ledger_as_java_s_broker_needs_one() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        ledger = served(stage).ledger
        await ledger.roll()
        client.publish(1)
        place = (await client.next(Command.SEND_RECEIPT)).message.message_id
        await served(stage).terminate()
        await client.subscribe(TOPIC)
        client.send(Command.ACK, consumer_id=0, ack_type=1, message_id=[place], request_id=80)
        await client.next(Command.ACK_RESPONSE)
        ledger.settings = replace(ledger.settings, retention_s=0, retention_bytes=0)
        await ledger.trim()
        assert ledger.ledgers.ids == [place.ledgerId]

    on_stage(scenario)


# -- what has no producer and no consumer -----------------------------------------------------------------------------


def test_a_pattern_fits_the_topic_and_brings_its_partitions() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        names = [f"persistent://public/default/{n}" for n in ("a.b", "axb", "t-partition-0", "t-partition-1", "tt")]
        for i, name in enumerate(names):
            if "partition" in name:
                stage.backend.partitioned[TopicName.parse(name).partitioned] = 2
            await client.subscribe(name, consumer_id=i)

        async def fitting(pattern: str) -> tuple[bool, list[str]]:
            told = await client.ask(
                Command.GET_TOPICS_OF_NAMESPACE,
                Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                namespace="public/default",
                topics_pattern=pattern,
            )
            return told.filtered, [n.rpartition("/")[2] for n in told.topics]

        assert await fitting("persistent://public/default/t") == (True, ["t-partition-0", "t-partition-1"])
        assert await fitting("public/default/.*-partition-0") == (True, [])
        assert await fitting(r"persistent://public/default/\Qa.b\E") == (True, ["a.b"])
        assert await fitting("(non-persistent://public/default/tt)") == (True, ["tt"])
        assert await fitting("x" * (LIMITS.pattern_length_max + 1)) == (False, [n.rpartition("/")[2] for n in names])

    on_stage(scenario)


def test_watches_that_are_refused_and_one_that_is_asked_for_twice() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        asked = {"namespace": "public/default", "watcher_id": 3}
        kinds = (Command.WATCH_TOPIC_LIST_SUCCESS, Command.ERROR)
        told = await client.ask(Command.WATCH_TOPIC_LIST, *kinds, topics_pattern="x" * 51, **asked)
        assert (told.error, told.message[-2:]) == (ErrorCode.NOT_ALLOWED, "50")
        told = await client.ask(Command.WATCH_TOPIC_LIST, *kinds, topics_pattern="(", **asked)
        assert told.error == ErrorCode.INVALID_TOPIC_NAME
        for _ in range(2):
            told = await client.ask(Command.WATCH_TOPIC_LIST, *kinds, topics_pattern="public/default/.*", **asked)
            assert told.topics_hash == topics_hash([])
        await client.subscribe(TOPIC)
        assert (await client.next(Command.WATCH_TOPIC_UPDATE)).message.new_topics == [TOPIC]
        await client.ask(Command.WATCH_TOPIC_LIST_CLOSE, watcher_id=3)
        assert not [s for s in client.said if s.kind == Command.WATCH_TOPIC_UPDATE]

    on_stage(scenario)


def test_schemas_of_no_topic_and_of_no_version() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC, schema_version=b"")
        assert (told.error_code, told.error_message) == (ErrorCode.INCOMPATIBLE_SCHEMA, "Empty schema version")
        schema = api.Schema(name="s", schema_data=b"", type=1)
        kinds = (Command.GET_OR_CREATE_SCHEMA, Command.GET_OR_CREATE_SCHEMA_RESPONSE)
        stage.backend.rules_now = TopicRules(auto_create_topic=True)
        assert (await client.ask(*kinds, topic=TOPIC, schema=schema)).error_code == ErrorCode.TOPIC_NOT_FOUND
        await client.produce(TOPIC)
        told = await client.ask(*kinds, topic=TOPIC, schema=schema)
        assert (told.HasField("error_code"), told.schema_version) == (False, bytes(8))

    on_stage(scenario)


def avro(*fields: dict[str, Any]) -> bytes:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)}).encode()


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_DEFAULT = {**B, "default": 0}


async def versions(client: RawClient) -> int:
    told = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC)
    return -1 if told.HasField("error_code") else int.from_bytes(told.schema_version, "big")


def test_a_consumer_s_schema_reads_what_is_there_and_is_not_stored() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()

        def schema(*fields: dict[str, Any]) -> Any:
            return api.Schema(name="s", schema_data=avro(*fields), type=4)

        assert not hasattr(await client.subscribe(TOPIC, kind=SHARED, schema=schema(A)), "error")  # nobody was there
        assert await versions(client) == 0
        await client.produce(TOPIC, schema=schema(A))
        spaced = api.Schema(name="s", schema_data=b" " + avro(A), type=4)
        assert (await client.produce(TOPIC, 1, schema=spaced)).schema_version == bytes(8)
        for number, (fields, taken) in enumerate((((A, B_DEFAULT), True), ((), True), ((A, B), False)), 1):
            told = await client.subscribe(TOPIC, kind=SHARED, consumer_id=number, schema=schema(*fields))
            assert hasattr(told, "error") is not taken
        assert told.error == ErrorCode.INCOMPATIBLE_SCHEMA
        assert await versions(client) == 0
        refused = await client.produce(TOPIC, 2, schema=schema(A, B))
        assert refused.error == ErrorCode.INCOMPATIBLE_SCHEMA
        assert (await client.produce(TOPIC, 3, schema=schema(A, B_DEFAULT))).schema_version == bytes(7) + b"\1"

    on_stage(scenario)


def test_a_consumer_s_schema_does_not_become_that_of_a_topic_in_use() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = api.Schema(name="s", schema_data=b"", type=1)
        auto = api.Schema(name="s", schema_data=b"", type=21)
        await client.subscribe(TOPIC, kind=SHARED, schema=auto)
        assert await versions(client) == -1
        await client.subscribe(f"{TOPIC}2", kind=SHARED, consumer_id=1)
        told = await client.subscribe(f"{TOPIC}2", kind=SHARED, consumer_id=2, schema=schema)
        assert told.error == ErrorCode.INCOMPATIBLE_SCHEMA
        assert not hasattr(await client.subscribe(TOPIC, kind=SHARED, consumer_id=3, schema=schema), "error")
        assert await versions(client) == 0

    on_stage(scenario)


def pair(key: bytes, value: bytes, kinds: tuple[str, str] = ("STRING", "AVRO")) -> StoredSchema:
    data = b"".join(len(part).to_bytes(4, "big") + part for part in (key, value))
    return StoredSchema(0, 15, data, {"key.schema.type": kinds[0], "value.schema.type": kinds[1]})


def native(name: str) -> StoredSchema:
    return StoredSchema(0, 20, json.dumps({"rootMessageTypeName": name}).encode(), {})


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        (pair(b"", avro(A, B_DEFAULT)), pair(b"", avro(A)), True),
        (pair(b"", avro(A, B)), pair(b"", avro(A)), False),
        (pair(b"", avro(A), ("STRING", "JSON")), pair(b"", avro(A)), False),
        (StoredSchema(0, 15, b"\0", {}), pair(b"", b""), False),
        (native("a.M"), native("a.M"), True),
        (native("a.N"), native("a.M"), False),
        (StoredSchema(0, 20, b"{", {}), native("a.M"), False),
    ],
)
def test_pairs_and_native_protobuf(new: StoredSchema, old: StoredSchema, fits: bool) -> None:
    if fits:
        check(new, [old], TopicRules())
        return
    with pytest.raises(Refusal) as refused:
        check(new, [old], TopicRules())
    assert refused.value.code == ErrorCode.INCOMPATIBLE_SCHEMA


def test_an_auth_response_without_a_challenge_ends_the_link() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        client.send(Command.AUTH_RESPONSE, response=api.AuthData(auth_method_name="token", auth_data=b"x"))
        told = (await client.next(Command.ERROR)).message
        assert (told.request_id, told.error) == (2**64 - 1, ErrorCode.AUTHENTICATION)
        await client.end()

    on_stage(scenario)


@pytest.mark.parametrize(("version", "checksum"), [(10, False), (11, True)])
def test_a_checksum_is_for_clients_that_compute_it_rightly(version: int, checksum: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(protocol_version=version)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.flow(1)
        client.publish(0)
        (one,) = await client.messages(1)
        assert one.entry.startswith(b"\x0e\x01") is checksum

    on_stage(scenario)


@pytest.mark.parametrize(("version", "told"), [(8, False), (9, True)])
def test_the_end_of_a_topic_is_for_clients_that_know_it(version: int, told: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(protocol_version=version)
        await client.subscribe(TOPIC)
        client.flow(1)
        await served(stage).terminate()
        await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
        assert any(s.kind == Command.REACHED_END_OF_TOPIC for s in client.said) is told

    on_stage(scenario)
