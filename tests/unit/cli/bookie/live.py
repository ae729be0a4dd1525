"""Real bookies in the event loop of a test, on a metadata store in memory, and verbs that are run beside them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from bkdaemon.bookie.index import memory_index
from bkdaemon.bookie.service import BookieService

from bkctl.cli.env import Env, Options
from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.errors import Exit
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import wakes
from bkctl.model.ids import BookieId
from bkctl.world import real_world
from tests.command_line import _open_memory
from tests.unit.cli.bookie.bookie_tree import ROOT
from tests.unit.daemon.bookie.world import config_in


@dataclass(frozen=True)
class Done:
    """The result of a verb, as items; its exit code, and the lines on stderr."""

    items: list[dict[str, Any]]
    exit: Exit
    stderr: str


class LiveCluster:
    """Bookies that listen on free loopback ports; use it by `live_bookies`."""

    def __init__(self, directory: Path) -> None:
        self.tree = MemoryTree()
        self.directory = directory
        self.services: dict[str, BookieService] = {}
        self.registry = BookieRegistry(MemoryStore(self.tree), ROOT)

    async def start(self, name: str) -> None:
        """Starts a bookie with this id."""
        folder = self.directory / name.replace(":", "-")
        config = config_in(
            folder,
            bookie_id_text=name,
            bookie_port=0,
            advertised_address="127.0.0.1",
            metadata_service_uri="zk+hierarchical://memory:2181/ledgers",
            index_directories=(str(folder / "index"),),
        )
        world = real_world(1)
        service = BookieService(config, world, MemoryStore(self.tree), memory_index(world.disk))
        self.services[name] = service
        await service.start()

    async def stop(self, name: str) -> None:
        """Stops a bookie; its session ends, and its registration with it."""
        service = self.services.pop(name)
        await service.stop()
        await service.store.close()

    async def write(self, ledger_id: int, *, copies: int = 1, entries: int = 3, leave_open: bool = False) -> None:
        """Writes a ledger whose entries are each on this many of the bookies that are writable now."""
        store = MemoryStore(self.tree)
        async with BookKeeper(
            await open_ledgers(store, ROOT), BookieRegistry(store, ROOT), real_world(), ClientConfig()
        ) as client:
            writer = await client.create(copies, copies, copies, ledger_id=ledger_id)
            writer.append_many([b"entry %d" % n for n in range(entries)])
            await writer.flush()
            if leave_open:
                writer.abandon()
            else:
                await writer.close()

    async def bookies_of(self, ledger_id: int) -> set[BookieId]:
        """The bookies that a ledger's metadata names."""
        metadata, _ = await LedgerStore(MemoryStore(self.tree), ROOT).read(ledger_id)
        return {bookie for ensemble in metadata.ensembles for bookie in ensemble.bookies}

    async def until_moved(self, ledger_id: int, bookies: set[BookieId]) -> None:
        """Waits until a ledger's metadata names these bookies."""
        store = MemoryStore(self.tree)
        while await self.bookies_of(ledger_id) != bookies:
            changed = asyncio.Event()
            path = LedgerStore(store, ROOT).path(ledger_id)
            cancel = await store.watch_data(path, wakes(changed))
            if await self.bookies_of(ledger_id) != bookies:
                await changed.wait()
            cancel()

    async def until_read_only(self, name: str) -> None:
        """Waits until a bookie is registered as read-only."""
        from bkrecovery.drain import until_registered

        assert await until_registered(self.registry, lambda found: BookieId(name) in found.read_only, 60)

    async def verb(self, module: ModuleType, *arguments: object, **named: object) -> Done:
        """Runs a verb with --yes."""
        return await self.verb_as(Options(yes=True), module, *arguments, **named)

    async def verb_as(self, options: Options, module: ModuleType, *arguments: object, **named: object) -> Done:
        """Runs a verb with these global options."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        environ = {
            "BKCTL_METADATA_URI": "zk://memory:2181/ledgers",
            "BKCTL_STATE_DIR": str(self.directory / "state"),
            "USER": "ann",
        }
        env = Env(io.BytesIO(), out, err, environ, options, module.COMMAND)
        env.store_opener = partial(_open_memory, self.tree)
        found = await module.run(env, *arguments, **named)
        written: bytes = err.buffer.getvalue()  # type: ignore[attr-defined]
        return Done(found if isinstance(found, list) else [found], env.exit, written.decode())


@asynccontextmanager
async def live_bookies(directory: Path, *names: str) -> AsyncIterator[LiveCluster]:
    """A cluster with these bookies, all of which are stopped at the end."""
    live = LiveCluster(directory)
    await init_cluster(MemoryStore(live.tree), ROOT)
    try:
        for name in names:
            await live.start(name)
        yield live
    finally:
        await asyncio.gather(*map(live.stop, list(live.services)))
