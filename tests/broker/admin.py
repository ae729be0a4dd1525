"""A broker's REST interface on a simulated cluster in virtual time: requests go straight to the application.

`java_topics` puts what a Java broker left behind (nodes and ledgers of the golden data) below it first.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

from bkdaemon.broker.cluster.ownership import BrokerAddress
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.rest.application import application
from bkdaemon.broker.service import BrokerService
from bkdaemon.broker.topic.topic import Topic

from bkctl.client.client import BookKeeper
from bkctl.meta.memory import MemoryStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.model.topic import TopicName
from tests import pulsar_golden as golden
from tests.unit.client.cluster import SimCluster, simulate

T = TypeVar("T")
JAVA_ROOTS = ("/managed-ledgers", "/admin", "/schemas", "/namespace", "/bookies")
NOW_MS = 1_795_231_434_000  # of the golden data: its ledgers are minutes old


@dataclass
class Answer:
    """What a request was answered with; body is JSON where it is that, else text."""

    status: int
    headers: dict[str, str]
    data: bytes = field(repr=False)
    names: tuple[str, ...] = ()
    """Of headers, as they are written."""

    @property
    def body(self) -> Any:
        try:
            return json.loads(self.data) if self.data else None
        except ValueError:
            return self.data.decode()


class Admin:
    """One broker whose topics are served, without ports."""

    def __init__(self, service: BrokerService, cluster: SimCluster) -> None:
        self.service = service
        self.cluster = cluster
        self._app = application(service)

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """Sends a request, as it comes from a socket; raw is its body as it is."""
        path, _, query = target.partition("?")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"content-type", b"application/json"), (b"host", b"a:8080"), *headers],
            "server": ("a", 8080), "client": ("b", 1),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        told = {name.decode().lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        names = tuple(name.decode() for name, _ in sent[0]["headers"])
        return Answer(sent[0]["status"], told, b"".join(m.get("body", b"") for m in sent[1:]), names)

    async def ok(self, method: str, target: str, body: Any = None) -> Any:
        """Sends a request that works; its body."""
        answer = await self.ask(method, target, body)
        assert answer.status in (200, 204), f"{method} {target}: {answer.status} {answer.body}"
        return answer.body

    async def topic(self, name: str, *, create: bool = True) -> Topic:
        """A topic of this broker, opened."""
        topic = TopicName.parse(name)
        await self.service.backend.lookup(topic, authoritative=True)
        found = await self.service.server.topics.get(topic, create=create)
        assert isinstance(found, Topic)
        return found


async def java_topics(cluster: SimCluster, client: BookKeeper) -> None:
    """Lays Java's nodes and ledgers down: nodes as its broker had them while it ran, open ledgers unclosed."""
    store = MemoryStore(cluster.tree)
    for node in sorted(golden.tree("pulsar/zk_tree.json"), key=lambda node: str(node["path"])):
        path = str(node["path"])
        if not path.startswith(JAVA_ROOTS) or node["ephemeral"] or await store.exists(path) is not None:
            continue
        await store.create(path, node["data"], parents=True)
    ledgers = json.loads((golden.FOLDER / "pulsar/ledgers.json").read_text())
    payloads: dict[int, list[bytes]] = {}
    for row in golden.entries():
        payloads.setdefault(row["ledger"], []).append(row["payload"])
    for ledger_id, told in ledgers.items():
        custom = {key: text.encode() for key, text in told["custom"].items()}
        writer = await client.create(2, 2, 2, custom_metadata=custom, ledger_id=int(ledger_id))
        if payloads.get(int(ledger_id)):
            writer.append_many(payloads[int(ledger_id)])
            await writer.flush()
        if told["state"] == 3:
            await writer.close()
        else:
            writer.abandon()
    for _ in ledgers:
        await client.ledgers.next_id()  # new ledgers shall have later ids


def administering(
    scenario: Callable[[Admin], Awaitable[T]], *, java: bool = False, bookies: int = 4, **settings: Any
) -> T:
    """Runs a scenario with one broker in a new cluster; settings are those of BrokerConfig."""

    async def main(cluster: SimCluster, client: BookKeeper) -> T:
        if java:
            await java_topics(cluster, client)
        urls = {"ledgers_root": "/ledgers", "service_url": "http://a:8080", "broker_service_url": "pulsar://a:6650"}
        await init_pulsar(MemoryStore(cluster.tree), "lab", **urls)
        config = BrokerConfig(cluster="lab", **settings)
        service = BrokerService(config, client.context.world, MemoryStore(cluster.tree), client)
        service.backend.ownership.address = BrokerAddress("a:8080", "pulsar://a:6650", "http://a:8080")
        await service.begin()
        result = await scenario(Admin(service, cluster))
        await service.server.stop()
        await service.backend.stop()
        return result

    return simulate(main, bookies=bookies)
