"""Requests to the HTTP port of a bookie in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bkdaemon.bookie.service import BookieService

from bkctl.meta.memory import MemoryTree
from bkctl.model.ids import BookieId
from tests.unit.daemon.bookie.services import config_at, new_cluster, serving

BASE = "/api/v1"
A, B = BookieId("127.0.0.1:21061"), BookieId("127.0.0.1:21062")


async def ask(service: BookieService, method: str, path: str, body: str = "") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.http_port)
    writer.write(f"{method} {BASE}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    await writer.drain()
    writer.write(body.encode())  # in a packet of its own
    head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), text


@asynccontextmanager
async def served(directory: Path, **settings: Any) -> AsyncIterator[tuple[MemoryTree, BookieService]]:
    tree = await new_cluster()
    config = config_at(directory, http_enabled=True, http_port=0, http_host="127.0.0.1", **settings)
    async with serving(tree, config) as service:
        yield tree, service
