"""An HTTP listener's limits, over loopback sockets: each is enforced while the request is read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.http_limits import LimitedServer, ListenerLimits

from bkctl.world import SystemNetwork

LIMITS = ListenerLimits(
    connections_max=4,
    reserved=2,
    head_bytes_max=2048,
    head_seconds_max=60,
    body_bytes_max=10_000,
    body_seconds_max=60,
    bodies_bytes_max=15_000,
    keep_alive_seconds_max=60,
    stall_seconds_max=60,
)
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSE_S = 30
"""A connection that is to be closed is closed long before."""


class Application:
    """Answers with the length of the body; `held` requests wait until `gate` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started = asyncio.Semaphore(0)
        self.bodies: list[int] = []
        self.answer = b""

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        size, more = 0, True
        self.started.release()
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        self.bodies.append(size)
        if scope["path"] == "/held":
            await self.gate.wait()
        text = self.answer or str(size).encode()
        headers = [(b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def served(limits: ListenerLimits = LIMITS, **options: Any) -> Any:
    app = Application()
    server = LimitedServer(app, limits, reserved_paths=frozenset({"/health"}), **options)
    port = await server.start(SystemNetwork(), "127.0.0.1", 0)
    opened: list[asyncio.StreamWriter] = []

    async def connect(data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        writer.write(data)
        return reader, writer

    try:
        yield server, app, connect
    finally:
        app.gate.set()
        for writer in opened:
            writer.close()
        await server.stop()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(CLOSE_S):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Returns what comes until the server closes the connection."""
    async with asyncio.timeout(CLOSE_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def head(path: str, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_body_within_its_limit_is_served_with_a_length_and_in_chunks() -> None:
    async with served() as (server, _app, connect):
        reader, writer = await connect(head("/x", Content_Length="10000") + bytes(10_000))
        assert (await response(reader))[::2] == (200, b"10000")
        writer.write(head("/x", Transfer_Encoding="chunked") + chunk(bytes(6000)) + chunk(bytes(4000)) + chunk(b""))
        assert (await response(reader))[::2] == (200, b"10000")
        assert server.body_bytes == server.requests == 0


async def test_a_declared_body_over_the_limit_is_413_and_never_reaches_the_application() -> None:
    async with served() as (_, app, connect):
        reader, _ = await connect(head("/x", Content_Length="10001"))
        status, headers, _ = await response(reader)
        assert (status, headers["connection"], app.bodies) == (413, "close", [])
        assert await closed(reader) == b""


async def test_a_chunked_body_is_413_once_the_limit_is_exceeded_though_the_client_sends_on() -> None:
    async with served() as (server, app, connect):
        reader, writer = await connect(head("/x", Transfer_Encoding="chunked"))
        for _ in range(40):  # the client reads the answer only when it has sent 160 kB
            writer.write(chunk(bytes(4000)))
            await writer.drain()
        status, headers, _ = await response(reader)
        assert (status, headers["connection"], app.bodies) == (413, "close", [])
        assert await closed(reader) == b""
        assert server.body_bytes == 0


async def test_a_route_can_have_a_limit_of_its_own() -> None:
    async with served(body_limit=lambda method, path: 12_000 if path == "/large" else 10) as (_, _, connect):
        reader, _ = await connect(head("/large", Content_Length="12000") + bytes(12_000))
        assert (await response(reader))[0] == 200
        reader, _ = await connect(head("/x", Content_Length="11"))
        assert (await response(reader))[0] == 413


async def test_bodies_of_all_requests_together_have_a_limit() -> None:
    async with served() as (_server, app, connect):
        await connect(head("/held", Content_Length="9000") + bytes(9000))
        async with asyncio.timeout(CLOSE_S):
            await app.started.acquire()
        reader, _ = await connect(head("/x", Content_Length="9000") + bytes(9000))
        assert (await response(reader))[0] == 503
        app.gate.set()


@pytest.mark.parametrize("line", [b"GET /" + b"a" * 3000, b"GET / HTTP/1.1\r\nX: " + b"a" * 3000])
async def test_a_head_over_the_limit_is_431_whole_or_not(line: bytes) -> None:
    async with served() as (_, _, connect):
        for end in (b"", b" HTTP/1.1\r\nHost: x\r\n\r\n" if b"HTTP" not in line else b"\r\nHost: x\r\n\r\n"):
            reader, _ = await connect(line + end)
            assert (await response(reader))[0] == 431
            assert await closed(reader) == b""


async def test_half_a_head_is_closed_after_its_time_and_bytes_do_not_prolong_it() -> None:
    async with served(replace(LIMITS, head_seconds_max=0.3)) as (_, _, connect):
        reader, writer = await connect(b"GET /health HTTP/1.1\r\nX: ")

        async def drip() -> None:
            while not reader.at_eof():
                writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await closed(reader) == b""
        dripping.cancel()
        reader, writer = await connect(HEALTH)  # the second head of a connection has the same time
        assert (await response(reader))[0] == 200
        writer.write(b"GET")
        assert await closed(reader) == b""


async def test_half_a_body_is_closed_after_its_time() -> None:
    async with served(replace(LIMITS, body_seconds_max=0.2)) as (server, _, connect):
        reader, _ = await connect(head("/x", Content_Length="100") + bytes(10))
        assert await closed(reader) == b""
        assert server.open == 0


async def test_a_connection_without_a_request_is_closed_after_its_time() -> None:
    async with served(replace(LIMITS, keep_alive_seconds_max=1)) as (_, _, connect):
        reader, _ = await connect(HEALTH)
        assert (await response(reader))[0] == 200
        assert await closed(reader) == b""


async def test_the_oldest_half_heads_give_way_to_new_connections() -> None:
    async with served() as (server, _, connect):
        halves = [await connect(b"GET /health HTTP/1.1\r\nX: ") for _ in range(6)]
        while server.open < 6:  # noqa: ASYNC110 - the kernel accepts before the server knows
            await asyncio.sleep(0)
        for _ in range(2):
            reader, _ = await connect(HEALTH)
            assert (await response(reader))[0] == 200
        assert await closed(halves[0][0]) == await closed(halves[1][0]) == b""
        assert (server.open, server.evicted, server.refused) == (6, 2, 0)


async def test_health_is_answered_beside_as_many_requests_as_are_allowed() -> None:
    async with served() as (server, app, connect):
        held = [await connect(head("/held", Content_Length="0")) for _ in range(4)]
        for _ in held:
            await app.started.acquire()
        reader, _ = await connect(head("/x", Content_Length="0"))
        assert (await response(reader))[0] == 503
        assert await closed(reader) == b""
        reader, _writer = await connect(HEALTH)
        assert (await response(reader))[0] == 200
        app.gate.set()
        assert [(await response(r))[0] for r, _ in held] == [200] * 4
        assert server.requests == 0


async def test_a_connection_is_refused_while_every_open_one_has_a_request() -> None:
    async with served(replace(LIMITS, connections_max=2, reserved=0)) as (server, app, connect):
        for _ in range(2):
            await connect(head("/held", Content_Length="0"))
            await app.started.acquire()
        reader, _ = await connect(HEALTH)
        assert await closed(reader) == b""
        assert server.refused == 1


async def test_a_client_that_does_not_take_its_response_is_closed() -> None:
    async with served(replace(LIMITS, stall_seconds_max=0.2)) as (server, app, connect):
        app.answer = bytes(32 << 20)
        _reader, writer = await connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(HEALTH)
        await app.started.acquire()
        async with asyncio.timeout(CLOSE_S):
            while server.open:  # noqa: ASYNC110 - only its end shows
                await asyncio.sleep(0.01)


async def test_a_large_response_that_a_client_takes_is_whole() -> None:
    async with served(replace(LIMITS, stall_seconds_max=0.2)) as (_, app, connect):
        app.answer = bytes(8 << 20)
        reader, _ = await connect(HEALTH)
        assert len((await response(reader))[2]) == 8 << 20


async def test_a_body_in_one_byte_chunks_is_400() -> None:
    async with served() as (_, app, connect):
        reader, _ = await connect(head("/x", Transfer_Encoding="chunked") + chunk(b"a") * 5000)
        assert (await response(reader))[0] == 400
        assert app.bodies == []


@pytest.mark.parametrize(
    "data",
    [
        head("/x", Content_Length="1" * 5000)[:2000] + b"\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\naa",
        b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_request_that_is_not_valid_is_400_and_closed(data: bytes) -> None:
    async with served() as (_, app, connect):
        reader, _ = await connect(data)
        assert (await response(reader))[0] == 400
        assert await closed(reader) == b""
        assert app.bodies == []


async def test_an_answer_before_the_end_of_the_body_closes_the_connection() -> None:
    async def hasty(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with served() as (server, _, connect):
        server.app = hasty
        reader, _writer = await connect(head("/x", Content_Length="5000") + bytes(100))
        assert (await response(reader))[0] == 404
        assert await closed(reader) == b""


async def test_requests_in_one_write_are_answered_in_order() -> None:
    async with served() as (_, _, connect):
        one = head("/x", Content_Length="3") + b"abc"
        reader, _ = await connect(HEALTH + one + HEALTH)
        assert [(await response(reader))[2] for _ in range(3)] == [b"0", b"3", b"0"]


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
async def test_a_request_that_is_not_valid_after_a_valid_one_is_400_with_a_reason(method: bytes) -> None:
    async with served() as (_, _, connect):
        reader, _ = await connect(HEALTH.replace(b"GET", method) + b"\x00\r\n\r\n")
        told = await closed(reader)
        assert re.findall(rb"HTTP/1.1 ([0-9]+)", told) == [b"200", b"400"]
        assert b"illegal" in told.rpartition(b"\r\n")[2]


async def test_stop_lets_a_request_finish_and_closes_idle_connections() -> None:
    async with served() as (server, app, connect):
        idle, _ = await connect(HEALTH)
        await response(idle)
        held, _ = await connect(head("/held", Content_Length="0"))
        await app.started.acquire()
        await app.started.acquire()
        stopping = asyncio.create_task(server.stop())
        assert await closed(idle) == b""
        app.gate.set()
        assert (await response(held))[0] == 200
        await stopping
        assert server.open == 0
