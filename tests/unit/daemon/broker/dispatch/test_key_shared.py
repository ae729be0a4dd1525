"""The division of Key_Shared's slots without consistent hashing, as HashRangeAutoSplitStickyKeyConsumerSelector's."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.broker.cluster.policies import rules_of
from bkdaemon.broker.config import load_config
from bkdaemon.broker.dispatch.key_shared import KeyShared
from bkdaemon.broker.dispatch.slots import AutoSplit, Ring, new_division
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.pulsar_hash import SLOTS
from bkctl.model.topic import TopicName
from tests.broker.raw import RawClient, Stage, on_stage
from tests.unit.daemon.broker.dispatch.test_base import KEY_SHARED, TOPIC, Somebody, producer, publish
from tests.unit.daemon.broker.test_corners import served

NAMES = "abcd"


def divided(count: int) -> tuple[AutoSplit, list[Somebody]]:
    division, people = AutoSplit(), [Somebody(name) for name in NAMES[:count]]
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
        client: RawClient = await producer(stage)
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
        client = await producer(stage)
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
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 1)
        await publish(client, 0, 100, keys=20)
        dispatcher = served(stage).subscriptions["s"].dispatcher
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
