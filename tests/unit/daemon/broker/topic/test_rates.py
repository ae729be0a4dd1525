"""Rates of topics, subscriptions, producers and consumers between two updates, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon.broker.topic.rates import Rates, subscriptions_of
from bkdaemon.broker.topic.sent import Flow

from bkctl.codec.pulsar import Command
from tests.broker.raw import RawClient, Stage, batch_of, on_stage
from tests.broker.scenarios import NON_PERSISTENT_TOPIC, SHARED, TOPIC, open_topic, producing, publish, redeliver

STEP_MS = 10_000


class Updated:
    """The rates of a stage's topics, updated every ten seconds."""

    def __init__(self, stage: Stage, since_ms: int = 0) -> None:
        self.rates = Rates(since_ms)
        self._stage = stage
        self._now_ms = 1_000_000

    def update(self, **others: Flow) -> Rates:
        self._now_ms += STEP_MS
        keys = {(name,): flow for name, flow in others.items()}
        self.rates.update(self._stage.server.topics, self._now_ms, keys)
        return self.rates


async def consuming(stage: Stage) -> RawClient:
    client = await producing(stage)
    await client.subscribe(TOPIC, kind=SHARED)
    client.flow(1000)
    return client


def test_rates_are_the_difference_of_two_updates_in_a_second() -> None:
    async def scenario(stage: Stage) -> None:
        client = await consuming(stage)
        topic, updated = open_topic(stage), Updated(stage)
        updated.update()
        client.send(Command.SEND, batch_of(0, [b"m"] * 20), producer_id=0, sequence_id=0, num_messages=20)
        await client.next(Command.SEND_RECEIPT)
        (batch,) = await client.messages(1)
        rates = updated.update()
        size = topic.bytes_in / 10
        assert rates.of("in", topic.name) == (2.0, size)
        assert rates.of("in", topic.name).average_size == size / 2
        assert rates.of("stored", topic.name).messages == 0.1, "one entry"
        assert rates.of("out", topic.name, "s").messages == 2.0
        (consumer,) = topic.subscriptions["s"].consumers
        assert rates.of("consumer", topic.name, "s", id(consumer)).messages == 2.0
        (producer,) = topic.producers.by_name.values()
        assert rates.of("producer", topic.name, producer.name).messages == 2.0
        assert (rates.total("in").messages, rates.total("out").messages) == (2.0, 2.0)
        redeliver(client, batch)
        await client.messages(1)
        client.ack(batch)
        await asyncio.sleep(1)
        rates = updated.update()
        assert rates.of("in", topic.name) == (0.0, 0.0)
        assert rates.of("again", topic.name, "s", id(consumer)).messages == 2.0
        assert rates.of("acked", topic.name, "s", id(consumer)).messages == 2.0

    on_stage(scenario)


def test_the_first_update_has_rates_only_since_a_known_time() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await publish(client, 0, 30)
        name = open_topic(stage).name
        assert Updated(stage).update().of("in", name) == (0.0, 0.0)
        assert Updated(stage, since_ms=1_000_000).update().of("in", name).messages == 3.0

    on_stage(scenario)


def test_a_counter_that_restarts_gives_no_negative_rate() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await publish(client, 0, 30)
        updated, name = Updated(stage), open_topic(stage).name
        updated.update()
        await stage.server.topics.unload(name)
        await client.next(Command.CLOSE_PRODUCER)
        await client.produce(TOPIC)
        assert updated.update().of("in", name) == (0.0, 0.0)
        await publish(client, 30, 10)
        assert updated.update().of("in", name).messages == 1.0

    on_stage(scenario)


def test_what_is_new_is_counted_from_0_and_what_is_gone_has_no_rate() -> None:
    async def scenario(stage: Stage) -> None:
        client, updated = await stage.client(), Updated(stage)
        updated.update(other=Flow(5, 0))
        await client.produce(NON_PERSISTENT_TOPIC)
        await publish(client, 0, 10)
        (topic,) = stage.server.topics.open.values()
        rates = updated.update(other=Flow(25, 100))
        assert rates.of("in", topic.name).messages == 1.0
        assert rates.of("stored", topic.name) == (0.0, 0.0), "a topic without storage has no entries"
        assert rates.of("other") == (2.0, 10.0)
        await stage.server.topics.unload(topic.name)
        assert updated.update().of("in", topic.name) == (0.0, 0.0)

    on_stage(scenario)


@pytest.mark.parametrize("name", [TOPIC, NON_PERSISTENT_TOPIC])
def test_dropped_and_expired_messages_are_lost(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(name)
        await client.subscribe(name, kind=SHARED)
        updated = Updated(stage)
        updated.update()
        await publish(client, 0, 10)
        (topic,) = stage.server.topics.open.values()
        (subscription,) = subscriptions_of(topic)
        if topic.persistent:
            subscription.expired += 10  # type: ignore[union-attr]
        lost = updated.update().of("lost", topic.name, "s")
        assert lost == ((1.0, 0.0) if topic.persistent else (0.0, 1.0))

    on_stage(scenario)
