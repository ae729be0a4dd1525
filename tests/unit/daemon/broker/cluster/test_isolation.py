"""Isolation policies: who may take a namespace, what a change unloads, and brokers that hold to it in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.cluster.isolation import brokers_for, changed, isolation_path, matches
from bkdaemon.broker.cluster.ownership import NoBroker
from bkdaemon.broker.topic.backend import Lookup

from bkctl.meta.brokers import BrokerStore
from bkctl.meta.documents import encode_json
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.topic import TopicName
from tests.unit.daemon.broker.cluster.test_ownership import broker, on_a_cluster, settled

BROKERS = ("a1:8080", "a2:8080", "b:8080", "c:8080")
TOPIC = TopicName.parse("persistent://public/default/t")


def policy(namespaces: str, primary: list[str], secondary: list[str], least: object = "1", **more: Any) -> Any:
    parameters = {"min_limit": least, "usage_threshold": "80"}
    failover = {"parameters": parameters, "policy_type": "min_available"}
    lists = {"namespaces": namespaces.split(), "primary": primary, "secondary": secondary}
    return {**lists, "auto_failover_policy": failover, **more}


@pytest.mark.parametrize(
    ("policies", "up", "wanted"),
    [
        ({}, BROKERS, set(BROKERS)),
        ({"p": policy("t/n", ["a.*"], ["b"])}, BROKERS, {"a1:8080", "a2:8080"}),
        ({"p": policy("t/n", ["a.*"], ["b"], "2")}, BROKERS[1:], {"a2:8080", "b:8080"}),
        ({"p": policy("t/n", ["a.*"], ["b"])}, BROKERS[2:], {"b:8080"}),
        ({"p": policy("t/n", ["a.*"], [])}, BROKERS[2:], set()),
        ({"p": policy("t/n", ["a1", "a2"], ["a.*", "b"], "3")}, BROKERS, {"a1:8080", "a2:8080", "b:8080"}),
        ({"p": policy("t/other", ["a.*"], ["b"])}, BROKERS, {"b:8080", "c:8080"}),
        ({"p": policy("t/other", [".*"], [])}, BROKERS, set()),
        ({"p": policy("t/.*", ["b"], []), "q": policy("t/n", ["c"], [])}, BROKERS, {"b:8080"}),
        ({"p": policy("t", ["a.*"], []), "q": policy("x t/n", ["c"], [])}, BROKERS, {"c:8080"}),
        ({"p": policy("t/n", ["a1:8080"], ["("], "1")}, BROKERS, set()),
        ({"p": policy(r"\Qt/n\E", [r"\Qa1\E"], [])}, BROKERS, {"a1:8080"}),
        ({"p": policy("t/n", ["a1"], ["b"], "x")}, BROKERS, {"a1:8080"}),
        ({"p": {"namespaces": ["t/n"]}}, BROKERS, set()),
    ],
)
def test_policies_name_the_brokers_that_may_take_a_namespace(
    policies: Any, up: tuple[str, ...], wanted: set[str]
) -> None:
    assert brokers_for(policies, "t/n", up) == wanted


def test_an_invalid_pattern_matches_nothing() -> None:
    assert not matches(["(", None, 3], "(")
    assert not matches(None, "a")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (None, policy("t/a t/b", ["x"], []), ["t/a", "t/b"]),
        (policy("t/a", ["x"], []), policy("t/a t/b", ["x"], []), ["t/b"]),
        (policy("t/a t/c", ["x"], []), policy("t/a t/b", ["x"], ["y"]), ["t/b", "t/c"]),
        (policy("t/a t/c", ["x", "y"], []), policy("t/a t/b", ["y", "x"], []), ["t/b", "t/c"]),
        (policy("t/a t/c", ["x"], []), policy("t/a t/b", ["y"], []), ["t/a", "t/b", "t/c"]),
        (policy("t/a", ["x"], []), policy("t/a", ["x"], [], unload_scope="changed"), []),
        (policy("t/a", ["x"], []), policy("t/a", ["x"], [], unload_scope="all_matching"), ["t/a"]),
        (policy("t/c", ["x"], []), policy("t/.", ["x"], [], unload_scope="all_matching"), ["t/a", "t/b", "t/c"]),
        (policy("t/a", ["x"], []), policy("t/a", ["y"], [], unload_scope="none"), []),
    ],
)
def test_a_changed_policy_unloads_the_namespaces_that_it_moves(old: Any, new: Any, wanted: list[str]) -> None:
    assert changed(old, new, ["t/a", "t/b", "t/c", "other/n"]) == wanted


def test_clients_are_redirected_only_to_brokers_that_a_policy_allows() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, store = await broker(tree, "a")
        await settled(a)
        b, _ = await broker(tree, "b", topics=1)
        c, _ = await broker(tree, "c", topics=9)
        await asyncio.sleep(1)
        assert a.leading
        policies = {"p": policy("public/default", ["b"], ["c"])}
        await store.create(isolation_path("lab"), encode_json(policies), parents=True)
        b_takes = Lookup("pulsar://b:6650", redirect=True)
        assert await a.lookup(TOPIC, authoritative=False) == b_takes  # though a has no topics at all
        elsewhere = TopicName.parse("persistent://pulsar/system/t")
        assert await a.lookup(elsewhere, authoritative=False) == Lookup("pulsar://a:6650")
        await b.stop()
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://c:6650", redirect=True)
        await c.stop()
        with pytest.raises(NoBroker, match="No broker was available to own public/default/0x"):
            await a.lookup(TOPIC, authoritative=False)
        await store.delete(isolation_path("lab"), 0)
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        await a.stop()

    on_a_cluster(scenario)


def test_without_a_leader_a_broker_takes_only_bundles_that_it_may() -> None:
    async def scenario(tree: MemoryTree) -> None:
        gone = BrokerStore(MemoryStore(tree))
        assert await gone.try_to_lead("gone:8080", "http://gone:8080")  # and is not registered any more
        a, store = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        policies = {"p": policy("pulsar/system", ["b"], [])}
        await store.create(isolation_path("lab"), encode_json(policies), parents=True)
        elsewhere = TopicName.parse("persistent://pulsar/system/t")
        assert await a.lookup(elsewhere, authoritative=False) == Lookup("pulsar://b:6650", redirect=True)
        assert await b.lookup(elsewhere, authoritative=False) == Lookup("pulsar://b:6650")
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)
