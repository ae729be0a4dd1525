"""What Java's broker 4.0.7 answered to the same client, where ours answered something else once."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import NO_REQUEST, Command, ErrorCode
from tests.broker.raw import Stage, entry_of, on_stage
from tests.unit.daemon.broker.rest.clients import TOPIC

NOT_KEPT = "non-persistent://public/default/t"
SHARED, FAILOVER, KEY_SHARED = 1, 2, 3
RECORD = b'{"type":"record","name":"R","fields":[]}'


def test_seeking_where_nothing_is_kept_is_done_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(NOT_KEPT)
        earliest = api.MessageIdData(ledgerId=-1, entryId=-1)
        done = await client.ask(Command.SEEK, consumer_id=0, message_id=earliest)
        assert not hasattr(done, "error")
        assert not hasattr(await client.ask(Command.SEEK, consumer_id=0, message_publish_time=1), "error")
        refused = await client.ask(Command.GET_LAST_MESSAGE_ID, consumer_id=0)
        assert refused.error == ErrorCode.UNKNOWN

    on_stage(scenario)


def test_a_failover_group_that_keeps_changing_waits_from_its_first_change_on() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for consumer_id in range(5):  # each is preferred to all before it
            await client.subscribe(TOPIC, kind=FAILOVER, consumer_id=consumer_id, priority_level=9 - consumer_id)
            await asyncio.sleep(0.4)
        told = [(said.message.consumer_id, said.message.is_active) for said in client.said]
        assert sorted(told) == [(0, False), (1, False), (2, True)]
        later = [(await client.next()).message for _ in range(8)][3:]
        assert {c.consumer_id: c.is_active for c in later} == {0: False, 1: False, 2: False, 3: False, 4: True}

    on_stage(scenario)


def test_who_is_refused_is_told_how_it_differs() -> None:
    sticky = api.KeySharedMeta(keySharedMode=1, hashRanges=[api.IntRange(start=0, end=9)])
    unordered = api.KeySharedMeta(keySharedMode=0, allowOutOfOrderDelivery=True)
    ordered = api.KeySharedMeta(keySharedMode=0)
    modes = "key_shared mode of 'STICKY' is different than the connecting consumer's key_shared mode 'AUTO_SPLIT'."
    order = "allows out of order delivery while the connecting consumer does not allow it."

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC, "s", SHARED)
        said = (await client.subscribe(TOPIC, "s", FAILOVER, 1)).message
        assert said == (
            "Subscription is of different type. Active subscription type of 'Shared' is different than the connecting "
            "consumer's type 'Failover'."
        )
        for name, first, text in (("k", sticky, modes), ("u", unordered, order)):
            await client.subscribe(TOPIC, name, KEY_SHARED, 2, keySharedMeta=first)
            said = (await client.subscribe(TOPIC, name, KEY_SHARED, 3, keySharedMeta=ordered)).message
            assert said == f"Subscription is of different type. Active subscription {text}"
            await client.ask(Command.CLOSE_CONSUMER, consumer_id=2)
        json, int32 = api.Schema(name="t", type=2, schema_data=RECORD), api.Schema(name="t", type=8, schema_data=b"")
        await client.produce(TOPIC, 4, schema=json)
        said = (await client.produce(TOPIC, 5, schema=int32)).message
        assert said == "Incompatible schema: exists schema type JSON, new schema type INT32"

    on_stage(scenario)


@pytest.mark.parametrize("kind", [Command.GET_TOPICS_OF_NAMESPACE, Command.WATCH_TOPIC_LIST])
@pytest.mark.parametrize("namespace", ["", "default", "a/b/c/d", "a//b", "a b/c", "p\u00fablico/default"])
def test_a_list_of_what_cannot_be_a_namespace_ends_the_link(kind: Command, namespace: str) -> None:
    fields = {"watcher_id": 1, "topics_pattern": ".*"} if kind == Command.WATCH_TOPIC_LIST else {}

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        client.send(kind, request_id=1, namespace=namespace, **fields)
        await client.end()
        assert client.said == []

    on_stage(scenario)


def test_a_producer_that_is_there_is_told_neither_what_is_stored_nor_an_epoch() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        first = await client.produce(TOPIC, producer_name="p", producer_access_mode=1)
        client.publish(5)
        await client.next(Command.SEND_RECEIPT)
        again = await client.produce(TOPIC, producer_name="p")
        assert (first.topic_epoch, first.last_sequence_id) == (0, -1)
        assert (again.producer_name, again.last_sequence_id, again.producer_ready) == ("p", -1, True)
        assert not again.HasField("topic_epoch")

    on_stage(scenario, rules=TopicRules(deduplication=True))


def test_an_answer_to_no_challenge_ends_the_link() -> None:
    async def scenario(stage: Stage) -> None:
        for connect in (False, True):
            client = await stage.client(connect=connect)
            client.send(Command.AUTH_RESPONSE)
            await client.end()
            assert client.said == []
            client = await stage.client(connect=connect)
            client.send(Command.AUTH_RESPONSE, response=api.AuthData(auth_method_name="none", auth_data=b""))
            told = (await client.next()).message
            assert (told.request_id, told.error, told.message) == (NO_REQUEST, 3, "Failed to authenticate")
            await client.end()

    on_stage(scenario)


def test_a_schema_s_version_is_its_first_eight_bytes() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, schema=api.Schema(name="t", type=2, schema_data=RECORD))
        kinds = (Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE)
        for version in (bytes(8), bytes(64)):
            told = await client.ask(*kinds, topic=TOPIC, schema_version=version)
            assert (told.schema.schema_data, told.schema_version) == (RECORD, bytes(8))
        client.send(Command.GET_SCHEMA, request_id=9, topic=TOPIC, schema_version=bytes(4))
        await client.end()
        assert client.said == []

    on_stage(scenario)


def test_a_pattern_that_is_none_is_an_error() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.ask(Command.GET_TOPICS_OF_NAMESPACE, namespace="public/default", topics_pattern="(")
        assert told.error == ErrorCode.METADATA

    on_stage(scenario)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_namespace_that_is_not_there_has_no_topics_and_no_list_of_those_that_keep_nothing(mode: int) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        kinds = Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, Command.ERROR
        told = await client.ask(*kinds, namespace="public/none", mode=mode)
        if mode == 0:
            assert (list(told.topics), told.changed) == ([], True)
        else:
            assert (told.error, told.message) == (ErrorCode.METADATA, "Namespace not found")
        assert not hasattr(await client.ask(*kinds, namespace="public/default", mode=mode), "error")
        assert not hasattr(await client.ask(*kinds, namespace="pulsar/a:8080", mode=mode), "error")

    on_stage(scenario)


def test_a_producer_has_a_schema_or_none_but_not_one_it_would_learn() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        auto = api.Schema(name="s", schema_data=b"", type=21)
        told = await client.produce(TOPIC, schema=auto)
        why = "Schema AUTO_CONSUME is a client-side schema type"
        assert (told.error, told.message) == (ErrorCode.INCOMPATIBLE_SCHEMA, why)
        await client.produce(TOPIC, 1)
        kinds = Command.GET_OR_CREATE_SCHEMA, Command.GET_OR_CREATE_SCHEMA_RESPONSE
        told = await client.ask(*kinds, topic=TOPIC, schema=auto)
        assert (told.error_code, told.error_message) == (ErrorCode.INCOMPATIBLE_SCHEMA, why)
        assert not hasattr(await client.subscribe(TOPIC, kind=SHARED, schema=auto), "error")

    on_stage(scenario)


def test_what_is_sent_behind_a_close_that_is_not_done_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        client.publish(0)
        client.send(Command.CLOSE_PRODUCER, producer_id=0, request_id=99)
        client.publish(1)
        entry = entry_of(2)
        client.send(Command.SEND, entry, producer_id=0, sequence_id=2, highest_sequence_id=5, num_messages=4)
        client.send(Command.SEND, entry_of(6), producer_id=0, sequence_id=6, txnid_most_bits=1, txnid_least_bits=1)
        for sequence_id in (1, 5, 6):
            told = (await client.next(Command.SEND_ERROR)).message
            assert (told.producer_id, told.sequence_id) == (0, sequence_id)
            assert (told.error, told.message) == (ErrorCode.PERSISTENCE, "Producer is closed")
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 0
        assert (await client.next(Command.SUCCESS)).message.request_id == 99
        assert not hasattr(await client.produce(TOPIC), "error")
        await client.ask(Command.CLOSE_PRODUCER, producer_id=0)
        client.publish(7)
        await client.end()

    on_stage(scenario)


def test_choices_that_are_none_are_the_first_where_they_need_not_be_there() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.produce(TOPIC, producer_access_mode=9)).HasField("topic_epoch")
        await client.produce(NOT_KEPT, 1)
        listed = (Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        assert list((await client.ask(*listed, namespace="public/default", mode=7)).topics) == [TOPIC]
        assert not hasattr(await client.subscribe(TOPIC, initialPosition=9), "error")

    on_stage(scenario)


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        (4, b"", "Invalid schema definition data for AVRO schema"),
        (4, b'{"type":"record","name":5}', "Invalid schema definition data for AVRO schema"),
        (4, b'["null","int"]', "Invalid schema definition data for AVRO schema"),
        (4, b'{"type":"record","name":"B","namespace":"a.A$","fields":[]}', ""),
        (3, b"{}", "Invalid schema definition data for PROTOBUF schema"),
        (2, b"\xff", "Invalid schema definition data for JSON schema"),
        (2, b"{}", "Invalid schema definition data for JSON schema"),
        (2, b'{"type":"object","properties":{}}', ""),
        (1, b"null", ""),
        (1, b"text", "Invalid schema definition data for string schema : 'text'"),
        (8, b"", ""),
        (
            8,
            b"x",
            "Invalid schema definition data for primitive schemas :length of schema data should be zero, but 1 bytes",
        ),
        (15, b"", ""),
        (15, b"\0\0\0\0\xff\xff\xff\xff", ""),
        (20, b"{}", "the schema names no root message"),
        (20, b'{"rootMessageTypeName":"a.B"}', ""),
        (15, b"\0\0\0\1x\0\0\0\0", "Invalid schema definition data for AVRO schema"),
    ],
)
def test_a_definition_that_is_none_is_not_stored(kind: int, data: bytes, why: str) -> None:
    properties = [api.KeyValue(key="key.schema.type", value="AVRO")] if why and kind == 15 else []

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = api.Schema(name="t", type=kind, schema_data=data, properties=properties)
        told = await client.produce(TOPIC, schema=schema)
        if why:
            assert (told.error, told.message[: len(why)]) == (ErrorCode.INCOMPATIBLE_SCHEMA, why)
        else:
            assert told.schema_version == bytes(8)

    on_stage(scenario)


def test_schemas_of_classes_inside_of_others_are_compared() -> None:
    inner = b'{"type":"record","name":"B","namespace":"a.A$","fields":[%s]}'
    field = b'{"name":"a","type":"int"%s}'

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for number, data in enumerate((inner % b"", inner % (field % b',"default":0'), inner % (field % b""))):
            told = await client.produce(TOPIC, number, schema=api.Schema(name="t", type=4, schema_data=data))
            assert hasattr(told, "error") == (number == 2)

    on_stage(scenario, rules=TopicRules(schema_compatibility="BACKWARD_TRANSITIVE"))


def test_ranges_of_keys_are_any_that_do_not_meet() -> None:
    def ranges(*pairs: tuple[int, int]) -> api.KeySharedMeta:
        return api.KeySharedMeta(keySharedMode=1, hashRanges=[api.IntRange(start=s, end=e) for s, e in pairs])

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for number, (meta, why) in enumerate(
            (
                (ranges(), "Ranges for KeyShared policy must not be empty."),
                (ranges((9, 5)), "Fixed hash range start > end for range: [9,5]"),
                (ranges((7, 9), (0, 8)), "Consumer's own ranges conflict: [0,8] overlaps with [7,9]"),
                (ranges((0, 9), (20, 70_000)), ""),
                (ranges((10, 19), (30, 30)), "Range conflict with consumer"),
                (ranges((-5, -1), (10, 19)), ""),
            )
        ):
            told = await client.subscribe(TOPIC, "s", KEY_SHARED, number, keySharedMeta=meta)
            if why:
                assert (told.error, told.message[: len(why)]) == (ErrorCode.CONSUMER_ASSIGN, why)
            else:
                assert not hasattr(told, "error")

    on_stage(scenario)


def test_subscriptions_of_one_name_that_are_kept_or_not() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for name, durable in (("Durable", True), ("NonDurable", False)):
            await client.subscribe(TOPIC, name, durable=durable)
            told = await client.subscribe(TOPIC, name, consumer_id=1, durable=not durable)
            why = f"{name} subscription with the same name already exists."
            assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, why)
            await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)

    on_stage(scenario)


def test_a_reader_that_starts_behind_the_end_goes_by_its_initial_position() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for i in range(3):
            client.publish(i)
        receipts = [(await client.next(Command.SEND_RECEIPT)).message.message_id for _ in range(3)]
        ledger_id, end = receipts[0].ledgerId, 2**63 - 1
        cases = (((ledger_id, 2), 1), ((ledger_id, 3), 0), ((ledger_id, 4), 3), ((end, end), 3))
        for number, (place, count) in enumerate(cases):
            start = api.MessageIdData(ledgerId=place[0], entryId=place[1])
            reader = {"durable": False, "start_message_id": start}
            await client.subscribe(TOPIC, f"r{number}", consumer_id=number, initialPosition=1, **reader)
            client.flow(10, number)
            await asyncio.sleep(1)
            assert len([s for s in client.said if s.kind == Command.MESSAGE]) == count
            client.said.clear()

    on_stage(scenario)


def test_that_a_consumer_leaves_is_no_redelivery() -> None:
    async def scenario(stage: Stage) -> None:
        one, two = await stage.client(), await stage.client()
        await one.produce(TOPIC)
        await one.subscribe(TOPIC, kind=SHARED)
        one.flow(10)
        one.publish(0)
        (first,) = await one.messages(1)
        await two.subscribe(TOPIC, kind=SHARED)
        two.flow(10)
        await one.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        assert [m.message.redelivery_count for m in await two.messages(1)] == [0]
        place = first.message.message_id
        two.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[place])
        assert [m.message.redelivery_count for m in await two.messages(1)] == [1]
        await one.subscribe(TOPIC, kind=SHARED)
        one.flow(10)
        two.cut()
        assert [m.message.redelivery_count for m in await one.messages(1)] == [1]
        await one.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        await one.subscribe(TOPIC, kind=SHARED)
        one.flow(10)
        assert [m.message.redelivery_count for m in await one.messages(1)] == [0]

    on_stage(scenario)


def test_what_no_client_could_read_is_passed_over() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for number, kind in enumerate((0, SHARED)):
            await client.subscribe(TOPIC, f"s{number}", kind, number)
            client.flow(10, number)
        client.send(Command.SEND, b"\xff" * 20, producer_id=0, sequence_id=0)
        client.publish(1)
        said = await client.messages(2)
        assert sorted((m.message.consumer_id, m.message.message_id.entryId) for m in said) == [(0, 1), (1, 1)]
        for number in range(2):
            last = await client.ask(
                Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=number
            )
            assert last.consumer_mark_delete_position.entryId == 0

    on_stage(scenario)
