"""What a port allows its clients, as broker.conf says it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.broker.cluster.dynamic import put
from bkdaemon.broker.cluster.policies import rules_of
from bkdaemon.broker.config import BrokerConfig, load_config
from bkdaemon.broker.dispatch.slots import look_ahead
from bkdaemon.broker.protocol.server import BrokerServer
from bkdaemon.broker.protocol.server_limits import MIB, ServerLimits
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.pulsar import NO_REQUEST, Command, ErrorCode
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.model.topic import TopicName
from bkctl.world import World
from tests.broker.admin import Admin, administering
from tests.broker.backend import SoleBackend
from tests.broker.raw import PORT, RawClient, Stage, on_stage
from tests.unit.daemon.broker.keys import config_of_keys
from tests.unit.log.logs import Broker, on_brokers, until

TOPIC = "persistent://public/default/t"
KEYS = {
    "keepAliveIntervalSeconds": "7",
    "connectionLivenessCheckTimeoutMillis": "1500",
    "brokerMaxConnections": "3",
    "brokerMaxConnectionsPerIp": "2",
    "maxConcurrentLookupRequest": "11",
    "maxConcurrentTopicLoadRequest": "12",
    "subscriptionPatternMaxLength": "60",
    "maxConsumerMetadataSize": "61",
    "maxPendingPublishRequestsPerConnection": "62",
    "maxMessagePublishBufferSizeInMB": "63",
}


def allow(stage: Stage, **limits: float) -> None:
    stage.server.limits = replace(stage.server.limits, **limits)  # type: ignore[arg-type]


def test_keys_of_broker_conf(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("clusterName=c\n" + "".join(f"{key}={text}\n" for key, text in KEYS.items()))
    config = load_config(path)
    assert config.unknown == {}
    assert ServerLimits.of(config) == ServerLimits(7, 1.5, 60, 61, 62, 63 * MIB, 3, 2, 11, 12)
    assert ServerLimits.of(BrokerConfig(cluster="c")) == ServerLimits()
    assert ServerLimits.of(BrokerConfig(cluster="c", publish_buffer_mb=-1)).unfinished_bytes_max > 1 << 60


@pytest.mark.parametrize(
    ("each", "whole", "consumers", "most"),
    [
        (2000, 20_000, 3, 6000),
        (2000, 20_000, 30, 20_000),
        (0, 70, 3, 70),
        (40, 0, 3, 120),
        (0, 0, 3, 150),
        (0, 0, 9, 200),
    ],
)
def test_how_far_key_shared_looks_ahead(each: int, whole: int, consumers: int, most: int) -> None:
    """As getEffectiveLookAheadLimit: by consumer, for the subscription, else what may be unacknowledged."""
    rules = TopicRules(
        look_ahead_per_consumer_max=each,
        look_ahead_per_subscription_max=whole,
        unacked_per_consumer_max=50,
        unacked_per_subscription_max=200,
    )
    assert look_ahead(rules, consumers) == most


def test_keys_of_what_is_read_and_given_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    keys = ("dispatcherMaxReadBatchSize=7", "dispatcherMaxReadSizeBytes=8", "dispatcherMaxRoundRobinBatchSize=9")
    path.write_text("\n".join(("clusterName=c", *keys)))
    config = load_config(path)
    assert config.unknown == {}
    rules = [rules_of(c, {}, TopicName.parse(TOPIC)) for c in (config, BrokerConfig(cluster="c"))]
    told = [(r.read_entries_max, r.read_bytes_max, r.slice_entries) for r in rules]
    default = TopicRules()
    assert told == [(7, 8, 9), (default.read_entries_max, default.read_bytes_max, default.slice_entries)]


def test_a_limit_that_is_changed_while_the_broker_runs() -> None:
    async def scenario(admin: Admin) -> None:
        await put(admin.service, "maxConcurrentLookupRequest", "2", admin.service.upkeep.refresh)
        assert admin.service.server.limits.lookups_max == 2

    administering(scenario)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"connections_max": 2}, "Reached the maximum number of connections"),
        ({"connections_per_address_max": 2}, "Reached the maximum number of connections on address/"),
    ],
)
def test_a_connection_above_the_limit_is_refused_with_a_reason(limits: dict[str, int], why: str) -> None:
    async def scenario(stage: Stage) -> None:
        allow(stage, **limits)
        first = await stage.client()
        await stage.client()
        third = await stage.client(connect=False)
        told = (await third.next(Command.ERROR)).message
        assert (told.request_id, told.error) == (NO_REQUEST, ErrorCode.NOT_ALLOWED)
        assert told.message.startswith(why)
        await third.end()
        assert stage.server.refused_connections == 1
        first.cut()
        await first.end()
        await asyncio.sleep(1)
        await stage.client()

    on_stage(scenario)


def test_silent_clients_stay_connected_without_keep_alives() -> None:
    async def scenario(stage: Stage) -> None:
        allow(stage, keep_alive_s=0)
        client = await stage.client()
        client.answers_pings = False
        await asyncio.sleep(1000)
        assert not client.ended

    on_stage(scenario)


def test_a_silent_client_stays_active_without_keep_alives() -> None:
    async def scenario(stage: Stage) -> None:
        allow(stage, liveness_s=0)
        held, other = await stage.client(), await stage.client()
        await held.produce(TOPIC, producer_name="p")
        held.answers_pings = False
        for _ in range(2):
            assert (await other.produce(TOPIC, producer_name="p")).error == ErrorCode.PRODUCER_BUSY

    on_stage(scenario)


def test_lookups_above_the_limit_are_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        allow(stage, lookups_max=0)
        told = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=TOPIC)
        words = "Failed due to too many pending lookup requests"
        assert (told.error, told.message) == (ErrorCode.TOO_MANY_REQUESTS, words)
        asked = Command.PARTITIONED_METADATA, Command.PARTITIONED_METADATA_RESPONSE
        assert (await client.ask(*asked, topic=TOPIC)).error == ErrorCode.TOO_MANY_REQUESTS
        listed = await client.ask(Command.GET_TOPICS_OF_NAMESPACE, namespace="public/default", mode=0)
        assert listed.error == ErrorCode.TOO_MANY_REQUESTS
        allow(stage, lookups_max=1)
        for _ in range(3):
            assert not (await client.ask(*asked, topic=TOPIC)).HasField("error")
        assert stage.server.lookups == 0

    on_stage(scenario)


def test_a_long_pattern_is_left_to_the_client() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        kind, answer = Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE
        asked = {"namespace": "public/default", "mode": 0, "topics_pattern": "public/default/z.*"}
        assert (await client.ask(kind, answer, **asked)).filtered
        allow(stage, pattern_length_max=5)
        told = await client.ask(kind, answer, **asked)
        assert (told.filtered, list(told.topics)) == (False, [TOPIC])

    on_stage(scenario)


def test_topics_are_opened_within_the_limit_of_concurrent_loads() -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.topics._loads = asyncio.Semaphore(1)
        client = await stage.client()
        names = [f"{TOPIC}{i}" for i in range(5)]
        found = await asyncio.gather(*(client.produce(name, i) for i, name in enumerate(names)))
        assert not any(hasattr(one, "error") for one in found)

    on_stage(scenario)


def test_a_request_fails_when_opening_its_topic_takes_too_long(tmp_path: Path) -> None:
    limits = ServerLimits.of(config_of_keys(tmp_path, topicLoadTimeoutSeconds=7))

    async def scenario(broker: Broker) -> None:
        backend = SoleBackend(broker.context)
        server = BrokerServer(backend, broker.context.world, limits=limits)
        await server.start("client", PORT)
        goes_on, open_ledger = asyncio.Event(), backend.open_ledger

        async def slow(topic: TopicName, *, create: bool) -> ManagedLedger:
            await goes_on.wait()
            return await open_ledger(topic, create=create)

        backend.open_ledger = slow  # type: ignore[method-assign]
        client = await raw_client(broker.context.world)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for i in range(2):  # counted from when the opening began
            told = await client.produce(TOPIC, i)
            assert (told.error, told.message) == (ErrorCode.UNKNOWN, "Failed to load topic within timeout")
            assert 7 <= loop.time() - began_s < 8
        goes_on.set()
        await until(lambda: bool(server.topics.open))
        assert not hasattr(await client.produce(TOPIC, 3), "error")
        await server.stop()

    on_brokers(scenario)


async def raw_client(world: World) -> RawClient:
    _, client = await world.network.connect("client", PORT, RawClient)
    assert isinstance(client, RawClient)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    return client
