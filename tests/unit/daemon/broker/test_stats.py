"""The statistics of topics, subscriptions and clients, as Java's broker counts them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.stats import java_time, partitioned_stats, subscription_stats
from bkdaemon.broker.topic.rates import Rates
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command
from tests.broker.admin import Admin, administering
from tests.broker.raw import Stage, batch_of, entry_of, on_stage
from tests.unit.daemon.broker.rest.clients import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    PATH,
    SHARED,
    TOPIC,
    connected,
    stats_of,
)

STEP_S = 10


def test_the_active_consumer_of_a_failover_subscription_is_the_one_that_is_served() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        for consumer_id, name in enumerate(("c", "a", "b")):
            await client.subscribe(TOPIC, kind=FAILOVER, consumer_id=consumer_id, consumer_name=name)
        active = (await admin.topic(TOPIC)).subscriptions["s"].dispatcher.active  # type: ignore[union-attr]
        assert active.name != "c"
        assert (await stats_of(admin))[1]["activeConsumerName"] == active.name

    administering(scenario)


def test_subscriptions_without_a_single_active_consumer_name_none() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.subscribe(TOPIC, kind=EXCLUSIVE)
        assert (await stats_of(admin))[1]["activeConsumerName"] == "c0"
        await client.subscribe(TOPIC, "other", kind=SHARED, consumer_id=1)
        topic = (await stats_of(admin))[0]
        assert "activeConsumerName" not in topic["subscriptions"]["other"]

    administering(scenario)


@pytest.mark.parametrize(("kind", "acked"), [(EXCLUSIVE, 2), (SHARED, 6), (FAILOVER, 2), (KEY_SHARED, 6)])
def test_acknowledgements_are_counted_with_their_times(kind: int, acked: int) -> None:
    """An Exclusive consumer's acknowledgement of a batch counts once, as in Java: only shared ones know its size."""

    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind)
        await admin.service.look()
        start = admin.service.server.now_ms()
        client.flow(100)
        for i in range(3):
            body = batch_of(5 * i, [b"m"] * 5)
            client.send(Command.SEND, body, producer_id=0, sequence_id=5 * i, num_messages=5)
        client.publish(15)
        said = await client.messages(4)
        await asyncio.sleep(STEP_S)
        middle = admin.service.server.now_ms()
        client.ack(said[0], said[3])
        await asyncio.sleep(STEP_S)
        await admin.service.look()
        _, subscription, consumer = await stats_of(admin)
        rate = acked * 1000 / (admin.service.server.now_ms() - start)
        assert subscription["messageAckRate"] == consumer["messageAckRate"] == pytest.approx(rate, rel=0.01)
        assert consumer["avgMessagesPerEntry"] in (4, 5)
        for told in (subscription, consumer):
            assert start <= told["lastConsumedFlowTimestamp"] <= told["lastConsumedTimestamp"] < middle
            assert middle <= told["lastAckedTimestamp"] < middle + 1000
        assert subscription["lastMarkDeleteAdvancedTimestamp"] == consumer["lastAckedTimestamp"]
        assert consumer["lastAckedTime"] == java_time(consumer["lastAckedTimestamp"])
        assert subscription["nonContiguousDeletedMessagesRanges"] == 1
        assert 10 < subscription["nonContiguousDeletedMessagesRangesSerializedSize"] < 30
        text = (await admin.ask("GET", "/metrics")).data.decode()
        line = next(one for one in text.splitlines() if one.startswith("pulsar_subscription_last_acked_timestamp{"))
        assert float(line.split()[-1]) == consumer["lastAckedTimestamp"]

    administering(scenario)


def test_acknowledgements_of_messages_that_another_consumer_holds_count_for_that_consumer() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        topic = await admin.topic(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=0)
        client.flow(100, 0)
        client.send(Command.SEND, batch_of(0, [b"m"] * 5), producer_id=0, sequence_id=0, num_messages=5)
        (said,) = await client.messages(1)
        await client.subscribe(TOPIC, kind=SHARED, consumer_id=1)
        client.ack(said, consumer_id=1)
        client.ack(said, consumer_id=1)  # once more: of nobody's now
        await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
        assert [one.messages_acked for one in topic.subscriptions["s"].consumers] == [0, 6]

    administering(scenario)


def test_chunks_have_a_rate_of_their_own() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        await admin.service.look()
        client.flow(100)
        client.publish(0)
        for i in range(3):
            body = entry_of(1, uuid="u", chunk_id=i, num_chunks_from_msg=3, total_chunk_msg_size=3)
            client.send(Command.SEND, body, producer_id=0, sequence_id=1, is_chunk=True)
        await client.messages(4)
        await asyncio.sleep(STEP_S)
        await admin.service.look()
        topic, subscription, consumer = await stats_of(admin)
        assert topic["msgChunkPublished"]
        (publisher,) = topic["publishers"]
        rates = [one["chunkedMessageRate"] for one in (publisher, subscription, consumer)]
        assert rates == [pytest.approx(3 / STEP_S, rel=0.05)] * 3

    administering(scenario)


def test_counters_include_deleted_subscriptions_and_count_system_subscriptions_apart() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        for number, name in enumerate(("mine", "__system_reader-1")):
            await client.subscribe(TOPIC, name, consumer_id=number)
            client.flow(100, number)
        client.publish(0)
        await client.messages(2)
        before = await admin.ok("GET", f"{PATH}/stats")
        assert before["msgOutCounter"] == 2
        assert 2 * before["bytesOutInternalCounter"] == before["bytesOutCounter"] > 0
        for number in range(2):
            await client.ask(Command.UNSUBSCRIBE, consumer_id=number)
        after = await admin.ok("GET", f"{PATH}/stats")
        counters = ("msgOutCounter", "bytesOutCounter", "bytesOutInternalCounter")
        assert [after[key] for key in counters] == [before[key] for key in counters]
        assert after["subscriptions"] == {}

    administering(scenario)


def test_times_of_partitions_are_not_added_up() -> None:
    def part(size: float, earliest: int) -> dict[str, Any]:
        times = {"lastAckedTimestamp": 5, "msgBacklog": 2, "earliestMsgPublishTimeInBacklog": earliest}
        return {"averageMsgSize": size, "bytesOutInternalCounter": 3, "subscriptions": {"s": times}}

    total = partitioned_stats([part(1.0, 0), part(3.0, 7), part(2.0, 9)])
    assert (total["averageMsgSize"], total["bytesOutInternalCounter"]) == (2.0, 0)
    assert total["subscriptions"]["s"] == {
        "lastAckedTimestamp": 0,
        "msgBacklog": 6,
        "earliestMsgPublishTimeInBacklog": 7,
    }


def test_statistics_count_delayed_messages() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(100)
        soon = stage.server.now_ms() + 10_000
        for i in range(5):
            client.publish(i, deliver_at_time=soon if i < 3 else 0)
        assert len(await client.messages(2)) == 2
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        told = subscription_stats(topic, topic.subscriptions["s"], Rates())
        assert [told[key] for key in ("msgBacklog", "msgDelayed", "msgBacklogNoDelayed", "msgInReplay")] == [5, 3, 2, 0]
        await asyncio.sleep(15)
        told = subscription_stats(topic, topic.subscriptions["s"], Rates())
        assert [told[key] for key in ("msgDelayed", "msgBacklogNoDelayed", "unackedMessages")] == [0, 5, 5]

    on_stage(scenario)
