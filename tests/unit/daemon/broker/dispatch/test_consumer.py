"""One consumer: what it is sent, what it holds, when it is blocked."""

from __future__ import annotations

from bkdaemon.broker.rules import TopicRules

from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import SHARED, TOPIC, open_topic, publish


def test_a_blocked_consumer_resumes_when_the_limit_is_removed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(1000)
        await publish(client, 0, 30)
        said = await client.messages(10)
        topic = open_topic(stage)
        (consumer,) = topic.subscriptions["s"].consumers
        assert consumer.blocked
        topic.rules = TopicRules(unacked_per_consumer_max=0)
        client.ack(said[0])
        await client.messages(20)

    on_stage(scenario, rules=TopicRules(unacked_per_consumer_max=10, read_entries_max=10))
