"""Requests at a broker beside another that owns what they are about."""

from __future__ import annotations

import pytest
from bkdaemon.broker.cluster.topic_policies import system_topic

from bkctl.errors import NotFound
from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore
from bkctl.meta.namespaces import NamespaceStore
from bkctl.model.bundle import parse_range
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
