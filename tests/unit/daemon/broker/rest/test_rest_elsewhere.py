"""Requests at a broker beside another that owns what they are about."""

from __future__ import annotations

from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore
from bkctl.model.bundle import parse_range
from tests.broker.admin import Admin, administering

A = "/admin/v2"
NAMESPACE = "public/default"
NATIVE_URL, HTTP_URL = "pulsar://b:6650", "http://b:8080"


async def other(admin: Admin) -> BrokerStore:
    """Another broker in the cluster, as its nodes tell of it."""
    brokers = BrokerStore(MemoryStore(admin.cluster.tree))
    await brokers.register("b:8080", {"pulsarServiceUrl": NATIVE_URL, "webServiceUrl": HTTP_URL})
    return brokers


def test_a_lease_on_what_is_no_bundle_keeps_no_namespace_from_being_unloaded() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("persistent://public/default/t")
        stray = parse_range(NAMESPACE, "0x00000000_0x00000007")
        await (await other(admin)).acquire(stray, NATIVE_URL, HTTP_URL)
        await admin.ok("PUT", f"{A}/namespaces/{NAMESPACE}/unload")
        assert topic.closed

    administering(scenario)
