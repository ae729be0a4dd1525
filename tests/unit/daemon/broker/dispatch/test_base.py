"""Who gets what: Shared and Key_Shared under acks, redeliveries, joiners, leavers and delays, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.broker.dispatch.slots import Ranges, Ring
from bkdaemon.broker.rules import TopicRules
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.codec.pulsar_entry import split_entry
from bkctl.codec.pulsar_hash import SLOTS
from bkctl.model.topic import TopicName
from tests.broker.backend import SETTINGS
from tests.broker.raw import PORT, RawClient, Said, Stage, entry_of, on_stage
from tests.unit.log.logs import Broker, on_brokers

TOPIC = "persistent://public/default/t"
SHARED, FAILOVER, KEY_SHARED = 1, 2, 3


async def producer(stage: Stage) -> RawClient:
    client = await stage.client()
    await client.produce(TOPIC)
    return client


async def publish(client: RawClient, start: int, count: int, keys: int = 0, **metadata: Any) -> None:
    for i in range(start, start + count):
        if keys:
            metadata["partition_key"] = f"k{i % keys}"
        client.publish(i, b"%d" % i, **metadata)
    for _ in range(count):
        await client.next(Command.SEND_RECEIPT)


def number(said: Said) -> int:
    return int(split_entry(said.entry)[1])


def key(said: Said) -> str:
    return str(split_entry(said.entry)[0].partition_key)


def waiting(client: RawClient) -> list[Said]:
    """MESSAGEs that came and were not taken."""
    found = [s for s in client.said if s.kind == Command.MESSAGE]
    client.said[:] = [s for s in client.said if s.kind != Command.MESSAGE]
    return found


def redeliver(client: RawClient, *said: Said, consumer_id: int = 0) -> None:
    places = [s.message.message_id for s in said]
    client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=consumer_id, message_ids=places)


# -- Shared ----------------------------------------------------------------------------------------------------------


def test_lower_priorities_wait_until_higher_ones_are_full() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=0, priority_level=1)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=1, priority_level=0)
        client.flow(100, 0)
        client.flow(30, 1)
        await asyncio.sleep(1)
        await publish(client, 0, 50)
        said = await client.messages(50)
        assert [s.message.consumer_id for s in said].count(1) == 30

    on_stage(scenario)


def test_redelivered_entries_come_before_new_ones_in_their_order_and_counted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        await publish(client, 0, 10)
        client.flow(10)
        said = await client.messages(10)
        redeliver(client, said[7], said[2], said[5])
        await publish(client, 10, 5)
        client.flow(8)
        again = await client.messages(8)
        assert [number(s) for s in again] == [2, 5, 7, 10, 11, 12, 13, 14]
        assert [s.message.redelivery_count for s in again] == [1, 1, 1, 0, 0, 0, 0, 0]
        redeliver(client, again[0])
        client.flow(1)
        assert (await client.messages(1))[0].message.redelivery_count == 2

    on_stage(scenario)


def test_what_was_acknowledged_meanwhile_is_not_sent_again() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=1)
        await publish(client, 0, 6)
        client.flow(6, 0)
        said = await client.messages(6)
        redeliver(client, *said)
        client.ack(*said[:3], consumer_id=1)  # any consumer may acknowledge any entry
        await asyncio.sleep(1)
        client.flow(10, 1)
        assert [number(s) for s in await client.messages(3)] == [3, 4, 5]
        await asyncio.sleep(1)
        assert waiting(client) == []

    on_stage(scenario)


def test_delayed_entries_wait_and_hold_back_nobody() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(100)
        now_ms = stage.world.clock.now_ms()
        await publish(client, 0, 1, deliver_at_time=now_ms + 60_000)
        await publish(client, 1, 1, deliver_at_time=now_ms + 30_000)
        await publish(client, 2, 1)
        assert [number(s) for s in await client.messages(1)] == [2]
        await asyncio.sleep(29)
        assert waiting(client) == []
        assert [number(s) for s in await client.messages(2)] == [1, 0]
        assert stage.world.clock.now_ms() >= now_ms + 60_000

    on_stage(scenario)


def test_all_chunks_of_a_message_go_to_one_consumer() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
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


def test_a_client_that_does_not_read_is_sent_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        (connection,) = stage.server.connections
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(2**31 - 1)
        await asyncio.sleep(1)
        connection.pause_writing()
        await publish(await producer(stage), 0, 20)
        await asyncio.sleep(1)
        assert waiting(client) == []
        connection.resume_writing()
        assert len(await client.messages(20)) == 20

    on_stage(scenario)


def test_an_ack_that_ends_a_full_subscription_is_enough_for_the_next_messages() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(1000)
        await publish(client, 0, 15)
        said = await client.messages(10)
        await asyncio.sleep(1)
        assert waiting(client) == []
        client.ack(*said)  # no permits with it: there are enough
        assert [number(s) for s in await client.messages(5)] == list(range(10, 15))

    on_stage(scenario, rules=TopicRules(unacked_per_subscription_max=10, read_entries_max=5))


@pytest.mark.parametrize("ends", ["ack", "rules"])
def test_nothing_new_while_more_is_acknowledged_than_is_stored(ends: str) -> None:
    """dispatcherPauseOnAckStatePersistentEnabled: an ack that leaves few enough ranges, or other rules, end it."""

    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        await publish(client, 0, 20)
        said = await client.messages(10)
        client.ack(*said[2:9:2])  # four ranges, where two are stored
        await asyncio.sleep(1)
        client.flow(10)
        await asyncio.sleep(1)
        assert waiting(client) == []
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[said[1].message.message_id])
        assert [number(s) for s in await client.messages(1)] == [1], "what was sent before is sent again"
        if ends == "ack":
            client.ack(said[3], said[5])
        else:
            topic = stage.server.topics.open[TopicName.parse(TOPIC)]
            topic.rules = replace(topic.rules, pause_on_ack_state=False)
        assert [number(s) for s in await client.messages(9)] == list(range(10, 19))

    few = replace(SETTINGS, ranges_max=2)
    on_stage(scenario, rules=TopicRules(pause_on_ack_state=True), settings=few)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_message_that_is_larger_than_its_topic_takes(domain: str) -> None:
    """As AbstractTopic.isExceedMaximumMessageSize: with its metadata; chunks are let through."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(f"{domain}://public/default/t")
        most = len(entry_of(0, b"x" * 100))
        stage.server.topics.open[TopicName.parse(f"{domain}://public/default/t")].rules = TopicRules(
            message_size_max=most
        )
        client.publish(0, b"x" * 100)
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 0
        client.publish(1, b"x" * 101)
        told = (await client.next(Command.SEND_ERROR)).message
        words = (1, ErrorCode.NOT_ALLOWED, "Exceed maximum message size")
        assert (told.sequence_id, told.error, told.message) == words
        entry = entry_of(2, b"x" * 101, num_chunks_from_msg=2, chunk_id=0, uuid="u", total_chunk_msg_size=202)
        client.send(Command.SEND, entry, producer_id=0, sequence_id=2, is_chunk=True)
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 2

    on_stage(scenario)


def test_slices_and_reads_are_as_long_as_the_rules_say() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await publish(client, 0, 24)
        for consumer_id in range(2):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
        for consumer_id in range(2):
            client.flow(100, consumer_id)
        said = await client.messages(24)
        by_number = [s.message.consumer_id for s in sorted(said, key=number)]
        first = by_number[0]
        assert by_number == [(first + i // 3) % 2 for i in range(24)]

    on_stage(scenario, rules=TopicRules(slice_entries=3, read_entries_max=6))


def test_messages_that_come_one_by_one_go_round() -> None:
    """As PersistentDispatcherMultipleConsumers: each read begins with another consumer; slices are parts of a read."""

    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        for consumer_id in range(3):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
            client.flow(100, consumer_id)
        takers = []
        for i in range(9):
            await publish(client, i, 1)
            takers += [s.message.consumer_id for s in await client.messages(1)]
        assert takers == [(takers[0] + i) % 3 for i in range(9)]

    on_stage(scenario)


# -- Key_Shared ------------------------------------------------------------------------------------------------------


def test_a_slot_that_moves_waits_for_its_former_consumer() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        client.flow(1000, 0)
        await publish(client, 0, 40, keys=20)
        held = await client.messages(40)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 1)
        await publish(client, 40, 40, keys=20)
        await asyncio.sleep(1)
        early = waiting(client)
        assert {s.message.consumer_id for s in early} == {0}, "what moved waits"
        moved = {f"k{i}" for i in range(20)} - {key(s) for s in early}
        assert moved
        client.ack(*[s for s in held if key(s) in moved])
        late = await client.messages(40 - len(early))
        assert {s.message.consumer_id for s in late} == {1}
        assert {key(s) for s in late} == moved

    on_stage(scenario)


def test_no_entry_overtakes_an_older_one_of_its_key() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED)
        await publish(client, 0, 4, keys=2)
        client.flow(4)
        said = await client.messages(4)
        redeliver(client, *said)
        await publish(client, 4, 4, keys=2)
        client.flow(3)
        first = await client.messages(3)
        client.flow(20)
        order = [number(s) for s in first + await client.messages(5)]
        for parity in (0, 1):
            assert [n for n in order if n % 2 == parity] == list(range(parity, 8, 2))

    on_stage(scenario)


def test_what_a_leaver_held_comes_before_what_was_being_read_of_its_key() -> None:
    other = "persistent://public/default/other"

    async def main(broker: Broker) -> None:
        stage = Stage(broker)
        await stage.server.start("client", PORT)
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(100, 1)
        await publish(client, 0, 60, keys=20)
        await asyncio.sleep(1)
        theirs = {key(s) for s in waiting(client)}
        client.flow(1, 0)
        (held,) = await client.messages(1)  # the first of its key; the second waits
        assert key(held) not in theirs
        await client.produce(other, 9)  # read last, it is what the cache still has
        client.publish(0, b"x", 9)
        await client.next(Command.SEND_RECEIPT)
        await client.subscribe(other, consumer_id=2)
        client.flow(1, 2)
        await client.messages(1)
        flow = encode_command(Command.FLOW, consumer_id=0, messagePermits=100)  # reads the second,
        client.write(flow + encode_command(Command.CLOSE_CONSUMER, consumer_id=0, request_id=1000))  # the first is back
        await asyncio.sleep(1)
        said = waiting(client)
        assert number(held) in {number(s) for s in said if s.message.consumer_id == 1}
        for name in {key(s) for s in said} - theirs:
            order = [number(s) for s in said if key(s) == name and s.message.consumer_id == 1]
            assert order == sorted(order), name
        await stage.server.stop()

    on_brokers(main, cache={"tail_bytes_max": 1, "catch_up_bytes_max": 1})


def test_one_full_consumer_does_not_stop_the_others() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=0)
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(1000, 0)
        await asyncio.sleep(1)
        await publish(client, 0, 300, keys=30)
        await asyncio.sleep(1)
        first = waiting(client)
        assert {s.message.consumer_id for s in first} == {0}
        assert 0 < len(first) < 300
        client.flow(1000, 1)
        second = await client.messages(300 - len(first))
        assert {s.message.consumer_id for s in second} == {1}
        for said in (first, second):
            for k in range(30):
                numbers = [number(s) for s in said if key(s) == f"k{k}"]
                assert numbers in ([], list(range(k, 300, 30)))

    on_stage(scenario)


def test_ranges_that_meet_and_policies_that_differ_are_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producer(stage)

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


class Somebody:
    """A consumer as far as the division of slots is concerned."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_joining_and_leaving_moves_no_slot_between_others() -> None:
    ring = Ring()
    people = [Somebody(f"c{i}") for i in range(5)]
    for one in people[:4]:
        ring.add(one)  # type: ignore[arg-type]
    before = [ring.owner(slot) for slot in range(SLOTS)]
    assert set(before) == set(people[:4])
    ring.add(people[4])  # type: ignore[arg-type]
    after = [ring.owner(slot) for slot in range(SLOTS)]
    assert all(a is b or a is people[4] for a, b in zip(after, before, strict=True))
    assert people[4] in after
    ring.remove(people[4])  # type: ignore[arg-type]
    assert [ring.owner(slot) for slot in range(SLOTS)] == before
    assert Ranges().owner(5) is None


@pytest.mark.parametrize("by_ring", [False, True])
def test_a_partitions_number_picks_who_is_active_or_its_name_if_that_is_wanted(by_ring: bool) -> None:
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


def test_a_consumer_has_so_many_points_on_the_ring() -> None:
    ring = Ring(points_each=1)
    for name in ("a", "b"):
        ring.add(Somebody(name))  # type: ignore[arg-type]
    assert len(ring.ranges()) == 3, "each its arc, and what is beyond the last point is the first one's"


def test_slots_are_divided_as_java_divides_them() -> None:
    """What Pulsar 4.0.7 told of consumers a, b and b of a subscription, and where its keys went."""
    ring, people = Ring(), [Somebody(name) for name in ("a", "b", "b")]
    for one in people:
        ring.add(one)  # type: ignore[arg-type]
    ranges = ring.ranges()
    assert (ranges[0][0], ranges[-1][1]) == (1, SLOTS - 1)
    told = [[(first, last) for first, last, owner in ranges if owner is one] for one in people]  # type: ignore[comparison-overlap]
    assert told[0][:6] == [(79, 115), (260, 403), (1511, 1535), (2849, 3615), (4205, 4372), (5162, 5588)]
    assert told[1][:6] == [(1, 78), (404, 637), (1536, 1942), (2317, 2642), (2735, 2848), (3616, 4128)]
    assert told[2][:6] == [(116, 259), (638, 1510), (1943, 2316), (2643, 2734), (4129, 4204), (4373, 5161)]
    assert all(ring.owner(slot) is owner for first, last, owner in ranges for slot in (first, last))
    owners = [people.index(ring.owner(Ring.slot_of(f"key-{i}".encode()))) for i in range(300)]  # type: ignore[arg-type]
    assert [owners.count(n) for n in range(3)] == [81, 110, 109]
    ring.remove(people[1])  # type: ignore[arg-type]
    ring.add(people[1])  # type: ignore[arg-type]
    assert ring.ranges() == ranges, "who comes back gets what it had"


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


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@settings(max_examples=25, deadline=None)
@given(steps=steps)
def test_whatever_happens_every_message_is_acknowledged_once_and_keys_keep_their_order(
    kind: int, steps: list[tuple[str, int]]
) -> None:
    """Acknowledged entries never come again; in the end all were delivered; a key has one holder at a time."""

    async def scenario(stage: Stage) -> None:
        client = await producer(stage)
        held: dict[int, list[Said]] = {}
        acked: set[int] = set()
        published = 0

        def hear() -> None:
            for said in waiting(client):
                consumer_id = said.message.consumer_id
                assert number(said) not in acked, "acknowledged, and sent again"
                others = [s for c, found in held.items() if c != consumer_id for s in found]
                assert number(said) not in {number(s) for s in others}, "two hold one entry"
                if kind == KEY_SHARED:
                    assert key(said) not in {key(s) for s in others}, "two hold one key"
                    mine = [number(s) for s in held.get(consumer_id, []) if key(s) == key(said)]
                    assert said.message.redelivery_count or not mine or number(said) > mine[-1]
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
                acked.update(map(number, gone))
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
                acked.update(map(number, found))
                held[consumer_id] = []
            if len(acked) == published:
                break
        assert acked == set(range(published))

    on_stage(scenario, rules=TopicRules())
