"""Clusters in memory for the tests of `bkctl bookie`: bookies of every state, and ledgers that name them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo, Cookie, Endpoint
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.command_line import Answer

T = TypeVar("T")
Run: TypeAlias = Callable[..., Answer]
ROOT = "/ledgers"
LIVE, OTHER, DOWN = map(BookieId, ("10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181"))
SERVING = BookieId("10.0.0.4:3181")
NEW = BookieId("bk3.example.org:3181")
UNKNOWN = BookieId("10.9.9.9:3181")
WRITABLE, READ_ONLY, STOPPED, OLD = LIVE, OTHER, DOWN, SERVING
"""The bookies of states_tree."""
LEDGER = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (DOWN, OTHER)),))


def on(tree: MemoryTree, work: Callable[[MemoryStore], Awaitable[T]]) -> T:
    """Runs work in a session of its own."""

    async def main() -> T:
        return await work(MemoryStore(tree))

    return asyncio.run(main())


def info(host: str, port: int = 3181, http_port: int = 8080, grpc_port: int = 8090) -> BookieServiceInfo:
    """A registration with all endpoints."""
    return BookieServiceInfo(
        (
            Endpoint("httpserver", http_port, "0.0.0.0", "http"),
            Endpoint("bookie", port, host, "bookie-rpc"),
            Endpoint("admin", grpc_port, host, "grpc"),
        )
    )


def states_tree() -> MemoryTree:
    """One bookie of each state, and OLD, whose registration has no service info."""
    tree = MemoryTree()

    async def fill(store: MemoryStore) -> None:
        await init_cluster(store, ROOT)
        registry = BookieRegistry(store, ROOT)
        await registry.register(WRITABLE, info("10.0.0.1"))
        await registry.register(READ_ONLY, info("10.0.0.2"), read_only=True)
        for bookie_id in (WRITABLE, STOPPED):
            await registry.create_cookie(Cookie(bookie_id, ("/j",), ("/l",)))
        await store.create(f"{ROOT}/available/{OLD}", b"", ephemeral=True)

    on(tree, fill)
    return tree


def ledgers_tree() -> MemoryTree:
    """LIVE and OTHER are registered without an admin port; ledgers 3, 5 and 7 (open) are on DOWN and OTHER."""
    tree = MemoryTree()

    async def fill(store: MemoryStore) -> None:
        await init_cluster(store, ROOT)
        registry = BookieRegistry(store, ROOT)
        for bookie in (LIVE, OTHER):
            await registry.register(bookie, BookieServiceInfo())
        for bookie in (LIVE, OTHER, DOWN):
            await registry.create_cookie(Cookie(bookie, ("/j",), ("/l",)))
        ledgers = LedgerStore(store, ROOT)
        for ledger_id in (3, 5):
            await ledgers.create(LEDGER.closed_at(9, 1000), ledger_id)
        await ledgers.create(LEDGER, 7)

    on(tree, fill)
    return tree
