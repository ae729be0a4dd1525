"""`bkctl bookie …` on a metadata store in memory: who is there, and what is said of those who are not."""

from __future__ import annotations

import asyncio
import socket

import pytest

from bkctl.codec.registration import encode_service_info
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo, Cookie, Endpoint
from bkctl.model.ids import BookieId
from tests.command_line import bkctl

WRITABLE, READ_ONLY, DOWN, OLD = map(BookieId, ("10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181", "10.0.0.4:3181"))
ROOT = "/ledgers"


def info(host: str, port: int = 3181) -> BookieServiceInfo:
    return BookieServiceInfo(
        (
            Endpoint("httpserver", 8080, "0.0.0.0", "http"),
            Endpoint("bookie", port, host, "bookie-rpc"),
            Endpoint("admin", 8090, host, "grpc"),
        )
    )


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(made)
        await init_cluster(store, ROOT)
        registry = BookieRegistry(store, ROOT)
        await registry.register(WRITABLE, info("10.0.0.1"))
        await registry.register(READ_ONLY, info("10.0.0.2"), read_only=True)
        for bookie_id in (WRITABLE, DOWN):
            await registry.create_cookie(Cookie(bookie_id, ("/j",), ("/l",)))
        await store.create(f"{ROOT}/available/{OLD}", b"", ephemeral=True)

    asyncio.run(fill())
    assert encode_service_info(info("x"))
    return made


def test_list(tree: MemoryTree) -> None:
    rows = bkctl("bookie", "list", "-o", "jsonl", tree=tree).rows()
    assert [(r["bookie_id"], r["state"], r["address"]) for r in rows] == [
        (WRITABLE, "rw", "10.0.0.1:3181"),
        (READ_ONLY, "ro", "10.0.0.2:3181"),
        (DOWN, "down", None),
        (OLD, "rw", "10.0.0.4:3181"),
    ]
    assert [(r["http_port"], r["grpc_port"], r["cookie"]) for r in rows] == [
        (8080, 8090, True),
        (8080, 8090, False),
        (None, None, True),
        (None, None, False),
    ]
    assert bkctl("bookie", "list", "--state", "down", "-o", "name", tree=tree).stdout == f"{DOWN}\n"
    assert bkctl("bookie", "list", "--state", "up", tree=tree).code == 2


def test_status_of_those_who_do_not_answer(tree: MemoryTree) -> None:
    answer = bkctl("bookie", "status", DOWN, "-o", "json", tree=tree)
    assert answer.code == 1
    assert answer.json()["error"] == "not registered"
    assert answer.json()["state"] == "down"
    assert bkctl("bookie", "status", "10.9.9.9:3181", tree=tree).code == 4
    assert bkctl("bookie", "status", "read only", tree=tree).code == 2


def test_ping_of_a_port_where_nobody_listens(tree: MemoryTree) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]

    async def register() -> None:
        await BookieRegistry(MemoryStore(tree), ROOT).register(BookieId(f"127.0.0.1:{port}"), info("127.0.0.1", port))

    asyncio.run(register())
    answer = bkctl("bookie", "ping", f"127.0.0.1:{port}", DOWN, "-o", "json", tree=tree)
    assert answer.code == 1
    rows = answer.json()["items"]
    assert [r["answers"] for r in rows] == [False, False]
    assert "does not answer" in rows[0]["error"]


def test_set_needs_a_mode_a_bookie_and_consent(tree: MemoryTree) -> None:
    assert bkctl("bookie", "set", "off", WRITABLE, "--yes", tree=tree).code == 2
    assert bkctl("bookie", "set", "read-only", DOWN, "--yes", tree=tree).code == 6
    assert bkctl("bookie", "set", "read-only", OLD, "--yes", tree=tree).code == 3, "no admin port: one of Java's"
    assert bkctl("bookie", "set", "read-only", WRITABLE, tree=tree).code == 3, "nobody confirmed"


def test_start_needs_a_configuration() -> None:
    assert bkctl("bookie", "start").code == 2
    answer = bkctl("bookie", "start", "-c", "/nonexistent/bk_server.conf", "-o", "json")
    assert answer.code == 2
    assert "/nonexistent" in answer.error()["message"]
