"""Requests at a broker beside another that owns what they are about."""

from __future__ import annotations

import pytest
from bkinspect.topic_policies import system_topic

from bkctl.errors import NotFound
from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore
from bkctl.meta.namespaces import NamespaceStore
from bkctl.model.bundle import hash_of, parse_range
from tests.broker.admin import Admin, administering

A = "/admin/v2"
NAMESPACE = "public/default"
TOPIC = f"{A}/persistent/{NAMESPACE}/t"
NATIVE_URL, HTTP_URL = "pulsar://b:6650", "http://b:8080"


async def other(admin: Admin) -> BrokerStore:
    """Another broker in the cluster, as its nodes tell of it."""
    brokers = BrokerStore(MemoryStore(admin.cluster.tree))
    await brokers.register("b:8080", {"pulsarServiceUrl": NATIVE_URL, "webServiceUrl": HTTP_URL})
    return brokers


def test_topic_policies_are_told_where_they_are_set() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic("persistent://public/default/t")
        await admin.ok("POST", f"{TOPIC}/maxProducers", 3)
        assert await admin.ok("GET", f"{TOPIC}/maxProducers") == 3
        ownership, events = admin.service.backend.ownership, system_topic(NAMESPACE)
        bundle = await ownership.bundle_of(events)
        await ownership.unload(bundle, admin.service.close_bundle)
        await (await other(admin)).acquire(bundle, NATIVE_URL, HTTP_URL)
        for path in ("maxProducers", "s/dispatchRate"):
            answer = await admin.ask("GET", f"{TOPIC}/{path}?applied=true")
            assert (answer.status, answer.headers.get("location", "").partition("?")[0]) == (
                307,
                f"{HTTP_URL}{TOPIC}/{path}",
            )

    administering(scenario)


def test_a_lease_on_what_is_no_bundle_keeps_no_namespace_from_being_unloaded() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("persistent://public/default/t")
        stray = parse_range(NAMESPACE, "0x00000000_0x00000007")
        await (await other(admin)).acquire(stray, NATIVE_URL, HTTP_URL)
        await admin.ok("PUT", f"{A}/namespaces/{NAMESPACE}/unload")
        assert topic.closed

    administering(scenario)


def test_a_namespace_that_another_broker_deletes_gets_no_new_topics() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic("persistent://public/default/t")
        namespaces = NamespaceStore(MemoryStore(admin.cluster.tree))
        await namespaces.update_policies(NAMESPACE, lambda old: old | {"deleted": True})
        with pytest.raises(NotFound, match="is being deleted"):
            await admin.topic("persistent://public/default/new")
        assert await admin.service.backend.topics(NAMESPACE) == ["persistent://public/default/t"]

    administering(scenario)


def test_a_bundle_is_given_to_the_broker_that_is_named() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("persistent://public/default/t")
        ownership = admin.service.backend.ownership
        bundle = await ownership.bundle_of(topic.name)
        unload = f"{A}/namespaces/{NAMESPACE}/{bundle.range}/unload?destinationBroker="
        refused = await admin.ask("PUT", f"{unload}b:8080")
        assert (refused.status, topic.closed, bundle in ownership.owned) == (409, False, True)
        assert "inactive destination broker" in refused.body["reason"]
        await admin.ok("PUT", unload + ownership.address.broker_id)
        assert (topic.closed, bundle in ownership.owned) == (True, True)
        await admin.ok("PUT", unload)
        assert bundle not in ownership.owned

    administering(scenario)


def test_a_bundle_is_cut_where_it_is_asked_for() -> None:
    async def scenario(admin: Admin) -> None:
        async def cut(lower: int, upper: int, algorithm: str, body: object = None) -> list[str]:
            target = f"{A}/namespaces/t/n/0x{lower:08x}_0x{upper:08x}/split?splitAlgorithmName={algorithm}"
            await admin.ok("PUT", target, body)
            return list((await admin.ok("GET", f"{A}/namespaces/t/n/bundles"))["boundaries"])

        await admin.ok("PUT", f"{A}/tenants/t", {"allowedClusters": ["lab"]})
        await admin.ok("PUT", f"{A}/namespaces/t/n", {"bundles": {"numBundles": 1}})
        end = 0xFFFFFFFF
        whole = ["0x00000000", "0xffffffff"]
        for algorithm in ("topic_count_equally_divide", "specified_positions_divide"):
            assert await cut(0, end, algorithm, [0x1000]) == whole, "nothing is to be divided"
        for number in range(4):
            await admin.topic(f"persistent://t/n/{number}")
        first, second, third, last = sorted(hash_of(f"persistent://t/n/{number}") for number in range(4))
        assert await cut(0, end, "specified_positions_divide", [0, end]) == whole, "neither is inside"
        middle = second + (third - second) // 2
        assert await cut(0, end, "topic_count_equally_divide") == [whole[0], f"0x{middle:08x}", whole[1]]
        assert f"0x{first:08x}" in await cut(0, middle, "specified_positions_divide", [last, first])
        refused = await admin.ask("PUT", f"{A}/namespaces/t/n/0x00000000_0xffffffff/split?splitAlgorithmName=x")
        assert (refused.status, "supported algorithms are" in refused.body["reason"]) == (412, True)

    administering(scenario)
