"""Exclusive and Failover dispatch, permits, reads at the tail, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.codec.pulsar_hash import slot_of
from bkctl.model.topic import TopicName
from tests.broker.raw import Stage, batch_of, entry_of, on_stage
from tests.broker.scenarios import (
    FAILOVER,
    FIRST_ID,
    TOPIC,
    counted_transports,
    entry_ids,
    producing,
)

# -- Shared ----------------------------------------------------------------------------------------------------------


# -- Key_Shared ------------------------------------------------------------------------------------------------------


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


def fetches(stage: Stage) -> list[int]:
    """How many entries each read of a ledger fetches from now on."""
    topic: Any
    (topic,) = stage.server.topics.open.values()
    reads, found = topic.ledger._reads, []
    fetch = reads._fetch

    async def counting(ledger_id: int, first: int, last: int) -> list[bytes]:
        found.append(last - first + 1)
        return await fetch(ledger_id, first, last)

    reads._fetch = counting
    return found


def dispatchers_tasks() -> list[str]:
    """The tasks that dispatchers make from now on."""
    found: list[str] = []

    def made(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        if "dispatch" in work.cr_code.co_filename:
            found.append(work.__name__)
        return asyncio.Task(work, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(made)
    return found


def test_no_more_messages_are_sent_than_permitted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 10)
        await client.subscribe(TOPIC)
        await asyncio.sleep(1)
        assert client.said == []
        client.flow(3)
        assert entry_ids(await client.messages(3)) == [0, 1, 2]
        await asyncio.sleep(1)
        assert client.said == []
        client.flow(2)
        assert entry_ids(await client.messages(2)) == [3, 4]

    on_stage(scenario)


def test_permits_count_messages_and_a_batch_is_not_split() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 0)
        for i in range(4):
            client.send(Command.SEND, batch_of(i * 10, [b"x"] * 10), producer_id=0, sequence_id=i * 10, num_messages=10)
            await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC)
        client.flow(11)
        assert entry_ids(await client.messages(2)) == [0, 1]
        await asyncio.sleep(1)
        client.flow(9)  # 20 were sent for 20
        await asyncio.sleep(1)
        assert client.said == []
        client.flow(1)
        assert entry_ids(await client.messages(1)) == [2]

    on_stage(scenario)


def test_markers_are_acknowledged_and_not_delivered() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 1)
        client.publish(1, marker_type=10)
        client.publish(2)
        await client.subscribe(TOPIC)
        client.flow(10)
        said = await client.messages(2)
        assert entry_ids(said) == [0, 2]
        client.ack(*said)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        (topic,) = stage.server.topics.open.values()
        assert topic.subscriptions["s"].cursor.backlog() == 0

    on_stage(scenario)


def test_subscriptions_at_the_tail_read_no_ledger_and_share_writes() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for number in range(10):
            await client.subscribe(TOPIC, f"s{number}", consumer_id=number)
            client.flow(1000, consumer_id=number)
        await asyncio.sleep(1)
        read = fetches(stage)
        tasks = dispatchers_tasks()
        (writes,) = counted_transports(stage)
        frames = [encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i) for i in range(50)]
        client.write(b"".join(frames))
        await client.until(lambda: sum(s.kind == Command.MESSAGE for s in client.said) == 500)
        assert read == []
        assert tasks == []
        assert len(writes.writes) <= 6  # receipts, then what ten subscriptions were given in the same turn

    on_stage(scenario)


def test_a_reader_with_hash_ranges_gets_only_their_keys() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        at = slot_of(b"k1")
        meta = api.KeySharedMeta(keySharedMode=1, hashRanges=[api.IntRange(start=at, end=at)])
        await client.subscribe(TOPIC, durable=False, start_message_id=FIRST_ID, keySharedMeta=meta)
        client.flow(10)
        for i in range(6):
            client.publish(i, partition_key=f"k{i % 2 + 1}")
        assert [m.message.message_id.entryId for m in await client.messages(3)] == [0, 2, 4]
        wrong = api.KeySharedMeta(keySharedMode=1, hashRanges=[api.IntRange(start=9, end=5)])
        told = await client.subscribe(TOPIC, "other", consumer_id=1, durable=False, keySharedMeta=wrong)
        assert told.error == ErrorCode.CONSUMER_ASSIGN

    on_stage(scenario)


def test_failover_reports_the_active_consumer_as_java_does() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 4)
        await client.subscribe(TOPIC, kind=2, consumer_id=0, priority_level=0)
        assert client.said == []
        await client.subscribe(TOPIC, kind=2, consumer_id=1, priority_level=1)
        client.flow(10, 0)
        client.flow(10, 1)
        changes = [(await client.next()).message for _ in range(3)]
        assert [(c.consumer_id, c.is_active) for c in changes] == [(1, False), (0, True), (1, False)]
        said = await client.messages(4)
        assert {s.message.consumer_id for s in said} == {0}
        client.ack(*said[:2])
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        change = (await client.next()).message
        assert (change.consumer_id, change.is_active) == (1, True)
        again = await client.messages(2)
        assert [(s.message.consumer_id, s.message.message_id.entryId) for s in again] == [(1, 2), (1, 3)]

    on_stage(scenario)


def test_a_change_of_a_failover_group_takes_effect_after_a_second() -> None:
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


@pytest.mark.parametrize("by_ring", [False, True])
def test_the_active_consumer_follows_the_partition_number_or_the_ring_of_names(by_ring: bool) -> None:
    async def scenario(stage: Stage) -> None:
        picked = []
        for partition in range(6):
            name = TopicName.parse(f"{TOPIC}-partition-{partition}")
            topic = await stage.server.topics.get(name, create=True)
            topic.rules = replace(topic.rules, failover_by_ring=by_ring)
            client = await stage.client()
            for index in range(3):
                await client.subscribe(str(name), kind=FAILOVER, consumer_id=index, consumer_name=f"c{index}")
            dispatcher = topic.subscriptions["s"].dispatcher  # type: ignore[union-attr]
            picked.append(dispatcher.active.name)  # type: ignore[union-attr]
        assert (picked == ["c0", "c1", "c2"] * 2) is not by_ring

    on_stage(scenario)
