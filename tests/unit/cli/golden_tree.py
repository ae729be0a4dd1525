"""The golden metadata of a cluster as a tree in memory."""

from __future__ import annotations

import asyncio
import base64
import json

from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.golden import FOLDER


def golden_tree(variant: bool = False) -> MemoryTree:
    """Every persistent node of the golden cluster, or of its variant."""
    tree = MemoryTree()
    path = FOLDER / ("variants/zk_tree.json" if variant else "zk_tree.json")
    rows = json.loads(path.read_text())

    async def fill() -> None:
        store = MemoryStore(tree)
        for row in sorted(rows, key=lambda row: str(row["path"])):
            if not row["ephemeral"] and row["path"].startswith("/ledgers") and await store.exists(row["path"]) is None:
                await store.create(row["path"], base64.b64decode(row["data"] or ""), parents=True)
        await store.close()

    asyncio.run(fill())
    return tree
