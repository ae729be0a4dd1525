"""Counters of sent messages and bytes: they go on when consumers close and subscriptions are deleted."""

from __future__ import annotations

import pytest
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.rates import subscriptions_of
from bkdaemon.broker.topic.sent import Flow, SentBefore, internal, sent

from bkctl.codec.managed_ledger import COMPACTION_CURSOR
from bkctl.codec.pulsar import Command
from bkctl.model.topic import EARLIEST
from tests.broker.raw import RawClient, Stage, entry_of, on_stage
from tests.broker.scenarios import NON_PERSISTENT_TOPIC, SHARED, TOPIC, open_topic, publish

SIZE = len(entry_of(0, b"0"))


async def consuming(stage: Stage, topic: str, consumers: int) -> RawClient:
    client = await stage.client()
    await client.produce(topic)
    for consumer_id in range(consumers):
        await client.subscribe(topic, kind=SHARED, consumer_id=consumer_id)
        client.flow(100, consumer_id)
    return client


def test_the_average_size_of_no_messages_is_0() -> None:
    assert Flow().average_size == 0
    assert Flow(4, 10).average_size == 2.5


@pytest.mark.parametrize("name", [TOPIC, NON_PERSISTENT_TOPIC])
def test_the_counters_of_a_subscription_keep_what_closed_consumers_were_sent(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await consuming(stage, name, 2)
        said = []
        for i in range(8):
            await publish(client, i, 1)
            said += await client.messages(1)
            client.ack(said[-1], consumer_id=said[-1].message.consumer_id)
        (topic,) = stage.server.topics.open.values()
        (subscription,) = subscriptions_of(topic)
        assert sent(subscription) == (8, 8 * SIZE)
        assert subscription.sent_before == SentBefore()
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        first = sum(one.message.consumer_id == 0 for one in said)
        assert 0 < first < 8
        assert subscription.sent_before == SentBefore(first, first * SIZE)
        assert sent(subscription) == (8, 8 * SIZE)

    on_stage(scenario)


@pytest.mark.parametrize("name", [TOPIC, NON_PERSISTENT_TOPIC])
def test_a_topic_keeps_what_deleted_subscriptions_were_sent(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await consuming(stage, name, 1)
        await publish(client, 0, 3)
        await client.messages(3)
        (topic,) = stage.server.topics.open.values()
        assert topic.sent_before == SentBefore()
        await client.ask(Command.UNSUBSCRIBE, consumer_id=0)
        assert topic.subscriptions == {}
        assert topic.sent_before == SentBefore(3, 3 * SIZE, 0)
        await client.subscribe(name, kind=SHARED, consumer_id=1)
        (subscription,) = subscriptions_of(topic)
        assert sent(subscription) == (0, 0)

    on_stage(scenario)


@pytest.mark.parametrize(
    ("name", "is_internal"),
    [(COMPACTION_CURSOR, True), ("__system_reader-1", True), ("mine", True), ("users", False), ("__users", False)],
)
def test_subscriptions_of_the_system_are_counted_apart(name: str, is_internal: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        topic = open_topic(stage)
        subscription = await topic.subscription(name, durable=True, initial=EARLIEST)
        assert internal(subscription) is is_internal
        subscription.sent_before.messages, subscription.sent_before.size = 2, 50
        before = SentBefore(1, 10, 5)
        before.add_subscription(subscription)
        assert before == SentBefore(3, 60, 55 if is_internal else 5)

    on_stage(scenario, rules=TopicRules(system_cursors=("mine",)))
