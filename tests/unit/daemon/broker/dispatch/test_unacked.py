"""What all subscriptions of a broker together may hold unacknowledged, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bkdaemon.broker.config import BrokerConfig, load_config
from bkdaemon.broker.dispatch.base import Dispatcher
from bkdaemon.broker.dispatch.unacked import FIRST_CHECK_S, UnackedLimit
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.broker.raw import RawClient, Said, Stage, on_stage

TOPIC, OTHER = "persistent://public/default/t", "persistent://public/default/other"
EXCLUSIVE, SHARED, KEY_SHARED = 0, 1, 3
MOST, EACH = 100, 16
LARGE, SMALL, ELSEWHERE = range(3)
"""Consumers: of 60 messages, of 10, and of 50 of another topic."""


def nothing_new(client: RawClient) -> bool:
    return not [s for s in client.said if s.kind == Command.MESSAGE]


async def messages(client: RawClient, consumer_id: int, count: int) -> list[Said]:
    said = await client.messages(count)
    assert {s.message.consumer_id for s in said} == {consumer_id}
    return said


class Holding:
    """A broker with 120 messages unacknowledged, of three subscriptions, and its limit of 100."""

    def __init__(self, stage: Stage, client: RawClient) -> None:
        self.stage = stage
        self.client = client
        self.limit: UnackedLimit = stage.server.topics.limits.unacked
        self.held: dict[int, list[Said]] = {}

    async def fill(self, kind: int) -> None:
        self.limit.apply(BrokerConfig(cluster="c", unacked_per_broker=MOST))
        client = self.client
        for producer_id, topic in enumerate((TOPIC, OTHER)):
            await client.produce(topic, producer_id)
            for i in range(200):
                client.publish(i, b"%d" % i, producer_id)
            for _ in range(200):
                await client.next(Command.SEND_RECEIPT)
        places = [(LARGE, TOPIC, "large", 60), (SMALL, TOPIC, "small", 10), (ELSEWHERE, OTHER, "other", 50)]
        for consumer_id, topic, name, count in places:
            await client.subscribe(topic, name, kind, consumer_id)
            client.flow(count, consumer_id)
            self.held[consumer_id] = await messages(client, consumer_id, count)

    def dispatcher(self, topic: str, name: str) -> Dispatcher:
        found = self.stage.server.topics.open[TopicName.parse(topic)]
        assert isinstance(found, Topic)
        dispatcher = found.subscriptions[name].dispatcher
        assert dispatcher is not None
        return dispatcher

    async def reach(self) -> None:
        await asyncio.sleep(FIRST_CHECK_S)
        self.limit.check()
        assert self.limit.reached

    async def more(self, consumer_id: int, count: int) -> list[Said]:
        self.client.flow(count, consumer_id)
        return await messages(self.client, consumer_id, count)

    async def nothing(self, consumer_id: int, permits: int) -> None:
        self.client.flow(permits, consumer_id)
        await asyncio.sleep(5)
        assert nothing_new(self.client)

    def ack(self, consumer_id: int, count: int) -> None:
        held = self.held[consumer_id]
        self.client.ack(*held[:count], consumer_id=consumer_id)
        del held[:count]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_who_holds_more_than_its_part_gets_nothing_new_while_the_broker_holds_too_much(kind: int) -> None:
    async def scenario(stage: Stage) -> None:
        holding = Holding(stage, await stage.client())
        await holding.fill(kind)
        holding.limit.check()
        holding.held[LARGE] += await holding.more(LARGE, 1)  # Java looks first after ten minutes
        await holding.reach()
        assert holding.dispatcher(TOPIC, "large").full
        await holding.nothing(LARGE, 5)
        await holding.nothing(ELSEWHERE, 5)
        holding.held[SMALL] += await holding.more(SMALL, EACH - 10)
        holding.held[SMALL] += await holding.more(SMALL, 1)  # now it has more than its part
        await holding.nothing(SMALL, 5)
        holding.ack(LARGE, 61 - EACH // 2)
        await asyncio.sleep(5)
        assert nothing_new(holding.client), "half of its part is still too much"
        holding.ack(LARGE, 1)
        await messages(holding.client, LARGE, 5)
        assert not holding.dispatcher(TOPIC, "large").full
        assert holding.dispatcher(OTHER, "other").full
        holding.limit.check()
        assert holding.limit.reached, "79 of 100"
        holding.ack(ELSEWHERE, 30)
        await asyncio.sleep(1)
        holding.limit.check()
        assert not holding.limit.reached
        said = await holding.client.messages(10)
        assert sorted(s.message.consumer_id for s in said) == [SMALL] * 5 + [ELSEWHERE] * 5

    on_stage(scenario)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_was_given_back_is_sent_again_all_the_same(kind: int) -> None:
    async def scenario(stage: Stage) -> None:
        holding = Holding(stage, await stage.client())
        await holding.fill(kind)
        await holding.reach()
        places = [s.message.message_id for s in holding.held[ELSEWHERE][:3]]
        holding.client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=ELSEWHERE, message_ids=places)
        again = await holding.more(ELSEWHERE, 3)
        assert [s.message.message_id for s in again] == places
        await holding.nothing(ELSEWHERE, 3)
        await holding.client.ask(Command.CLOSE_CONSUMER, consumer_id=LARGE)
        holding.ack(ELSEWHERE, 15)
        await asyncio.sleep(1)
        assert nothing_new(holding.client)
        holding.limit.check()
        assert not holding.limit.reached, "who leaves holds nothing"
        await messages(holding.client, ELSEWHERE, 3)

    on_stage(scenario)


def test_exclusive_subscriptions_are_not_counted() -> None:
    async def scenario(stage: Stage) -> None:
        holding = Holding(stage, await stage.client())
        await holding.fill(EXCLUSIVE)
        await asyncio.sleep(FIRST_CHECK_S)
        holding.limit.check()
        assert not holding.limit.reached

    on_stage(scenario)


def test_keys_of_broker_conf(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "clusterName=c\nmaxUnackedMessagesPerBroker=1000\nmaxUnackedMessagesPerSubscriptionOnBrokerBlocked=0.25\n"
    )
    config = load_config(path)
    assert config.unknown == {}
    limit = UnackedLimit(lambda: 0.0)
    told = []
    for one in (config, BrokerConfig(cluster="c"), BrokerConfig(cluster="c", unacked_per_broker=1000)):
        limit.apply(one)
        told.append((limit.most, limit.each))
    assert told == [(1000, 250), (0, 0), (1000, 160)]
    limit.apply(BrokerConfig(cluster="c", unacked_per_broker=1000, unacked_part_when_blocked=0))
    assert limit.most == 0, "as in Java, which wants both above 0"


def test_the_keys_cannot_be_changed_while_the_broker_runs() -> None:
    async def scenario(admin: Admin) -> None:
        answer = await admin.ask("POST", "/admin/v2/brokers/configuration/maxUnackedMessagesPerBroker/10")
        assert answer.status == 412

    administering(scenario)
