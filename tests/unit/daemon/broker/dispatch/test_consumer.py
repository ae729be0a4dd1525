"""One consumer: what it is sent, what it holds, when it is blocked."""

from __future__ import annotations

import pytest
from bkdaemon.broker.dispatch.consumer import Consumer
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.pulsar import Command
from bkctl.model.topic import Position
from tests.broker.raw import Stage, batch_of, on_stage
from tests.broker.scenarios import SHARED, TOPIC, open_topic, producing, publish, publish_chunk, redeliver
from tests.unit.log.logs import until


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


def held(consumer: Consumer) -> tuple[dict[Position, int], int]:
    return consumer.pending, consumer.unacked


def test_held_entries_are_counted_by_their_messages() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        (consumer,) = open_topic(stage).subscriptions["s"].consumers
        one, batch = Position(1, 0), Position(1, 1)
        consumer.hold(one, 1)
        consumer.hold(batch, 10)
        assert held(consumer) == ({one: 1, batch: 10}, 11)
        assert consumer.release(batch)
        assert not consumer.release(batch)
        assert held(consumer) == ({one: 1}, 1)

    on_stage(scenario)


@pytest.mark.parametrize(("limit", "unacked", "resumes"), [(10, 6, False), (10, 5, True), (11, 5, True), (0, 99, True)])
def test_a_blocked_consumer_may_resume_at_half_of_its_limit(limit: int, unacked: int, resumes: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        (consumer,) = open_topic(stage).subscriptions["s"].consumers
        consumer.hold(Position(1, 0), unacked)
        assert not consumer.can_resume(limit), "it is not blocked"
        consumer.blocked = True
        assert consumer.can_resume(limit) is resumes

    on_stage(scenario)


def test_a_consumer_is_ready_with_permits_while_it_is_neither_blocked_nor_closed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        (consumer,) = open_topic(stage).subscriptions["s"].consumers
        (connection,) = stage.server.connections
        assert not consumer.ready
        client.flow(1)
        await until(lambda: consumer.ready)
        for owner, name in ((consumer, "blocked"), (consumer, "gone")):
            setattr(owner, name, True)
            assert not consumer.ready
            setattr(owner, name, False)
        connection.pause_writing()
        assert not consumer.ready
        connection.resume_writing()
        assert consumer.ready

    on_stage(scenario)


def test_deliveries_use_permits_and_are_counted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        body = batch_of(0, [b"m"] * 4)
        client.send(Command.SEND, body, producer_id=0, sequence_id=0, num_messages=4)
        client.publish(4)
        await publish_chunk(client, 5, 0, 2)
        said = await client.messages(3)
        (consumer,) = open_topic(stage).subscriptions["s"].consumers
        assert (consumer.permits, consumer.messages_out, consumer.chunks_out) == (4, 6, 1)
        assert consumer.bytes_out == sum(len(one.entry) for one in said)
        redeliver(client, said[0])
        (again,) = await client.messages(1)
        assert (again.entry, again.message.redelivery_count) == (body, 1)
        assert (consumer.permits, consumer.redelivered, consumer.messages_out) == (0, 4, 10)

    on_stage(scenario)
