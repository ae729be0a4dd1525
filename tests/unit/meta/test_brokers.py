"""Registrations of brokers, the leader, owners of bundles."""

from __future__ import annotations

from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bundle import Bundle
from tests.unit.meta.memory_runs import on


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


def test_a_restarted_broker_takes_over_the_nodes_of_its_former_session() -> None:
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
