"""Clients of the broker under test, and another broker beside it, for the tests of this folder."""

from __future__ import annotations

from typing import Any, cast

from bkctl.codec.pulsar import Command
from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore
from tests.broker.admin import Admin
from tests.broker.raw import PORT, RawClient

TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
HOST = "client"
A = "/admin/v2"
DEFAULT = "public/default"
NATIVE_URL, HTTP_URL = "pulsar://b:6650", "http://b:8080"
PERSISTENT = "/admin/v2/persistent/public/default"


async def connected(admin: Admin) -> RawClient:
    """Open the broker's port and the topic; return a connected client."""
    await admin.topic(TOPIC)
    await admin.service.server.start(HOST, PORT)
    _, protocol = await admin.service.world.network.connect(HOST, PORT, RawClient)
    client = cast("RawClient", protocol)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    return client


async def stats_of(admin: Admin, query: str = "") -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the statistics of the topic, its subscription and the consumer of that."""
    topic = await admin.ok("GET", f"{PATH}/stats{query}")
    subscription = topic["subscriptions"]["s"]
    return topic, subscription, (subscription["consumers"] or [{}])[0]


async def register_other_broker(admin: Admin) -> BrokerStore:
    """Register another broker in the cluster."""
    brokers = BrokerStore(MemoryStore(admin.cluster.tree))
    await brokers.register("b:8080", {"pulsarServiceUrl": NATIVE_URL, "webServiceUrl": HTTP_URL})
    return brokers


async def status_of(admin: Admin, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request; return the status and the body of the answer."""
    answer = await admin.ask(method, path, body)
    return answer.status, answer.body
