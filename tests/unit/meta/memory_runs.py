"""Runs a scenario on an in-memory metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bkctl.meta.memory import MemoryStore, MemoryTree


def on(tree: MemoryTree, scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryStore(tree)
        await scenario(store)
        await store.close()

    asyncio.run(main())
