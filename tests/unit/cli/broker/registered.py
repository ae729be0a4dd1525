"""Brokers that are registered in a metadata store in memory."""

from __future__ import annotations

import asyncio
import json

from bkctl.meta.memory import MemoryStore, MemoryTree


def register(tree: MemoryTree, *ports: int, **more: str) -> None:
    """Registers brokers of 127.0.0.1 with these web ports; `more` are fields of their reports."""

    async def work() -> None:
        store = MemoryStore(tree)
        for port in ports:
            value = json.dumps({"webServiceUrl": f"http://127.0.0.1:{port}", **more}).encode()
            await store.create(f"/loadbalance/brokers/127.0.0.1:{port}", value, parents=True)

    asyncio.run(work())
