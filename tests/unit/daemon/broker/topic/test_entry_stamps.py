"""Entries with the broker's own metadata in front, in virtual time."""

from __future__ import annotations

from typing import Any

from bkdaemon.broker.cluster.policies import rules_of
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import broker_metadata, without_broker_metadata
from bkctl.model.topic import EARLIEST, TopicName
from tests.broker.raw import Stage, batch_of, entry_of, on_stage
from tests.unit.log.logs import read_all

TOPIC = "persistent://public/default/t"
INTERCEPTORS = ",".join(
    f"org.apache.pulsar.common.intercept.Append{kind}MetadataInterceptor" for kind in ("BrokerTimestamp", "Index")
)
BOTH = TopicRules(stamp_time=True, stamp_index=True)


async def reader(stage: Stage, *, knows: bool) -> Any:
    client = await stage.client(feature_flags=api.FeatureFlags(supports_broker_entry_metadata=knows))
    await client.subscribe(TOPIC, f"knows-{knows}")
    client.flow(100)
    return client


def test_messages_are_numbered_over_batches_and_owners() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        sent = [entry_of(0), batch_of(1, [b"a", b"b", b"c"]), entry_of(4), entry_of(5)]
        for sequence_id, entry in enumerate(sent):
            if sequence_id == 3:
                (name,) = stage.server.topics.open
                await stage.server.topics.unload(name)
                await client.next(Command.CLOSE_PRODUCER)
                await client.produce(TOPIC)
            count = 3 if sequence_id == 1 else 1
            client.send(Command.SEND, entry, producer_id=0, sequence_id=sequence_id, num_messages=count)
            await client.next(Command.SEND_RECEIPT)
        (topic,) = stage.server.topics.open.values()
        stored = await read_all(topic.ledger, EARLIEST, 100)
        assert [without_broker_metadata(entry) for entry in stored] == sent
        metadata = [broker_metadata(entry) for entry in stored]
        assert [m.index for m in metadata if m is not None] == [0, 3, 4, 5]
        now_ms = stage.server.now_ms()
        assert all(m is not None and now_ms - 600_000 < m.broker_timestamp <= now_ms for m in metadata)
        assert topic.ledger.properties["index"] == "5"
        plain = await (await reader(stage, knows=False)).messages(4)
        assert [said.entry for said in plain] == sent
        stage.server.expose_broker_metadata = True
        with_it = await (await reader(stage, knows=True)).messages(4)
        assert [said.entry for said in with_it] == stored

    on_stage(scenario, rules=BOTH)


def test_the_number_goes_on_where_every_entry_is_gone() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for sequence_id in range(3):
            client.publish(sequence_id)
            await client.next(Command.SEND_RECEIPT)
        (topic,) = stage.server.topics.open.values()
        await topic.ledger.roll()
        await topic.ledger.drop_ledgers(topic.ledger.ledgers.ids[:-1])
        (name,) = stage.server.topics.open
        await stage.server.topics.unload(name)
        await client.next(Command.CLOSE_PRODUCER)
        await client.produce(TOPIC)
        client.publish(3)
        await client.next(Command.SEND_RECEIPT)
        (topic,) = stage.server.topics.open.values()
        ((_, entry),) = await topic.ledger.read(topic.ledger.last_confirmed, 1, 1)
        found = broker_metadata(entry)
        assert found is not None
        assert found.index == 3

    on_stage(scenario, rules=BOTH)


def test_the_keys_of_broker_conf() -> None:
    topic = TopicName.parse(TOPIC)
    rules = rules_of(BrokerConfig(cluster="c", metadata_store_url="zk:h:1", entry_interceptors=INTERCEPTORS), {}, topic)
    assert (rules.stamp_time, rules.stamp_index) == (True, True)
    rules = rules_of(BrokerConfig(cluster="c", metadata_store_url="zk:h:1"), {}, topic)
    assert (rules.stamp_time, rules.stamp_index) == (False, False)
