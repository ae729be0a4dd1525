"""Whole subtrees: order, nodes that vanish, children that are renamed while they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bkctl.errors import Unavailable
from bkctl.meta import walk as walk_module
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Node
from bkctl.meta.walk import walk


class Renaming(MemoryStore):
    """A store in which an application renames /a/old-N to /a/old-N+1 each time it is about to be read."""

    renames = 1
    done = 0

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if f"/a/old-{self.done}" in paths and self.done < self.renames:
            await self.delete_any(f"/a/old-{self.done}")
            self.done += 1
            await self.create(f"/a/old-{self.done}", b"x")
        return await super().get_many(paths)


async def paths(store: MemoryStore, *starts: str, renames: bool = False) -> list[str]:
    return [path async for path, _ in walk(store, starts, renames=lambda path: renames and path == "/a")]


async def filled(store: MemoryStore) -> MemoryStore:
    for path in ("/a/b/c", "/a/b/d", "/a/old-0", "/z"):
        await store.create(path, b"", parents=True)
    return store


def test_nodes_come_parents_first_and_once() -> None:
    async def scenario() -> None:
        store = await filled(MemoryStore(MemoryTree()))
        assert await paths(store, "/a", "/missing", "/z", "/a") == ["/a", "/z", "/a/b", "/a/old-0", "/a/b/c", "/a/b/d"]

    asyncio.run(scenario())


def test_a_renamed_child_is_read_under_its_new_name() -> None:
    async def scenario() -> None:
        assert "/a/old-1" not in await paths(await filled(Renaming(MemoryTree())), "/a")
        assert "/a/old-1" in await paths(await filled(Renaming(MemoryTree())), "/a", renames=True)

    asyncio.run(scenario())


def test_a_directory_that_never_settles_is_unavailable() -> None:
    async def scenario() -> None:
        store = await filled(Renaming(MemoryTree()))
        Renaming.renames = walk_module.RELISTS_MAX + 5
        with pytest.raises(Unavailable, match="/a changes faster"):
            await paths(store, "/a", renames=True)

    try:
        asyncio.run(scenario())
    finally:
        Renaming.renames = 1
