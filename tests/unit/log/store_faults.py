"""Faults of the metadata store: writes that wait or fail, and writes whose replies are lost."""

from __future__ import annotations

import asyncio
from typing import Any

from bkctl.errors import Unavailable


class HeldWrites:
    """Holds the writes of nodes with this path suffix until `release`; then they fail if `fails` is set."""

    def __init__(self, store: Any, path_end: str) -> None:
        self.waiting = 0
        self.fails = False
        self._free = asyncio.Event()
        self._path_end = path_end
        self._set, self._multi = store.set, store.multi
        store.set, store.multi = self._set_later, self._multi_later

    async def _set_later(self, path: str, data: bytes, version: Any) -> Any:
        await self._hold([path])
        return await self._set(path, data, version)

    async def _multi_later(self, operations: Any) -> Any:
        await self._hold([o.path for o in operations])
        return await self._multi(operations)

    async def _hold(self, paths: list[str]) -> None:
        if any(path.endswith(self._path_end) for path in paths):
            self.waiting += 1
            await self._free.wait()
            self.waiting -= 1
            if self.fails:
                raise Unavailable("the store is away")

    def release(self) -> None:
        self._free.set()


def lose_replies(store: Any, path_end: str) -> None:
    """Carries out the writes of nodes with this path suffix, but loses their replies."""
    set_node, multi = store.set, store.multi

    async def set_without_reply(path: str, data: bytes, version: Any) -> Any:
        done = await set_node(path, data, version)
        if path.endswith(path_end):
            raise Unavailable("no answer")
        return done

    async def multi_without_reply(operations: Any) -> Any:
        await multi(operations)
        if any(getattr(o, "path", "").endswith(path_end) and hasattr(o, "data") for o in operations):
            raise Unavailable("no answer")

    async def no_reply(*_: Any) -> Any:
        raise Unavailable("no answer")

    store.set, store.multi, store.get, store.exists = set_without_reply, multi_without_reply, no_reply, no_reply
