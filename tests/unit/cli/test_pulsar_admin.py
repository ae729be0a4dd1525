"""The client of the REST interface: where it sends the token, redirects, and brokers that do not answer."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bkctl.cli.env import Env
from bkctl.cli.pulsar_admin import REDIRECTS_MAX, Admin
from bkctl.errors import Exit, Refused, Unauthorized, Unavailable, UsageError
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.command_line import bkctl


class Broker(ThreadingHTTPServer):
    """Wants the token `secret` unless it redirects; remembers what it was sent of tokens."""

    location = ""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                broker = self.server
                assert isinstance(broker, Broker)
                broker.tokens.append(self.headers["Authorization"])
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if broker.location:
                    self.send_response(307)
                    self.send_header("Location", broker.location)
                else:
                    self.send_response(204 if broker.tokens[-1] == "Bearer secret" else 401)
                self.end_headers()

            do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.tokens: list[str | None] = []
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
def own() -> Iterator[Broker]:
    with running() as broker:
        yield broker


@pytest.fixture
def other() -> Iterator[Broker]:
    with running() as broker:
        yield broker


def admin(broker: Broker, **environ: str) -> Admin:
    env = Env(
        io.BytesIO(),
        io.TextIOWrapper(io.BytesIO()),
        io.TextIOWrapper(io.BytesIO()),
        {"BKCTL_BROKER_TOKEN": "secret", **environ},
    )
    return Admin.of(env, broker.url)


def ask(found: Admin) -> object:
    return asyncio.run(found.ask("PUT", "/x", {"a": 1}))


def test_the_broker_gets_the_token_also_where_it_redirects_to_itself(own: Broker) -> None:
    own.location = "/admin/v2/y"
    with pytest.raises(Unavailable, match="in a loop"):
        ask(admin(own))
    assert own.tokens == ["Bearer secret"] * REDIRECTS_MAX


def test_another_origin_does_not_get_the_token_and_the_error_says_how_it_would(own: Broker, other: Broker) -> None:
    own.location = f"{other.url}/admin/v2/x"
    with pytest.raises(Unauthorized) as caught:
        ask(admin(own))
    assert (own.tokens, other.tokens) == (["Bearer secret"], [None])
    assert f"{own.url} redirected to {other.url}; the token was not sent there" in str(caught.value.hint)
    assert f"BKCTL_BROKER_TOKEN_ORIGINS={','.join(sorted([own.url, other.url]))}" in str(caught.value.hint)


def test_origins_that_are_named_get_the_token_and_no_others(own: Broker, other: Broker) -> None:
    own.location = f"{other.url}/admin/v2/x"
    assert ask(admin(own, BKCTL_BROKER_TOKEN_ORIGINS=f"{own.url}/, {other.url}")) is None
    assert (own.tokens, other.tokens) == (["Bearer secret"], ["Bearer secret"])
    own.location = ""
    with pytest.raises(Unauthorized, match="401"):
        ask(admin(own, BKCTL_BROKER_TOKEN_ORIGINS=other.url))
    assert own.tokens[1:] == [None]


def test_redirects_to_files_and_other_schemes_are_refused(own: Broker, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("{}")
    for own.location in ((tmp_path / "f").as_uri(), "ftp://127.0.0.1/x"):
        with pytest.raises(Refused, match="not an http or https address"):
            ask(admin(own))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "127.0.0.1:8080", "http://u:p@127.0.0.1:1"])
def test_a_web_address_that_is_not_http_is_refused(url: str) -> None:
    tree = MemoryTree()

    async def register() -> None:
        value = json.dumps({"webServiceUrl": url}).encode()
        await MemoryStore(tree).create("/loadbalance/brokers/127.0.0.1:1", value, parents=True)

    asyncio.run(register())
    answer = bkctl("broker", "config", "127.0.0.1:1", "-o", "json", tree=tree, environ={"BKCTL_BROKER_TOKEN": "secret"})
    assert (answer.code, answer.error()["kind"]) == (Exit.REFUSED, "refused")


@pytest.mark.parametrize(
    "environ",
    [{"BKCTL_BROKER_TOKEN": "sec\nret"}, {"BKCTL_BROKER_TOKEN_ORIGINS": "b:8080"}, {"BKCTL_BROKER_TOKEN": "ü"}],
)
def test_settings_that_are_not_valid_are_refused_without_the_token(own: Broker, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        admin(own, **environ)
    assert "ret" not in caught.value.message


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """A web address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_does_not_answer_is_named(silent_broker: str) -> None:
    with pytest.raises(Unavailable, match=rf"{silent_broker}.*no response in 0\.1 s"):
        asyncio.run(Admin(f"http://{silent_broker}", 0.1).get("/brokers/health"))


def test_a_command_ends_while_a_broker_does_not_answer(silent_broker: str) -> None:
    async def limited() -> None:
        async with asyncio.timeout(0.1):
            await Admin(f"http://{silent_broker}", 60).get("/brokers/health")

    with pytest.raises(TimeoutError):
        asyncio.run(limited())
    assert "pulsar admin" in {thread.name for thread in threading.enumerate()}, "the command did not wait for it"
