"""The real bookie on a simulated machine: storage, journal, memory index and server, without its cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.config import DB_LEDGER_STORAGE, BookieConfig
from bkdaemon.bookie.index import MemoryIndex
from bkdaemon.bookie.server import BookieServer

from bkctl.codec.data_dir import CURRENT
from bkctl.world import World

BOOKIE_PORT: Final = 3181
JOURNAL_DIR: Final = "/journal"
LEDGER_DIR: Final = "/ledgers"


def small_config(**changes: Any) -> BookieConfig:
    """Java's defaults, but for sizes that make rolls, flushes and collections happen in a short run."""
    settings: dict[str, Any] = {
        "journal_directories": (JOURNAL_DIR,),
        "ledger_dirs": (LEDGER_DIR,),
        "journal_prealloc_size_mb": 1,
        "journal_max_size_mb": 1,
        "journal_max_backups": 0,
        "write_cache_mb": 1,
        "read_cache_mb": 1,
        "flush_interval_ms": 2_000,
        "storage_class": DB_LEDGER_STORAGE,
    }
    return BookieConfig(**(settings | changes))


async def serve(world: World, config: BookieConfig, host: str) -> tuple[Bookie, BookieServer]:
    """Starts a bookie and its port, making its directories where they are missing."""
    for directory in (*config.journal_dirs, *config.ledger_dirs):
        world.disk.make_dirs(Path(directory) / CURRENT)
    bookie = Bookie(config, world, lambda directory: MemoryIndex(world.disk, directory))
    server = BookieServer(bookie, world, frame_size_max=config.frame_size_max)
    bookie.admission.on_throttle = server.throttle
    await bookie.start()
    await server.start(host, BOOKIE_PORT)
    return bookie, server


class Caller(asyncio.Protocol):
    """A connection that sends one request at a time and waits for its reply."""

    def __init__(self, conversation: Any) -> None:
        self.conversation = conversation
        self.transport: Any = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for reply in self.conversation.receive(data):
            self._waiting.pop(reply.token).set_result(reply)

    async def call(self, request: tuple[int, bytes]) -> Any:
        """The reply to (token, frame)."""
        token, frame = request
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        self.transport.write(frame)
        return await future
