"""A bookie's HTTP port over loopback sockets: requests that are not valid, too large, too slow or too many."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from bkdaemon import http_server as http
from bkdaemon.http_server import BODY_BYTES_MAX, CONNECTIONS_MAX, RESERVED, Answer, HttpServer, Request

from bkctl.world import real_world

Ask = Callable[[bytes], Awaitable[tuple[int, bytes]]]
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
PUT = b"PUT /echo?a=1&a=2&b HTTP/1.1\r\nHost: x\r\n"


class Routes:
    """Routes under test. Attributes: ended: what `/wait` met."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.ended = asyncio.Event()
        self.open = 0

    async def echo(self, request: Request) -> Answer:
        return Answer(f"{request.method} {dict(request.parameters)} {len(request.body or '')}")

    async def wait(self, request: Request) -> Answer:
        self.open += 1
        self.started.set()
        try:
            await self.gate.wait()
        finally:
            self.open -= 1
            self.ended.set()
        return Answer("[ ]")

    async def long(self, request: Request) -> Answer:
        return Answer("x" * (16 << 20))

    async def fail(self, request: Request) -> Answer:
        json.loads(request.parameters["json"])
        raise KeyError("a bug")


@asynccontextmanager
async def served() -> AsyncIterator[tuple[int, Routes, Ask]]:
    routes = Routes()
    paths = {"/echo": routes.echo, "/wait": routes.wait, "/fail": routes.fail, "/long": routes.long}
    server = HttpServer(real_world(), {"/metrics": lambda: ("text/plain", "figures\n")}, paths)
    port = await server.start("127.0.0.1", 0)

    async def ask(request: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    try:
        yield port, routes, ask
    finally:
        routes.gate.set()
        await server.stop()


async def test_pages_and_routes_answer_their_methods() -> None:
    async with served() as (_, _, ask):
        assert await ask(GET) == (200, b"figures\n")
        assert await ask(GET.replace(b"GET", b"HEAD")) == (200, b"")
        assert (await ask(GET.replace(b"GET", b"POST")))[0] == 405
        assert (await ask(GET.replace(b"/metrics", b"/none")))[0] == 404
        assert (await ask(GET.replace(b"GET", b"PATCH").replace(b"/metrics", b"/echo")))[0] == 405
        assert await ask(PUT + b"Content-Length: 3\r\n\r\nabc") == (200, b"PUT {'a': '2', 'b': ''} 3")


async def test_a_body_in_chunks_is_read() -> None:
    async with served() as (_, _, ask):
        chunked = PUT + b"Transfer-Encoding: chunked\r\n\r\n"
        assert await ask(chunked + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") == (200, b"PUT {'a': '2', 'b': ''} 5")
        assert (await ask(chunked + b"x\r\nabc\r\n"))[0] == 400


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 3x\r\n",
        b"no header\r\n",
    ],
)
async def test_a_request_that_is_not_valid_is_a_400(headers: bytes) -> None:
    async with served() as (_, _, ask):
        assert (await ask(PUT + headers + b"\r\nabc"))[0] == 400
        assert (await ask(GET))[0] == 200


async def test_a_body_above_the_limit_is_a_413_however_it_is_sent() -> None:
    async with served() as (_, _, ask):
        size = BODY_BYTES_MAX + 1
        assert (await ask(PUT + b"Content-Length: %d\r\n\r\n" % size))[0] == 413
        chunk = b"1000\r\n" + bytes(0x1000) + b"\r\n"
        assert (await ask(PUT + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (size // 0x1000 + 1)))[0] == 413
        answer = await ask(PUT + b"Content-Length: %d\r\n\r\n" % BODY_BYTES_MAX + bytes(BODY_BYTES_MAX))
        assert answer == (200, b"PUT {'a': '2', 'b': ''} %d" % BODY_BYTES_MAX)


async def test_half_request_heads_on_all_connections_do_not_keep_a_page_from_being_answered() -> None:
    async with served() as (port, _, ask):
        halves = []
        for _ in range(3 * (CONNECTIONS_MAX + RESERVED)):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-")
            halves.append(writer)
        for _ in range(5):
            assert await ask(GET) == (200, b"figures\n")
        for writer in halves:
            writer.close()


async def test_a_page_is_answered_while_every_other_request_is_in_progress() -> None:
    async with served() as (port, routes, ask):
        waiting = []
        for _ in range(CONNECTIONS_MAX):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
            waiting.append(writer)
        while routes.open < CONNECTIONS_MAX:
            routes.started.clear()
            await routes.started.wait()
        assert (await ask(GET.replace(b"/metrics", b"/wait")))[0] == 503
        assert await ask(GET) == (200, b"figures\n")
        for writer in waiting:
            writer.close()


async def test_a_route_ends_when_its_client_disconnects() -> None:
    async with served() as (port, routes, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await routes.started.wait()
        writer.close()
        await routes.ended.wait()
        assert not routes.gate.is_set()


async def test_a_route_without_a_result_in_time_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ROUTE_S", 0.05)
    async with served() as (_, routes, ask):
        assert await ask(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n") == (503, b"no result within 0.05 s")
        assert routes.ended.is_set()


@pytest.mark.parametrize(
    ("text", "level"),
    [("x", logging.WARNING), ("[" * 10_000, logging.WARNING), ("9" * 5000, logging.WARNING), ("1", logging.ERROR)],
)
async def test_an_error_of_a_route_is_a_500_and_logged(text: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (_, _, ask):
        answer = await ask(b"GET /fail?json=%b HTTP/1.1\r\nHost: x\r\n\r\n" % text.encode())
        assert answer == (500, b"Internal Server Error")
    assert [r.levelno for r in caplog.records if r.name == "bkdaemon.http_server"] == [level]


async def test_long_answers_that_clients_do_not_take_are_bounded_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 40 << 20)
    monkeypatch.setattr(http, "ROUTE_S", 0.5)
    get = GET.replace(b"/metrics", b"/long")
    async with served() as (port, _, ask):
        assert await ask(get) == (200, b"x" * (16 << 20))
        slow = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(get)
            await reader.readexactly(9)
            slow.append((reader, writer))
        assert await ask(get) == (503, b"too many long answers in progress; retry later\n")
        assert await ask(GET) == (200, b"figures\n")
        while (await ask(get))[0] == 503:
            pass
        for _, writer in slow:
            writer.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        GET,
        PUT + b"Content-Length: 3\r\n\r\nabc",
        PUT + b"Content-Length: 3\r\n\r\n",
        PUT + b"Content-Length: 300000\r\n\r\n" + bytes(300_000),
        b"x\r\n\r\n" + bytes(300_000),
        b"GET /fail?json=1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /met",
    ],
)
async def test_a_closed_connection_leaves_nothing_to_garbage_collection(request_bytes: bytes) -> None:
    async with served() as (port, _, ask):
        assert (await ask(GET))[0] == 200
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request_bytes)
                with contextlib.suppress(TimeoutError, ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 0.05)
                writer.transport.abort()
            assert (await ask(GET))[0] == 200
            await asyncio.sleep(0.05)
            assert not [o for o in gc.get_objects() if type(o).__name__ in ("_Connection", "_Parser", "_Body")]
        finally:
            gc.enable()


async def test_a_bad_body_of_a_head_request_is_a_400_without_a_body(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (_, _, ask):
        request = b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert await ask(request + b"x\r\nabc\r\n") == (400, b"")
        assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
