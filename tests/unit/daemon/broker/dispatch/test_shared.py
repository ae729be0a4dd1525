"""Shared dispatch under acks, redeliveries, priorities, chunks and full consumers, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.topic import Topic
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, SubscriptionType
from bkctl.codec.pulsar_entry import split_entry
from bkctl.errors import Unavailable
from bkctl.model.topic import Position, TopicName
from tests.broker.backend import SETTINGS
from tests.broker.raw import Said, Stage, batch_of, on_stage
from tests.broker.scenarios import (
    KEY_SHARED,
    SHARED,
    TOPIC,
    key_of,
    open_topic,
    payload_number,
    producing,
    publish,
    publish_chunk,
    redeliver,
    take_messages,
)
from tests.unit.log.logs import until

MIB = 1 << 20

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 8)),
        st.tuples(st.just("flow"), st.integers(0, 2)),
        st.tuples(st.just("ack"), st.integers(0, 2)),
        st.tuples(st.just("nack"), st.integers(0, 2)),
        st.tuples(st.just("join"), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.integers(0, 2)),
    ),
    max_size=30,
)


def test_lower_priorities_get_messages_once_higher_ones_have_no_permits() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=0, priority_level=1)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=1, priority_level=0)
        client.flow(100, 0)
        client.flow(30, 1)
        await asyncio.sleep(1)
        await publish(client, 0, 50)
        said = await client.messages(50)
        assert [s.message.consumer_id for s in said].count(1) == 30

    on_stage(scenario)


def test_redelivered_entries_precede_new_ones_in_order_and_are_counted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        await publish(client, 0, 10)
        client.flow(10)
        said = await client.messages(10)
        redeliver(client, said[7], said[2], said[5])
        await publish(client, 10, 5)
        client.flow(8)
        again = await client.messages(8)
        assert [payload_number(s) for s in again] == [2, 5, 7, 10, 11, 12, 13, 14]
        assert [s.message.redelivery_count for s in again] == [1, 1, 1, 0, 0, 0, 0, 0]
        redeliver(client, again[0])
        client.flow(1)
        assert (await client.messages(1))[0].message.redelivery_count == 2

    on_stage(scenario)


def test_entries_acknowledged_after_a_redelivery_request_are_not_sent_again() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=1)
        await publish(client, 0, 6)
        client.flow(6, 0)
        said = await client.messages(6)
        redeliver(client, *said)
        client.ack(*said[:3], consumer_id=1)  # any consumer may acknowledge any entry
        await asyncio.sleep(1)
        client.flow(10, 1)
        assert [payload_number(s) for s in await client.messages(3)] == [3, 4, 5]
        await asyncio.sleep(1)
        assert take_messages(client) == []

    on_stage(scenario)


def test_a_batch_is_redelivered_whole() -> None:
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


def test_all_chunks_of_a_message_go_to_one_consumer() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        for consumer_id in range(3):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
            client.flow(500, consumer_id)
        await asyncio.sleep(1)
        for i in range(60):
            chunk = {"uuid": f"u{i % 4}", "num_chunks_from_msg": 15, "chunk_id": i // 4, "total_chunk_msg_size": 9}
            client.publish(i, b"%d" % i, **chunk)
        owners: dict[str, set[int]] = {}
        for said in await client.messages(60):
            uuid = split_entry(said.entry)[0].uuid
            owners.setdefault(uuid, set()).add(said.message.consumer_id)
        assert all(len(found) == 1 for found in owners.values())

    on_stage(scenario)


def test_a_chunk_does_not_overtake_a_queued_chunk_of_its_message() -> None:
    """A consumer came back to life between the read of what waits and that of what is new."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        await client.subscribe(TOPIC, kind=1)
        for chunk_id in range(3):
            assert await publish_chunk(client, 0, chunk_id)
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        subscription = topic.subscriptions["s"]
        dispatcher = subscription.dispatcher
        assert isinstance(dispatcher, Shared)
        first = topic.ledger.first_position
        dispatcher._again_later(first)
        subscription.consumers[0].permits = 10
        (second,) = await topic.ledger.read(topic.ledger.next_position(first), 1, 1)
        subscription.cursor.read_position = topic.ledger.next_position(second[0])
        dispatcher._hand_out([second])
        dispatcher.wake()
        assert [split_entry(s.entry)[0].chunk_id for s in await client.messages(3)] == [0, 1, 2]

    on_stage(scenario)


def test_only_the_latest_incomplete_chunked_messages_are_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.broker.dispatch.shared.CHUNKED_MAX", 10)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for consumer_id in range(2):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
            client.flow(1000, consumer_id)
        for i in range(30):
            client.publish(i, uuid=f"begun {i}", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=2)
            await client.next(Command.SEND_RECEIPT)
        dispatcher = open_topic(stage).subscriptions["s"].dispatcher
        assert isinstance(dispatcher, Shared)
        assert len(dispatcher._chunked) == 10
        assert "begun 29" in dispatcher._chunked

    on_stage(scenario)


def test_a_client_that_does_not_read_is_sent_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        (connection,) = stage.server.connections
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(2**31 - 1)
        await asyncio.sleep(1)
        connection.pause_writing()
        await publish(await producing(stage), 0, 20)
        await asyncio.sleep(1)
        assert take_messages(client) == []
        connection.resume_writing()
        assert len(await client.messages(20)) == 20

    on_stage(scenario)


def test_a_consumer_with_too_many_unacknowledged_messages_gets_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 40)
        await client.subscribe(TOPIC, kind=1)
        client.flow(1000)
        said = await client.messages(40)
        client.ack(*said[:5])
        for i in range(40, 50):
            client.publish(i)
        await asyncio.sleep(5)
        assert [s for s in client.said if s.kind == Command.MESSAGE] == []
        client.ack(*said[5:])
        assert len(await client.messages(10)) == 10

    on_stage(scenario, rules=TopicRules(unacked_per_consumer_max=20))


def test_an_ack_that_frees_a_full_subscription_resumes_dispatch() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(1000)
        await publish(client, 0, 15)
        said = await client.messages(10)
        await asyncio.sleep(1)
        assert take_messages(client) == []
        client.ack(*said)  # no permits with it: there are enough
        assert [payload_number(s) for s in await client.messages(5)] == list(range(10, 15))

    on_stage(scenario, rules=TopicRules(unacked_per_subscription_max=10, read_entries_max=5))


@pytest.mark.parametrize("ends", ["ack", "rules"])
def test_dispatch_pauses_while_more_ranges_are_acknowledged_than_stored(ends: str) -> None:
    """dispatcherPauseOnAckStatePersistentEnabled: an ack that leaves few enough ranges, or other rules, end it."""

    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        await publish(client, 0, 20)
        said = await client.messages(10)
        client.ack(*said[2:9:2])  # four ranges, where two are stored
        await asyncio.sleep(1)
        client.flow(10)
        await asyncio.sleep(1)
        assert take_messages(client) == []
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[said[1].message.message_id])
        assert [payload_number(s) for s in await client.messages(1)] == [1], "what was sent before is sent again"
        if ends == "ack":
            client.ack(said[3], said[5])
        else:
            topic = stage.server.topics.open[TopicName.parse(TOPIC)]
            topic.rules = replace(topic.rules, pause_on_ack_state=False)
        assert [payload_number(s) for s in await client.messages(9)] == list(range(10, 19))

    few = replace(SETTINGS, ranges_max=2)
    on_stage(scenario, rules=TopicRules(pause_on_ack_state=True), settings=few)


def test_slices_and_reads_have_the_configured_length() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await publish(client, 0, 24)
        for consumer_id in range(2):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
        for consumer_id in range(2):
            client.flow(100, consumer_id)
        said = await client.messages(24)
        by_number = [s.message.consumer_id for s in sorted(said, key=payload_number)]
        first = by_number[0]
        assert by_number == [(first + i // 3) % 2 for i in range(24)]

    on_stage(scenario, rules=TopicRules(slice_entries=3, read_entries_max=6))


def test_single_messages_go_to_the_consumers_in_turn() -> None:
    """As PersistentDispatcherMultipleConsumers: each read begins with another consumer; slices are parts of a read."""

    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        for consumer_id in range(3):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
            client.flow(100, consumer_id)
        takers = []
        for i in range(9):
            await publish(client, i, 1)
            takers += [s.message.consumer_id for s in await client.messages(1)]
        assert takers == [(takers[0] + i) % 3 for i in range(9)]

    on_stage(scenario)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_redelivered_long_entries_do_not_close_the_connection(kind: SubscriptionType) -> None:
    count = 90

    async def scenario(stage: Stage) -> None:
        client, first = await stage.client(), await stage.client()
        await client.produce(TOPIC)
        await first.subscribe(TOPIC, kind=kind)
        first.flow(1000)
        for i in range(count):
            client.publish(i, bytes(MIB), partition_key="k")
            await client.next(Command.SEND_RECEIPT)
        await first.messages(count)
        first.cut()
        second = await stage.client()
        await second.subscribe(TOPIC, kind=kind)
        second.flow(1000)
        said = await second.messages(count)
        places = [s.message.message_id for s in said]
        second.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=places)
        again = [s.message.message_id.entryId for s in await second.messages(count)]
        assert again == [place.entryId for place in places]

    on_stage(scenario)


def test_entries_after_long_ones_are_redelivered_when_those_are_acknowledged_during_the_read() -> None:
    count = 12

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(1000)
        for i in range(count):
            client.publish(i, bytes(MIB))
            await client.next(Command.SEND_RECEIPT)
        said = await client.messages(count)
        topic = open_topic(stage)
        log, cursor = topic.ledger, topic.subscriptions["s"].cursor
        read_on, acked = log.read_on, list[Position]()

        async def acked_meanwhile(*asked: Any) -> Any:
            found = await read_on(*asked)
            if not acked:
                acked.extend(position for position, _ in found)
                cursor.ack(acked)
            return found

        log.read_on = acked_meanwhile  # type: ignore[method-assign]
        places = [s.message.message_id for s in said]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=places)
        await until(lambda: acked)
        again = await client.messages(count - len(acked))
        assert 0 < len(again) == count - len(acked)
        assert [s.message.message_id.entryId for s in again] == [p.entryId for p in places[len(acked) :]]

    on_stage(scenario)


def test_entries_are_redelivered_after_a_failed_read() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=1)
        client.flow(100)
        for i in range(6):
            client.publish(i, b"%d" % i)
        found = await client.messages(6)
        topic = next(iter(stage.server.topics.open.values()))
        read, failures = topic.ledger.read, [1, 1]

        async def failing(*arguments: Any) -> Any:
            if failures:
                failures.pop()
                raise Unavailable("no bookie answers")
            return await read(*arguments)

        topic.ledger.read = failing
        client.send(20, consumer_id=0, message_ids=[s.message.message_id for s in found])
        again = await client.messages(6)
        assert [int(split_entry(s.entry)[1]) for s in again] == list(range(6))

    on_stage(scenario)


def test_redelivery_counts_of_expired_entries_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.broker.dispatch.shared.REDELIVERIES_KEPT", 10)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=1)
        client.flow(10_000)
        (topic,) = stage.server.topics.open.values()
        subscription: Any = topic.subscriptions["s"]
        for i in range(100):
            client.publish(i)
            (said,) = await client.messages(1)
            place = said.message.message_id
            client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[place])
            (again,) = await client.messages(1)
            assert again.message.redelivery_count == 1
            subscription.cursor.ack((Position(place.ledgerId, place.entryId),))  # as its expiry does
            assert len(subscription.dispatcher.redeliveries) <= 11

    on_stage(scenario)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@settings(max_examples=25, deadline=None)
@given(steps=steps)
def test_every_message_is_acknowledged_once_and_keys_keep_their_order(kind: int, steps: list[tuple[str, int]]) -> None:
    """Acknowledged entries never come again; in the end all were delivered; a key has one holder at a time."""

    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        held: dict[int, list[Said]] = {}
        acked: set[int] = set()
        published = 0

        def hear() -> None:
            for said in take_messages(client):
                consumer_id = said.message.consumer_id
                assert payload_number(said) not in acked, "acknowledged, and sent again"
                others = [s for c, found in held.items() if c != consumer_id for s in found]
                assert payload_number(said) not in {payload_number(s) for s in others}, "two hold one entry"
                if kind == KEY_SHARED:
                    assert key_of(said) not in {key_of(s) for s in others}, "two hold one key"
                    mine = [payload_number(s) for s in held.get(consumer_id, []) if key_of(s) == key_of(said)]
                    assert said.message.redelivery_count or not mine or payload_number(said) > mine[-1]
                held.setdefault(consumer_id, []).append(said)

        async def act(step: str, value: int) -> None:
            nonlocal published
            if step == "publish":
                await publish(client, published, value, keys=3)
                published += value
            elif step == "join" and value not in held:
                await client.subscribe(TOPIC, kind=kind, consumer_id=value)
                held[value] = []
            elif value not in held:
                return
            elif step == "flow":
                client.flow(3, value)
            elif step == "ack":
                gone, held[value] = held[value][:2], held[value][2:]
                client.ack(*gone, consumer_id=value)
                acked.update(map(payload_number, gone))
            elif step == "nack":
                gone, held[value] = held[value], []
                redeliver(client, *gone, consumer_id=value)
            elif step == "leave":
                del held[value]
                await client.ask(Command.CLOSE_CONSUMER, consumer_id=value)

        await client.subscribe(TOPIC, kind=kind, consumer_id=7)
        held[7] = []
        for step, value in steps:
            await act(step, value)
            await asyncio.sleep(0.2)
            hear()
        for consumer_id in held:
            client.flow(10_000, consumer_id)
        for _ in range(60):
            await asyncio.sleep(0.2)
            hear()
            for consumer_id, found in held.items():
                client.ack(*found, consumer_id=consumer_id)
                acked.update(map(payload_number, found))
                held[consumer_id] = []
            if len(acked) == published:
                break
        assert acked == set(range(published))

    on_stage(scenario, rules=TopicRules())
