"""Clients of a topic that another cluster has now, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bkdaemon.broker.cluster.policies import TopicPolicies
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.topic.migration import CONSUMER, PRODUCER

from bkctl.codec.pulsar import Command
from bkctl.meta.documents import update_document
from bkctl.meta.memory import MemoryStore
from bkctl.meta.namespaces import NamespaceStore
from bkctl.model.topic import TopicName
from tests import pulsar_golden as golden
from tests.broker.raw import RawClient, Stage, on_stage

TOPIC = "persistent://public/default/t"
GREEN = "pulsar://green:6650"


async def told(client: RawClient, resource: int, number: int) -> None:
    """It hears where to go, then that it is closed."""
    moved, closed = await client.next(), await client.next()
    assert moved.kind == Command.TOPIC_MIGRATED
    assert (moved.message.resource_type, moved.message.resource_id) == (resource, number)
    assert moved.message.brokerServiceUrl == GREEN
    assert closed.kind == (Command.CLOSE_PRODUCER if resource == PRODUCER else Command.CLOSE_CONSUMER)


def test_producers_go_at_once_and_consumers_when_nothing_is_left() -> None:
    async def scenario(stage: Stage) -> None:
        sender, reader, idle = await stage.client(), await stage.client(), await stage.client()
        await sender.produce(TOPIC, producer_id=3)
        await idle.subscribe(TOPIC, "idle", consumer_id=5)
        for sequence_id in range(3):
            sender.publish(sequence_id, producer_id=3)
            await sender.next(Command.SEND_RECEIPT)
        await reader.subscribe(TOPIC, "behind", consumer_id=7)
        idle.flow(10, 5)
        idle.ack(*await idle.messages(3), consumer_id=5)
        await asyncio.sleep(1)
        (topic,) = stage.server.topics.open.values()
        moved = replace(topic.rules, migrated_to=GREEN)
        topic.rules = moved
        await told(sender, PRODUCER, 3)
        await told(idle, CONSUMER, 5)
        reader.flow(10, 7)
        said = await reader.messages(3)
        assert reader.said == [], "it reads on"
        reader.ack(*said, consumer_id=7)
        await asyncio.sleep(1)
        topic.rules = moved  # as in every round of upkeep
        await told(reader, CONSUMER, 7)
        sender.send(Command.PRODUCER, topic=TOPIC, producer_id=4, request_id=90)
        await told(sender, PRODUCER, 4)
        idle.send(Command.SUBSCRIBE, topic=TOPIC, subscription="idle", subType=0, consumer_id=6, request_id=91)
        await told(idle, CONSUMER, 6)
        assert sender.said == idle.said == reader.said == []
        assert [client.ended for client in (sender, idle, reader)] == [False] * 3

    on_stage(scenario)


def test_older_clients_are_closed_and_told_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        old = await stage.client(protocol_version=19)
        await old.produce(TOPIC)
        (topic,) = stage.server.topics.open.values()
        topic.rules = replace(topic.rules, migrated_to=GREEN)
        assert (await old.next()).kind == Command.CLOSE_PRODUCER
        assert old.said == []

    on_stage(scenario)


def test_what_the_metadata_say() -> None:
    tree = golden.memory_tree()

    async def scenario() -> None:
        store = MemoryStore(tree)
        config = BrokerConfig(cluster="lab", metadata_store_url="zk:h:1")
        topic = TopicName.parse("persistent://golden/ns1/plain")

        async def rule() -> str | None:
            return (await TopicPolicies(config, NamespaceStore(store)).rules(topic)).migrated_to

        assert await rule() is None
        where = {"migratedClusterUrl": {"brokerServiceUrl": GREEN, "serviceUrl": "http://green:8080"}}
        await update_document(store, "/admin/clusters/lab", lambda old: old | where | {"migrated": False})
        assert await rule() is None
        await update_document(store, "/admin/local-policies/golden/ns1", lambda old: old | {"migrated": True})
        assert await rule() == GREEN
        await update_document(store, "/admin/local-policies/golden/ns1", lambda old: old | {"migrated": False})
        await update_document(store, "/admin/clusters/lab", lambda old: old | {"migrated": True})
        assert await rule() == GREEN
        await store.close()

    asyncio.run(scenario())
