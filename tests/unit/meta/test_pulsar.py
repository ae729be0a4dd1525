"""Pulsar's tree in the metadata store: made as Java makes it, read where Java made it, changed by compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bkctl.codec.managed_ledger import CursorState, LedgerInfo, ManagedCursorInfo, ManagedLedgerInfo, SchemaIndex
from bkctl.errors import AlreadyExists, Conflict, NotFound, Unavailable
from bkctl.meta.brokers import BrokerStore
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.meta.topics import TopicStore
from bkctl.model.bundle import Bundle
from bkctl.model.topic import Position, TopicName
from tests import pulsar_golden as golden

LAB = {
    "ledgers_root": "/ledgers",
    "service_url": "http://127.0.0.1:28180",
    "broker_service_url": "pulsar://127.0.0.1:26750",
}


def on(tree: MemoryTree, scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryStore(tree)
        await scenario(store)
        await store.close()

    asyncio.run(main())


def test_a_new_cluster_is_the_one_that_java_makes() -> None:
    wanted = {node["path"]: node["data"] for node in golden.tree("pulsar/zk_tree.json")}
    same = (
        *("/admin/clusters/lab", "/admin/clusters/global", "/admin/policies/public", "/admin/policies/pulsar"),
        *("/admin/policies/public/default", "/admin/policies/pulsar/system", "/admin/local-policies/public/default"),
        *("/bookies", "/managed-ledgers", "/namespace", "/admin/configuration"),
        "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
    )

    async def scenario(store: MemoryStore) -> None:
        made = await init_pulsar(store, "lab", **LAB)
        assert {"cluster lab", "cluster global", "tenant public", "namespace public/default"} <= set(made)
        for path in same:
            assert (await store.get(path)).data == wanted[path], path
        assert await init_pulsar(store, "lab", **LAB) == []
        assert "namespace" not in str(await init_pulsar(store, "other", **LAB))

    on(MemoryTree(), scenario)


def test_a_new_namespace_is_the_one_that_java_makes() -> None:
    async def scenario(store: MemoryStore) -> None:
        namespaces = NamespaceStore(store)
        await namespaces.create_namespace("golden/new", ["lab"])
        policies = await namespaces.policies("golden/closed")
        assert policies.pop("autoTopicCreationOverride") == {"allowAutoTopicCreation": False}
        new = await namespaces.policies("golden/new")
        assert new == policies
        assert list(new) == list(policies)
        assert len(await namespaces.bundles("golden/new")) == 4
        assert "golden/new" in await namespaces.namespaces("golden")
        with pytest.raises(AlreadyExists, match="golden/new"):
            await namespaces.create_namespace("golden/new", ["lab"])
        with pytest.raises(NotFound, match="nobody"):
            await namespaces.create_namespace("nobody/new", ["lab"])
        await namespaces.update_policies("golden/new", lambda old: old | {"message_ttl_in_seconds": 5})
        assert (await namespaces.policies("golden/new"))["message_ttl_in_seconds"] == 5
        with pytest.raises(Conflict, match="has namespaces"):
            await namespaces.delete_tenant("golden")
        await namespaces.delete_namespace("golden/new")
        assert not await namespaces.exists("golden/new")

    on(golden.memory_tree(), scenario)


def test_topics_of_a_java_cluster() -> None:
    async def scenario(store: MemoryStore) -> None:
        topics = TopicStore(store)
        found = await topics.topics("golden/ns1")
        listed = set(golden.rest("topics-list")["response"]["body"])
        assert listed <= {str(topic) for topic in found}
        assert len(found) == 47
        assert TopicName("persistent", "golden", "ns1", "spécial name") in found
        parts = TopicName.parse("persistent://golden/ns1/parts")
        assert await topics.partitions(parts) == 3
        assert (parts, 3) in await topics.all_topics("golden/ns1")
        assert parts.partition_name(0) not in dict(await topics.all_topics("golden/ns1"))
        versions, version = await topics.schema_versions(TopicName.parse("persistent://golden/ns1/sch-str"))
        assert [index.version for index in versions] == [0, 1]
        assert version is not None
        more = [*versions, SchemaIndex(2, Position(99, 0), b"x" * 32)]
        await topics.write_schema_versions(TopicName.parse("golden/ns1/sch-str"), more, version)
        with pytest.raises(Conflict):
            await topics.write_schema_versions(TopicName.parse("golden/ns1/sch-str"), versions, version)
        await topics.create_partitioned(TopicName.parse("golden/ns1/p"), 2)
        assert await topics.update_partitions(TopicName.parse("golden/ns1/p"), 5) == 2
        assert await topics.partitions(TopicName.parse("golden/ns1/p")) == 5

    on(golden.memory_tree(), scenario)


INFO = ManagedLedgerInfo((LedgerInfo(3, timestamp_ms=0),))
CURSOR = ManagedCursorInfo(-1, CursorState(Position(3, -1)), 5)


def test_every_write_names_the_version_it_replaces() -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers = ManagedLedgerStore(store)
        info, version = await ledgers.create("t/n/persistent/x")
        assert info == ManagedLedgerInfo()
        second = await ledgers.write("t/n/persistent/x", INFO, version)
        assert await ledgers.read("t/n/persistent/x") == (INFO, second)
        with pytest.raises(Conflict):
            await ledgers.write("t/n/persistent/x", INFO, version)
        first = await ledgers.create_cursor("t/n/persistent/x", "a/b", CURSOR, second)
        assert await ledgers.cursors("t/n/persistent/x") == ["a/b"]
        with pytest.raises(Conflict):  # by an owner that was deposed
            await ledgers.write_cursor("t/n/persistent/x", "a/b", CURSOR, first, version)
        with pytest.raises(Conflict):
            await ledgers.create_cursor("t/n/persistent/x", "other", CURSOR, version)
        await ledgers.write_cursor("t/n/persistent/x", "a/b", CURSOR, first, second)
        with pytest.raises(Conflict):
            await ledgers.write_cursor("t/n/persistent/x", "a/b", CURSOR, first, second)
        assert (await ledgers.read_cursors("t/n/persistent/x", ["a/b", "none"]))["a/b"].info == CURSOR
        with pytest.raises(NotFound, match="no cursor none"):
            await ledgers.read_cursor("t/n/persistent/x", "none")

    on(MemoryTree(), scenario)


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_write_whose_answer_is_lost_is_neither_lost_nor_taken_for_anothers(lost: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers = ManagedLedgerStore(store)
        _, version = await ledgers.create("t/n/persistent/x")
        failures = iter([True])

        async def fail(operation: str, path: str) -> None:
            if operation == "set" and next(failures, False):
                raise Unavailable("lost")

        setattr(store, "before" if lost == "request" else "after", fail)
        second = await ledgers.write("t/n/persistent/x", INFO, version)
        assert await ledgers.read("t/n/persistent/x") == (INFO, second)

    on(MemoryTree(), scenario)


def test_a_write_whose_request_is_lost_does_not_overwrite_the_next_owner() -> None:
    tree = MemoryTree()

    async def scenario(store: MemoryStore) -> None:
        ledgers, other = ManagedLedgerStore(store), ManagedLedgerStore(MemoryStore(tree))
        _, version = await ledgers.create("t/n/persistent/x")

        async def fail(operation: str, path: str) -> None:
            if operation == "set":
                store.before = None
                await other.write("t/n/persistent/x", ManagedLedgerInfo((LedgerInfo(9),)), version)
                raise Unavailable("lost")

        store.before = fail
        with pytest.raises(Conflict):
            await ledgers.write("t/n/persistent/x", INFO, version)
        assert (await other.read("t/n/persistent/x")).info.ledgers[0].ledger_id == 9

    on(tree, scenario)


def test_one_broker_owns_a_bundle() -> None:
    tree = MemoryTree()

    async def scenario(store: MemoryStore) -> None:
        other_store = MemoryStore(tree)
        mine, other = BrokerStore(store), BrokerStore(other_store)
        bundle = Bundle("a/b", 0, 0x40000000)
        assert await mine.acquire(bundle, "pulsar://h:1", "http://h:2")
        assert await mine.acquire(bundle, "pulsar://h:1", "http://h:2")
        assert not await other.acquire(bundle, "pulsar://i:1", "http://i:2")
        owner = await other.owner(bundle)
        assert owner is not None
        assert (owner.native_url, owner.broker_id, owner.disabled) == ("pulsar://h:1", "h:2", False)
        await mine.disable(bundle, "pulsar://h:1", "http://h:2")
        assert (await other.owned("a/b"))[bundle].disabled
        old = Bundle("a/b/c", 0, 0xFFFFFFFF)  # Java's broker for persistent://a/b/c/topic, where b is a cluster
        assert await mine.acquire(old, "pulsar://h:1", "http://h:2")
        assert set(await other.owned("a/b")) == {bundle}
        await other.release(bundle)  # not its own
        assert await other.owner(bundle) is not None
        store.expire()
        assert await other.owner(bundle) is None
        assert await other.acquire(bundle, "pulsar://i:1", "http://i:2")
        assert await other.next_instance() == 0
        assert await other.next_instance() == 1
        assert await other.register("i:2", {"a": 1})
        assert await other.brokers() == ["i:2"]
        assert await other.try_to_lead("i:2", "http://i:2")
        assert (await other.leader() or {})["brokerId"] == "i:2"
        await other.resign()
        assert await other.leader() is None
        await other.unregister("i:2")
        assert await other.brokers() == []

    on(tree, scenario)


def test_what_a_broker_that_was_killed_left_is_its_own_when_it_is_back() -> None:
    tree = MemoryTree()

    async def scenario(store: MemoryStore) -> None:
        later, elsewhere = BrokerStore(MemoryStore(tree)), BrokerStore(MemoryStore(tree))
        before = BrokerStore(store)  # whose session lives on
        bundle, report = (
            Bundle("a/b", 0, 0x40000000),
            {"webServiceUrl": "http://h:2", "pulsarServiceUrl": "pulsar://h:1"},
        )
        assert await before.register("h:2", report)
        assert await before.try_to_lead("h:2", "http://h:2")
        assert await before.acquire(bundle, "pulsar://h:1", "http://h:2")
        assert not await elsewhere.register("h:2", {**report, "pulsarServiceUrl": "pulsar://i:1"})
        assert not await elsewhere.try_to_lead("i:2", "http://i:2")
        assert not await elsewhere.acquire(bundle, "pulsar://i:1", "http://i:2")
        assert not await elsewhere.acquire(bundle, "pulsar://h:1", "http://h:3")
        assert await later.register("h:2", {**report, "lastUpdate": 7})
        assert await later.try_to_lead("h:2", "http://h:2")
        assert await later.acquire(bundle, "pulsar://h:1", "http://h:2")
        store.expire()
        owner = await elsewhere.owner(bundle)
        assert owner is not None
        assert owner.session_id == later.store.session_id
        assert await elsewhere.report("h:2") == {**report, "lastUpdate": 7}
        assert (await elsewhere.leader() or {})["brokerId"] == "h:2"

    on(tree, scenario)
