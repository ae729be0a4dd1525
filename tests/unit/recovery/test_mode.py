"""The mode of a running bookie: set over gRPC, or over the HTTP port of Java's bookies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bkdaemon.http_server import Answer, HttpServer, Request
from bkrecovery.mode import PATH, NoWay, set_mode

from bkctl.errors import ServerError, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore
from bkctl.model.bookie import BookieServiceInfo, Endpoint
from bkctl.world import real_world
from tests.unit.daemon.bookie.services import ID, ROOT, config_at, new_cluster, serving


async def registry_with(*endpoints: Endpoint) -> BookieRegistry:
    """A registry of one bookie on 127.0.0.1 with these endpoints."""
    registry = BookieRegistry(MemoryStore(await new_cluster()), ROOT)
    everything = (*endpoints, Endpoint("bookie", 3181, "127.0.0.1", "bookie-rpc"))
    await registry.register(ID, BookieServiceInfo(everything))
    return registry


@asynccontextmanager
async def java_bookie(code: int, seen: list[tuple[str, object]]) -> AsyncIterator[Endpoint]:
    """An HTTP server that has Java's route, and answers with a status; the endpoint that Java registers."""

    async def route(request: Request) -> Answer:
        seen.append((request.method, json.loads(request.body or "")))
        return Answer("some text", code)

    server = HttpServer(real_world(), {}, {PATH: route})
    port = await server.start("127.0.0.1", 0)
    try:
        yield Endpoint("httpserver", port, "0.0.0.0", "http")
    finally:
        await server.stop()


async def test_a_bookie_with_an_admin_port_is_set_over_grpc_with_who_and_why(tmp_path: Path) -> None:
    tree = await new_cluster()
    registry = BookieRegistry(MemoryStore(tree), ROOT)
    async with serving(tree, config_at(tmp_path)) as service:
        assert await set_mode(registry, ID, read_only=True, who="ann", why="a disk is replaced") == "gRPC"
        assert service.bookie.admission.reasons == {"manual": "ann: a disk is replaced"}
        assert await set_mode(registry, ID, read_only=False, who="ann", why="") == "gRPC"
        assert service.bookie.admission.reasons == {}


async def test_a_bookie_without_an_admin_port_is_set_over_http() -> None:
    seen: list[tuple[str, object]] = []
    async with java_bookie(200, seen) as endpoint:
        registry = await registry_with(endpoint)
        for read_only in (True, False):
            assert await set_mode(registry, ID, read_only=read_only, who="ann", why="x") == "HTTP"
    assert seen == [("PUT", {"readOnly": True}), ("PUT", {"readOnly": False})]


async def test_a_rejected_request_is_reported_with_status_and_text() -> None:
    async with java_bookie(400, []) as endpoint:
        registry = await registry_with(endpoint)
        with pytest.raises(ServerError, match="HTTP 400: some text"):
            await set_mode(registry, ID, read_only=True, who="ann", why="x")


async def test_an_http_port_that_does_not_answer_is_unavailable() -> None:
    async with java_bookie(200, []) as endpoint:
        pass
    registry = await registry_with(endpoint)
    with pytest.raises(Unavailable, match=rf"bookie {ID}: http://127\.0\.0\.1:{endpoint.port}/"):
        await set_mode(registry, ID, read_only=True, who="ann", why="x")


async def test_a_bookie_without_either_port_cannot_be_set_and_an_unregistered_one_is_not_running() -> None:
    registry = await registry_with()
    with pytest.raises(NoWay, match="no admin port reachable"):
        await set_mode(registry, ID, read_only=True, who="ann", why="x")
    empty = BookieRegistry(MemoryStore(await new_cluster()), ROOT)
    with pytest.raises(Unavailable, match="is not registered"):
        await set_mode(empty, ID, read_only=True, who="ann", why="x")
