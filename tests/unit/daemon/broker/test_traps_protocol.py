"""The traps of Pulsar's protocol that no other test names, and what 4.0.7 does with commands out of place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.codec.pulsar_entry import encode_batch
from tests.broker.raw import RawClient, Stage, batch_of, entry_of, on_stage

TOPIC = "persistent://public/default/t"
FLEETING = "non-persistent://public/default/t"
BEFORE = -1
CPP = "Pulsar-CPP-v4.2.0"
SHARED, FAILOVER = 1, 2


async def producing(stage: Stage, count: int = 0, topic: str = TOPIC, **metadata: Any) -> RawClient:
    client = await stage.client()
    await client.produce(topic)
    for i in range(count):
        client.publish(i, b"%d" % i, **metadata)
        await client.next(Command.SEND_RECEIPT)
    return client


def test_01_what_must_be_present_is_present_though_it_is_the_default() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(connect=False)
        client.send(Command.CONNECT, client_version=CPP, protocol_version=20)
        connected = (await client.next()).message
        assert connected.server_version
        assert (connected.protocol_version, connected.max_message_size) == (20, stage.backend.max_message_size)
        lookup = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=TOPIC)
        assert lookup.HasField("response")
        answer = await client.ask(Command.PARTITIONED_METADATA, Command.PARTITIONED_METADATA_RESPONSE, topic=TOPIC)
        assert (answer.HasField("response"), answer.HasField("partitions"), answer.partitions) == (True, True, 0)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        single = encode_batch([(api.SingleMessageMetadata(), b"x")])
        for sequence_id, (entry, index) in enumerate(
            [(entry_of(0, b"x"), -1), (entry_of(1, single, num_messages_in_batch=1), 0)]
        ):
            client.send(Command.SEND, entry, producer_id=0, sequence_id=sequence_id)
            await client.next(Command.SEND_RECEIPT)
            last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
            assert last.last_message_id.batch_index == index

    on_stage(scenario)


def test_02_places_before_the_first_entry_and_behind_the_last_travel_unsigned() -> None:
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


def test_03_requests_of_two_counters_may_have_one_number() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        client.send(Command.LOOKUP, topic=TOPIC, request_id=1)
        client.send(Command.PARTITIONED_METADATA, topic=TOPIC, request_id=1)
        client.send(Command.PRODUCER, topic=TOPIC, producer_id=0, request_id=1)
        said = [await client.next() for _ in range(3)]
        assert {s.kind for s in said} == {
            Command.LOOKUP_RESPONSE,
            Command.PARTITIONED_METADATA_RESPONSE,
            Command.PRODUCER_SUCCESS,
        }
        assert {s.message.request_id for s in said} == {1}

    on_stage(scenario)


def test_04_an_error_is_where_the_client_looks_for_it() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC)
        assert schema.error_code == ErrorCode.TOPIC_NOT_FOUND
        schema = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic="a/b")
        assert schema.error_code == ErrorCode.INVALID_TOPIC_NAME
        assert client.said == [], "no ERROR beside it"

    on_stage(scenario)


def test_06_what_a_producer_sent_is_delivered_to_the_last_byte() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC)
        with_unknown = entry_of(0, b"\x00\xff payload", properties=[api.KeyValue(key="k", value="v")])
        without_checksum = entry_of(1, b"no checksum")[6:]
        batch = batch_of(2, [b"a", b"", b"c"])
        for sequence_id, entry in enumerate((with_unknown, without_checksum, batch)):
            client.send(Command.SEND, entry, producer_id=0, sequence_id=sequence_id)
        client.flow(10)
        said = await client.messages(3)
        assert [s.entry for s in said] == [with_unknown, without_checksum, batch]

    on_stage(scenario)


def test_10_nothing_but_connected_answers_connect() -> None:
    async def scenario(stage: Stage) -> None:
        for asked, answered in ((0, 0), (5, 5), (20, 20), (99, 21)):
            client = await stage.client(connect=False)
            client.send(Command.CONNECT, client_version=CPP, protocol_version=asked, auth_method_name="none")
            first = await client.next()
            assert first.kind == Command.CONNECTED
            assert first.message.protocol_version == min(answered, first.message.protocol_version or answered)
            assert client.said == []

    on_stage(scenario)


def test_11_a_ping_is_answered_under_load() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC)
        client.flow(100_000)
        sends = [encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i) for i in range(5000)]
        loop = asyncio.get_running_loop()
        client.write(b"".join(sends))
        asked = loop.time()
        client.send(Command.PING)
        await client.next(Command.PONG)
        assert loop.time() - asked < 10, "in virtual seconds, of the 30 that a client waits"
        await client.until(lambda: sum(s.kind == Command.MESSAGE for s in client.said) == 5000)

    on_stage(scenario)


def test_12_a_batch_is_delivered_again_whole() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        client.send(Command.SEND, batch_of(0, [b"a", b"b", b"c"]), producer_id=0, sequence_id=0, num_messages=3)
        (first,) = await client.messages(1)
        place = api.MessageIdData()
        place.CopyFrom(first.message.message_id)
        place.batch_index = 1
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[place])
        (again,) = await client.messages(1)
        assert (again.entry, again.message.redelivery_count) == (first.entry, 1)
        assert again.message.message_id.batch_index == -1

    on_stage(scenario)


def test_14_chunks_of_a_message_share_a_sequence_id_and_are_no_duplicates() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        chunks = {"uuid": "p-7", "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
        for chunk_id in range(3):
            client.send(
                Command.SEND,
                entry_of(7, b"x", chunk_id=chunk_id, **chunks),
                producer_id=0,
                sequence_id=7,
                is_chunk=True,
            )
        places = [(await client.next(Command.SEND_RECEIPT)).message.message_id.entryId for _ in range(3)]
        assert places == [0, 1, 2]
        client.publish(8)
        assert (await client.next(Command.SEND_RECEIPT)).message.message_id.entryId == 3

    on_stage(scenario, rules=TopicRules(deduplication=True))


def test_15_a_pattern_is_looked_up_as_if_it_were_a_topic() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(client_version="Pulsar-Java-v4.0.8")
        pattern = "persistent://public/default/from-.*"
        answer = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=pattern)
        assert answer.response == 1  # Connect
        listed = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, namespace="public/default"
        )
        assert list(listed.topics) == [], "the look made no topic"

    on_stage(scenario)


def test_16_topics_that_keep_nothing_are_listed_where_they_are_asked_for() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.produce(FLEETING, producer_id=1)
        for mode, wanted in ((0, [TOPIC]), (1, [FLEETING]), (2, [FLEETING, TOPIC])):
            answer = await client.ask(
                Command.GET_TOPICS_OF_NAMESPACE,
                Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                namespace="public/default",
                mode=mode,
            )
            assert list(answer.topics) == wanted

    on_stage(scenario)


def test_17_the_receipt_of_a_topic_that_keeps_nothing_says_nought() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=FLEETING)
        client.publish(0)
        receipt = (await client.next(Command.SEND_RECEIPT)).message
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)

    on_stage(scenario)


def test_20_a_failover_group_that_changes_waits_a_second() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 2)
        loop = asyncio.get_running_loop()
        for consumer_id in (0, 1):
            await client.subscribe(TOPIC, kind=FAILOVER, consumer_id=consumer_id, priority_level=1 - consumer_id)
            client.flow(10, consumer_id)
        since = loop.time()
        said = await client.messages(2)
        assert {s.message.consumer_id for s in said} == {1}
        assert 0.9 < loop.time() - since < 3
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=1)
        since = loop.time()
        assert {s.message.consumer_id for s in await client.messages(2)} == {0}
        assert 0.9 < loop.time() - since < 3

    on_stage(scenario)


def test_21_both_sides_ping_at_the_same_moment() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        pings = 0
        received = client.data_received

        def hear(data: bytes) -> None:
            nonlocal pings
            if b"\x08\x12\x92\x01" in data:  # the broker's PING: ours goes out in the same tick, before the PONG
                pings += 1
                client.send(Command.PING)
            received(data)

        client.data_received = hear  # type: ignore[method-assign]
        await asyncio.sleep(200)
        assert pings >= 3
        assert not client.ended
        assert sum(s.kind == Command.PONG for s in client.said) == pings

    on_stage(scenario)


# -- section 13: what is answered, what is ignored, what ends the link -------------------------------------------------

PLACE = api.MessageIdData(ledgerId=1, entryId=1)
ENDS = {
    "CONSUMER_STATS of nobody": encode_command(Command.CONSUMER_STATS, request_id=1, consumer_id=77),
    "FLOW of nothing": encode_command(Command.FLOW, consumer_id=0, messagePermits=0),
    "FLOW of less than nothing": encode_command(Command.FLOW, consumer_id=0, messagePermits=2**32 - 5),
    "SUBSCRIBE of no type": encode_command(
        Command.SUBSCRIBE, topic=TOPIC, subscription="x", subType=9, consumer_id=9, request_id=1
    ),
    "SUBSCRIBE with no mode of Key_Shared": encode_command(
        Command.SUBSCRIBE,
        topic=TOPIC,
        subscription="x",
        subType=3,
        consumer_id=9,
        request_id=1,
        keySharedMeta=api.KeySharedMeta(keySharedMode=2),
    ),
    "PRODUCER with a schema of no type": encode_command(
        Command.PRODUCER, topic=TOPIC, producer_id=9, request_id=1, schema=api.Schema(name="", schema_data=b"", type=22)
    ),
    "ACK of no type": encode_command(Command.ACK, consumer_id=77, ack_type=2, message_id=[PLACE]),
    "SEND by nobody": encode_command(Command.SEND, entry_of(0), producer_id=77, sequence_id=0),
    "SEND of nothing": encode_command(Command.SEND, b"", producer_id=0, sequence_id=0),
    "CONNECT again": encode_command(Command.CONNECT, client_version="again"),
    "a type that is none": bytes.fromhex("00000006000000020863"),
    "a frame that is none": b"\xff" * 20,
}
IGNORED = {
    "FLOW of nobody": encode_command(Command.FLOW, consumer_id=77, messagePermits=5),
    "FLOW of nothing of nobody": encode_command(Command.FLOW, consumer_id=77, messagePermits=0),
    "ACK of nobody": encode_command(Command.ACK, consumer_id=77, ack_type=0, message_id=[PLACE]),
    "ACK of nobody, with a receipt wanted": encode_command(
        Command.ACK, consumer_id=77, ack_type=0, message_id=[PLACE], request_id=5
    ),
    "REDELIVER of nobody": encode_command(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=77),
}
ANSWERED: dict[str, tuple[Command, dict[str, Any], Command, ErrorCode | None, str]] = {
    "NEW_TXN": (Command.NEW_TXN, {}, Command.ERROR, ErrorCode.NOT_ALLOWED, "Transactions are not enabled."),
    "TC_CLIENT_CONNECT_REQUEST": (
        Command.TC_CLIENT_CONNECT_REQUEST,
        {"tc_id": 0},
        Command.ERROR,
        ErrorCode.NOT_ALLOWED,
        "Transactions are not enabled.",
    ),
    "SEEK of nobody": (
        Command.SEEK,
        {"consumer_id": 77, "message_publish_time": 5},
        Command.ERROR,
        ErrorCode.METADATA,
        "Consumer not found",
    ),
    "SEEK to nowhere": (
        Command.SEEK,
        {"consumer_id": 0},
        Command.ERROR,
        ErrorCode.METADATA,
        "Message id and message publish time were not present",
    ),
    "GET_LAST_MESSAGE_ID of nobody": (
        Command.GET_LAST_MESSAGE_ID,
        {"consumer_id": 77},
        Command.ERROR,
        ErrorCode.METADATA,
        "Consumer not found",
    ),
    "UNSUBSCRIBE of nobody": (
        Command.UNSUBSCRIBE,
        {"consumer_id": 77},
        Command.ERROR,
        ErrorCode.METADATA,
        "Consumer not found",
    ),
    "CLOSE_CONSUMER of nobody": (Command.CLOSE_CONSUMER, {"consumer_id": 77}, Command.SUCCESS, None, ""),
    "CLOSE_PRODUCER of nobody": (Command.CLOSE_PRODUCER, {"producer_id": 77}, Command.SUCCESS, None, ""),
}


async def beside(stage: Stage) -> RawClient:
    client = await producing(stage)
    await client.subscribe(TOPIC)
    return client


@pytest.mark.parametrize("raw", ENDS.values(), ids=list(ENDS))
def test_13_commands_that_end_the_link(raw: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        client, other = await beside(stage), await stage.client()
        client.write(raw)
        await client.end()
        assert client.said == []
        assert (await other.produce(TOPIC)).producer_ready

    on_stage(scenario)


@pytest.mark.parametrize("raw", IGNORED.values(), ids=list(IGNORED))
def test_13_commands_that_are_ignored(raw: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        client = await beside(stage)
        client.write(raw)
        client.publish(0)
        assert (await client.next()).kind == Command.SEND_RECEIPT
        await asyncio.sleep(1)
        assert client.said == []
        assert not client.ended

    on_stage(scenario)


@pytest.mark.parametrize("case", ANSWERED.values(), ids=list(ANSWERED))
def test_13_commands_that_are_answered(case: tuple[Command, dict[str, Any], Command, ErrorCode | None, str]) -> None:
    kind, fields, wanted, error, text = case

    async def scenario(stage: Stage) -> None:
        client = await beside(stage)
        answer = await client.ask(kind, wanted, **fields)
        if error is not None:
            assert (answer.error, answer.message) == (error, text)
        assert client.said == []
        assert not client.ended

    on_stage(scenario)
