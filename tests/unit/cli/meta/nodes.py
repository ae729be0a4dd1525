"""The nodes of the golden cluster in a store in memory, with some that are not of BookKeeper."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.golden import FOLDER

NODES = {n["path"]: base64.b64decode(n["data"]) for n in json.loads((FOLDER / "zk_tree.json").read_text())}


@pytest.fixture(scope="module")
def tree() -> MemoryTree:
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        for path in sorted(NODES):
            await store.create(path, NODES[path])
        await store.create("/ledgers/foreign", b"\x00\xff")
        await store.create("/ledgers/00/0000/L9999", b"nonsense")
        await store.create("/ledgers/e", b"", ephemeral=True)

    asyncio.run(fill())
    return tree
