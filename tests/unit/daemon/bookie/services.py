"""A whole bookie on a metadata store in memory, for tests: its configuration, its start and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import rocks_index
from bkdaemon.bookie.service import BookieService

from bkctl.client.admin import AdminClient
from bkctl.meta.cluster import init_cluster
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import real_world
from tests.unit.daemon.bookie.world import config_in

ROOT = "/ledgers"
ID = BookieId("bookie-1")
WAIT_S = 90


async def new_cluster() -> MemoryTree:
    tree = MemoryTree()
    await init_cluster(MemoryStore(tree), ROOT)
    return tree


def config_at(directory: Path, **settings: Any) -> BookieConfig:
    return config_in(
        directory,
        bookie_id_text=str(ID),
        bookie_port=0,
        advertised_address="127.0.0.1",
        metadata_service_uri="zk+hierarchical://memory:2181/ledgers",
        zk_timeout_ms=200,
        index_directories=(str(directory / "index"),),
        **settings,
    )


@asynccontextmanager
async def serving(tree: MemoryTree, config: BookieConfig) -> AsyncIterator[BookieService]:
    store = MemoryStore(tree)
    service = BookieService(config, real_world(1), store, rocks_index(config))
    try:
        await service.start()
        yield service
    finally:
        await service.stop()
        await store.close()


async def until(holds: Callable[[], Any]) -> None:
    """Polls a condition until it holds."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = holds()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.005)


def admin(service: BookieService) -> AdminClient:
    return AdminClient("127.0.0.1", service.admin_port)


def channel_to(service: BookieService) -> Any:
    return grpc.aio.insecure_channel(f"127.0.0.1:{service.admin_port}")


async def get(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


def metadata() -> LedgerMetadata:
    return LedgerMetadata(1, 1, 1, (Ensemble(0, (ID,)),))  # type: ignore[arg-type]
