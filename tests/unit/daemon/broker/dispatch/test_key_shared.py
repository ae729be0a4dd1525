"""Key_Shared dispatch: order within keys, slots that move, refused policies, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.broker.cluster.policies import rules_of
from bkdaemon.broker.config import load_config
from bkdaemon.broker.dispatch.key_shared import KeyShared
from bkdaemon.broker.dispatch.slots import AutoSplit, Ring, new_division
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.codec.pulsar_hash import SLOTS
from bkctl.model.topic import TopicName
from tests.broker.raw import PORT, RawClient, Stage, on_stage
from tests.broker.scenarios import (
    KEY_SHARED,
    TOPIC,
    NamedConsumer,
    key_of,
    open_topic,
    payload_number,
    producing,
    publish,
    redeliver,
    take_messages,
)
from tests.unit.log.logs import Broker, on_brokers

NAMES = "abcd"


def divided(count: int) -> tuple[AutoSplit, list[NamedConsumer]]:
    division, people = AutoSplit(), [NamedConsumer(name) for name in NAMES[:count]]
    for one in people:
        division.add(one)  # type: ignore[arg-type]
    return division, people


def told(division: AutoSplit) -> list[tuple[int, int, str]]:
    return [(first, last, owner.name) for first, last, owner in division.ranges()]


def test_each_joining_consumer_gets_the_lower_half_of_the_first_widest_range() -> None:
    assert told(divided(0)[0]) == []
    assert divided(0)[0].owner(1) is None
    assert told(divided(1)[0]) == [(0, 65536, "a")]
    assert told(divided(2)[0]) == [(0, 32768, "b"), (32769, 65536, "a")]
    division, people = divided(4)
    assert told(division) == [(0, 16384, "c"), (16385, 32768, "b"), (32769, 49152, "d"), (49153, 65536, "a")]
    owners = [division.owner(slot) for slot in range(1, SLOTS)]
    assert [owners.count(one) for one in people] == [16383, 16384, 16384, 16384]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("leaving", "expected"),
    [
        ("c", [(0, 32768, "b"), (32769, 49152, "d"), (49153, 65536, "a")]),
        ("b", [(0, 16384, "c"), (16385, 49152, "d"), (49153, 65536, "a")]),
        ("a", [(0, 16384, "c"), (16385, 32768, "b"), (32769, 65536, "d")]),
    ],
)
def test_the_range_of_a_leaving_consumer_goes_to_its_neighbor(leaving: str, expected: list[object]) -> None:
    division, people = divided(4)
    for _ in range(2):  # the second time it is gone already
        division.remove(people[NAMES.index(leaving)])  # type: ignore[arg-type]
        assert told(division) == expected
    for one in people:
        division.remove(one)  # type: ignore[arg-type]
    assert told(division) == []


def test_the_configuration_selects_the_division(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    text = "clusterName=c\nmetadataStoreUrl=zk:127.0.0.1:2181\nsubscriptionKeySharedUseConsistentHashing="
    for value in ("true", "false"):
        path.write_text(f"{text}{value}\n")
        rules = rules_of(load_config(path), {}, TopicName.parse(TOPIC))
        assert rules.consistent_hashing is (value == "true")
    assert isinstance(new_division(TopicRules(), sticky=False), Ring)
    assert isinstance(new_division(TopicRules(consistent_hashing=False), sticky=False), AutoSplit)


def test_two_consumers_of_auto_split_share_consecutive_keys_evenly() -> None:
    async def scenario(stage: Stage) -> None:
        client: RawClient = await producing(stage)
        for consumer_id in range(2):
            await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=consumer_id)
            client.flow(1000, consumer_id)
        await publish(client, 0, 200, keys=200)
        said = await client.messages(200)
        counts = [sum(one.message.consumer_id == i for one in said) for i in range(2)]
        assert min(counts) > 75

    on_stage(scenario, rules=TopicRules(consistent_hashing=False))


def test_the_holder_of_a_chunk_keeps_its_moved_key_until_the_message_is_complete() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        client.flow(1000, 0)
        for n in range(20):  # the first of two chunks of a message, of each of 20 keys
            client.publish(n, uuid=f"p-{n}", chunk_id=0, num_chunks_from_msg=2, partition_key=f"k{n}")
        first = await client.messages(20)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 1)
        await publish(client, 20, 20, keys=20)  # lies between the chunks
        for n in range(20):
            client.publish(40 + n, uuid=f"p-{n}", chunk_id=1, num_chunks_from_msg=2, partition_key=f"k{n}")
        rest = await client.messages(40)
        assert {s.message.consumer_id for s in first + rest} == {0}
        await publish(client, 60, 20, keys=20)
        client.ack(*first, *rest)
        late = await client.messages(20)
        assert {s.message.consumer_id for s in late} == {0, 1}, "a complete message's key moves"

    on_stage(scenario)


def test_replay_takes_no_more_entries_than_their_consumer_has_permits_for() -> None:
    """For each permit of a consumer, every entry in replay was read again, from bookies once the cache was full."""

    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 1)
        await publish(client, 0, 100, keys=20)
        dispatcher = open_topic(stage).subscriptions["s"].dispatcher
        assert isinstance(dispatcher, KeyShared)
        await client.until(lambda: dispatcher.subscription.cursor.read_position.entry_id >= 100)
        delivered = await client.messages(100 - len(dispatcher.replay))
        assert {one.message.consumer_id for one in delivered} == {1}
        waiting = sorted(dispatcher.replay)
        assert len(waiting) >= 10
        slow = next(consumer for consumer in dispatcher.consumers if not consumer.permits)
        slow.permits = 2
        assert dispatcher._take_replay() == waiting[:2]

    on_stage(scenario)


def test_a_moved_slot_waits_for_its_former_consumer() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        client.flow(1000, 0)
        await publish(client, 0, 40, keys=20)
        held = await client.messages(40)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 1)
        await publish(client, 40, 40, keys=20)
        await asyncio.sleep(1)
        early = take_messages(client)
        assert {s.message.consumer_id for s in early} == {0}, "what moved waits"
        moved = {f"k{i}" for i in range(20)} - {key_of(s) for s in early}
        assert moved
        client.ack(*[s for s in held if key_of(s) in moved])
        late = await client.messages(40 - len(early))
        assert {s.message.consumer_id for s in late} == {1}
        assert {key_of(s) for s in late} == moved

    on_stage(scenario)


def test_no_entry_overtakes_an_older_one_of_its_key() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED)
        await publish(client, 0, 4, keys=2)
        client.flow(4)
        said = await client.messages(4)
        redeliver(client, *said)
        await publish(client, 4, 4, keys=2)
        client.flow(3)
        first = await client.messages(3)
        client.flow(20)
        order = [payload_number(s) for s in first + await client.messages(5)]
        for parity in (0, 1):
            assert [n for n in order if n % 2 == parity] == list(range(parity, 8, 2))

    on_stage(scenario)


def test_entries_of_a_closed_consumer_precede_later_ones_of_their_key() -> None:
    other = "persistent://public/default/other"

    async def main(broker: Broker) -> None:
        stage = Stage(broker)
        await stage.server.start("client", PORT)
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(100, 1)
        await publish(client, 0, 60, keys=20)
        await asyncio.sleep(1)
        theirs = {key_of(s) for s in take_messages(client)}
        client.flow(1, 0)
        (held,) = await client.messages(1)  # the first of its key; the second waits
        assert key_of(held) not in theirs
        await client.produce(other, 9)  # read last, it is what the cache still has
        client.publish(0, b"x", 9)
        await client.next(Command.SEND_RECEIPT)
        await client.subscribe(other, consumer_id=2)
        client.flow(1, 2)
        await client.messages(1)
        flow = encode_command(Command.FLOW, consumer_id=0, messagePermits=100)  # reads the second,
        client.write(flow + encode_command(Command.CLOSE_CONSUMER, consumer_id=0, request_id=1000))  # the first is back
        await asyncio.sleep(1)
        said = take_messages(client)
        assert payload_number(held) in {payload_number(s) for s in said if s.message.consumer_id == 1}
        for name in {key_of(s) for s in said} - theirs:
            order = [payload_number(s) for s in said if key_of(s) == name and s.message.consumer_id == 1]
            assert order == sorted(order), name
        await stage.server.stop()

    on_brokers(main, cache={"tail_bytes_max": 1, "catch_up_bytes_max": 1})


def test_a_consumer_without_permits_does_not_block_the_others() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 0)
        await asyncio.sleep(1)
        await publish(client, 0, 300, keys=30)
        await asyncio.sleep(1)
        first = take_messages(client)
        assert {s.message.consumer_id for s in first} == {0}
        assert 0 < len(first) < 300
        client.flow(1000, 1)
        second = await client.messages(300 - len(first))
        assert {s.message.consumer_id for s in second} == {1}
        for said in (first, second):
            for k in range(30):
                numbers = [payload_number(s) for s in said if key_of(s) == f"k{k}"]
                assert numbers in ([], list(range(k, 300, 30)))

    on_stage(scenario)


def test_overlapping_ranges_and_differing_policies_are_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)

        def sticky(*ranges: tuple[int, int]) -> Any:
            meta = api.KeySharedMeta(keySharedMode=1)
            for start, end in ranges:
                meta.hashRanges.add(start=start, end=end)
            return meta

        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0, keySharedMeta=sticky((0, 100)))
        for consumer_id, meta in enumerate((sticky((100, 200)), sticky(), sticky((5, 4)), sticky((0, 99999)), None), 1):
            answer = await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=consumer_id, keySharedMeta=meta)
            assert answer.error == (ErrorCode.CONSUMER_BUSY if meta is None else ErrorCode.CONSUMER_ASSIGN)
        fine = await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=9, keySharedMeta=sticky((101, 65535)))
        assert not hasattr(fine, "error")

    on_stage(scenario)
