from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.broker.rest.forwarding import REDIRECTS_MAX, send

from bkctl.errors import Conflict, NotFound, Refused, Unauthorized, Unavailable
from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore
from bkctl.model.origin import origins
from tests.broker.admin import Admin, administering

TOKEN = {"authorization": "Bearer secret"}


class Broker(ThreadingHTTPServer):
    """Answers with a status, body and Location; remembers path and headers of each request."""

    status, answer, location = 200, b"[]", ""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                broker = self.server
                assert isinstance(broker, Broker)
                broker.asked.append((self.path, {name.title(): value for name, value in self.headers.items()}))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(broker.status)
                if broker.location:
                    self.send_header("Location", broker.location)
                self.send_header("Content-Length", str(len(broker.answer)))
                self.end_headers()
                self.wfile.write(broker.answer)

            do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running() -> Iterator[Broker]:
    with Broker() as broker:
        thread = threading.Thread(target=broker.serve_forever)
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            thread.join()


@pytest.fixture
def owner() -> Iterator[Broker]:
    with running() as broker:
        yield broker


@pytest.fixture
def other() -> Iterator[Broker]:
    with running() as broker:
        yield broker


def ask(first: Broker, *known: Broker, headers: dict[str, str] = TOKEN) -> Any:
    return send("PUT", f"{first.url}/x", b"{}", headers, origins([b.url for b in (first, *known)]))


def test_the_owner_gets_the_callers_credentials(owner: Broker) -> None:
    assert ask(owner) == []
    assert owner.asked[0][1]["Authorization"] == "Bearer secret"


def test_a_redirect_to_a_registered_broker_is_followed_with_the_credentials(owner: Broker, other: Broker) -> None:
    owner.status, owner.location = 307, f"{other.url}/y"
    assert ask(owner, other) == []
    path, headers = other.asked[0]
    assert (path, headers["Authorization"]) == ("/y", "Bearer secret")


def test_a_redirect_to_another_address_is_refused(owner: Broker, other: Broker, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("[1]")
    owner.status = 307
    for location in (f"{other.url}/y", (tmp_path / "f").as_uri(), "ftp://127.0.0.1/x"):
        owner.location = location
        with pytest.raises(Unavailable, match="no broker is registered"):
            ask(owner)
    assert other.asked == []


@pytest.mark.parametrize("status", [301, 302, 303, 308])
def test_only_the_redirects_of_brokers_are_followed(owner: Broker, other: Broker, status: int) -> None:
    owner.status, owner.location = status, f"{other.url}/y"
    with pytest.raises(Unavailable, match=str(status)):
        ask(owner, other)
    assert other.asked == []


def test_redirects_in_a_circle_end(owner: Broker) -> None:
    owner.status, owner.location = 307, "/again"
    with pytest.raises(Unavailable, match="redirects"):
        ask(owner)
    assert len(owner.asked) == REDIRECTS_MAX + 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Unauthorized), (403, Unauthorized), (404, NotFound), (409, Conflict), (412, Refused), (500, Unavailable)],
)
def test_refusals_of_the_owner_are_kept(owner: Broker, status: int, kind: type[Exception]) -> None:
    owner.status, owner.answer = status, b'{"reason": "why"}'
    with pytest.raises(kind, match="why"):
        ask(owner)


@pytest.mark.parametrize("status", [200, 401])
def test_a_request_on_partitions_is_forwarded_in_the_name_of_the_caller(
    owner: Broker, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.status = status

    async def to_thread(work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)  # the simulation has no threads; the other broker is outside of it

    monkeypatch.setattr("asyncio.to_thread", to_thread)

    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/persistent/public/default/p/partitions", 1)
        backend = admin.service.backend
        brokers = BrokerStore(MemoryStore(admin.cluster.tree))
        await brokers.register("b:8080", {"pulsarServiceUrl": "pulsar://b:6650", "webServiceUrl": owner.url})
        for bundle in (await backend.meta.namespaces.bundles("public/default")).all():
            if bundle in backend.ownership.owned:
                await backend.ownership.unload(bundle, admin.service.close_bundle)
            await brokers.acquire(bundle, "pulsar://b:6650", owner.url)
        path = "/admin/v2/persistent/public/default/p/subscriptions"
        answer = await admin.ask("GET", path, headers=[(b"authorization", b"Bearer secret")])
        assert answer.status == status

    administering(scenario)
    assert [headers["Authorization"] for _, headers in owner.asked] == ["Bearer secret"]
