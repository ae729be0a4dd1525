"""The age of a topic's oldest backlog, from the closing times of its ledgers, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon.broker.topic.oldest import Oldest, oldest_of

from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import FIRST_ID, TOPIC, open_topic, producing, publish
from tests.unit.log.logs import until


@pytest.mark.parametrize(("now_ms", "age_s"), [(5000, 0), (5999, 0), (6000, 1), (65_000, 60)])
def test_the_age_is_in_whole_seconds(now_ms: int, age_s: int) -> None:
    assert Oldest("s", 5000).age_s(now_ms) == age_s


def test_no_age_is_known_without_a_backlog_or_while_it_starts_in_the_open_ledger() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        topic = open_topic(stage)
        assert oldest_of(topic) is None
        await client.subscribe(TOPIC)
        assert oldest_of(topic) is None
        await publish(client, 0, 2)
        assert topic.subscriptions["s"].cursor.backlog() == 2
        assert oldest_of(topic) is None

    on_stage(scenario)


def test_the_backlog_is_as_old_as_the_close_of_its_first_ledger() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, "slow")
        await client.subscribe(TOPIC, "fast", consumer_id=1)
        client.flow(10, 1)
        topic = open_topic(stage)
        closed_ms = []
        for i in range(2):
            await publish(client, i, 1)
            await asyncio.sleep(60)
            await topic.ledger.roll()
            closed_ms.append(topic.now_ms())
            await asyncio.sleep(60)
        oldest = oldest_of(topic)
        assert oldest is not None
        assert oldest.cursor == "slow"
        assert abs(oldest.since_ms - closed_ms[0]) < 1000
        (first, _) = await client.messages(2)
        client.ack(first, consumer_id=1)
        await until(lambda: topic.subscriptions["fast"].cursor.backlog() == 1)
        assert oldest_of(topic) == oldest, "the cursor with the oldest entry counts"
        topic.subscriptions["slow"].acknowledge_until(topic.subscriptions["fast"].cursor.mark_delete)
        later = oldest_of(topic)
        assert later is not None
        assert abs(later.since_ms - closed_ms[1]) < 1000
        assert later.age_s(topic.now_ms()) == (topic.now_ms() - later.since_ms) // 1000

    on_stage(scenario)


def test_a_reader_has_no_part_in_the_age_of_the_backlog() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 3)
        await client.subscribe(TOPIC, "reader", durable=False, start_message_id=FIRST_ID)
        topic = open_topic(stage)
        await topic.ledger.roll()
        assert topic.subscriptions["reader"].cursor.backlog() == 3
        assert oldest_of(topic) is None

    on_stage(scenario)
