"""The broker's HTTP port within the limits of broker.conf."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import pytest
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.web import RESERVED_PATHS, WebServer, listener_limits

from bkctl.errors import Unavailable
from bkctl.world import SystemNetwork


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig(cluster="c", **settings)


def test_limits_are_those_of_the_configuration() -> None:
    limits = listener_limits(config(http_connections_max=80, http_head_bytes_max=4096, http_body_bytes_max=777))
    assert (limits.connections_max, limits.reserved) == (80, 10)
    assert (limits.head_bytes_max, limits.body_bytes_max) == (4096, 777)
    assert listener_limits(config()).body_bytes_max == 1 << 20
    assert listener_limits(config()).head_bytes_max == 8192


def test_connections_leave_most_file_descriptors_to_others() -> None:
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        assert listener_limits(config(http_connections_max=0)).connections_max == 100
        assert listener_limits(config(http_connections_max=50)).connections_max == 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


async def test_metrics_and_health_are_answered_beside_the_most_requests() -> None:
    gate, started = asyncio.Event(), asyncio.Semaphore(0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] not in RESERVED_PATHS:
            started.release()
            await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    web = WebServer(app, listener_limits(config(http_connections_max=2)), SystemNetwork())
    port = await web.start("127.0.0.1", 0)
    streams = []

    async def ask(path: str) -> asyncio.StreamReader:
        streams.append(await asyncio.open_connection("127.0.0.1", port))
        streams[-1][1].write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return streams[-1][0]

    for _ in range(2):
        await ask("/admin/v2/tenants")
        await started.acquire()
    for path in sorted(RESERVED_PATHS):
        assert b" 200 " in await (await ask(path)).readline()
    assert b" 503 " in await (await ask("/admin/v2/tenants")).readline()
    gate.set()
    for _, writer in streams:
        writer.close()
    with pytest.raises(Unavailable, match="cannot listen on"):
        await WebServer(app, listener_limits(config()), SystemNetwork()).start("127.0.0.1", port)
    await web.stop()
