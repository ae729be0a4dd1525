"""The broker's own Backend on a simulated cluster: topics that come into being, rules, schemas, names, watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from bkdaemon.broker.cluster.own_backend import OwnBackend
from bkdaemon.broker.cluster.ownership import BrokerAddress
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.topic.backend import Backend, Lookup, StoredSchema

from bkctl.client.client import BookKeeper
from bkctl.errors import Conflict, NotFound
from bkctl.meta.memory import MemoryStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.model.topic import EARLIEST, TopicName
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.log.logs import payloads, until

T = TopicName.parse("persistent://public/default/t")


def backend_of(config: BrokerConfig, cluster: SimCluster, client: BookKeeper) -> OwnBackend:
    address = BrokerAddress("a:8080", "pulsar://a:6650", "http://a:8080")
    return OwnBackend(config, MemoryStore(cluster.tree), client, address, client.context.world)


def serving(scenario: Callable[[Backend, OwnBackend], Awaitable[None]], **settings: object) -> None:
    async def main(cluster: SimCluster, client: BookKeeper) -> None:
        urls = {"ledgers_root": "/ledgers", "service_url": "http://a:8080", "broker_service_url": "pulsar://a:6650"}
        await init_pulsar(MemoryStore(cluster.tree), "lab", **urls)
        backend = backend_of(BrokerConfig(cluster="lab", **settings), cluster, client)  # type: ignore[arg-type]
        await backend.start()
        await scenario(backend, backend)
        await backend.stop()

    simulate(main)


def test_a_topic_is_created_when_it_is_opened() -> None:
    async def scenario(backend: Backend, own: OwnBackend) -> None:
        changes: list[int] = []
        stop = backend.watch_topics("public/default", lambda: changes.append(1))
        assert await backend.partitions(T, create=True) == 0
        with pytest.raises(NotFound):
            await backend.open_ledger(T, create=False)
        with pytest.raises(NotFound):
            await backend.partitions(T, create=False)
        with pytest.raises(NotFound, match="does not exist"):
            await backend.partitions(TopicName.parse("public/none/t"), create=True)
        assert await backend.lookup(T, authoritative=False) == Lookup("pulsar://a:6650")
        log = await backend.open_ledger(T, create=True)
        log.add_many(payloads(3))
        await until(lambda: log.last_confirmed.entry_id == 2)
        await until(lambda: changes)
        assert await backend.topics("public/default") == [str(T)]
        assert await backend.partitions(T, create=False) == 0
        assert len(await log.read(EARLIEST, 9, 999)) == 3
        stop()
        await log.close()

    serving(scenario)


def test_partitioned_topics_are_created_by_the_rules_of_the_namespace() -> None:
    async def scenario(backend: Backend, own: OwnBackend) -> None:
        assert await backend.partitions(T, create=True) == 3
        assert await backend.partitions(T, create=False) == 3
        assert await backend.partitions(T.partition_name(2), create=True) == 0
        with pytest.raises(NotFound):
            await backend.partitions(T.partition_name(3), create=True)
        await own.meta.namespaces.update_policies(
            "public/default", lambda old: old | {"autoTopicCreationOverride": {"allowAutoTopicCreation": False}}
        )
        own.policies.forget("public/default")
        with pytest.raises(NotFound):
            await backend.partitions(TopicName.parse("other"), create=True)

    serving(scenario, auto_create_type="partitioned", default_partitions=3)


def test_schemas_of_a_topic_are_stored_as_versions() -> None:
    async def scenario(backend: Backend, own: OwnBackend) -> None:
        assert await backend.schema(T, None) is None
        first = await backend.add_schema(T, StoredSchema(0, 2, b"{}", {"a": "b"}), -1)
        second = await backend.add_schema(T.partition_name(1), StoredSchema(0, 2, b"{ }", {}), first.version)
        assert (first.version, second.version) == (0, 1)
        with pytest.raises(Conflict):
            await backend.add_schema(T, StoredSchema(0, 2, b"{}", {}), 0)
        stored = [await backend.schema(T, version) for version in (0, None)]
        assert [one._replace(timestamp_ms=0) for one in stored if one is not None] == [
            StoredSchema(0, 2, b"{}", {"a": "b"}, "t"),
            StoredSchema(1, 2, b"{ }", {}, "t"),
        ]
        assert [schema.version for schema in await backend.schemas(T)] == [0, 1]
        assert {backend.producer_name() for _ in range(3)} == {"lab-0-0", "lab-0-1", "lab-0-2"}

    serving(scenario)
