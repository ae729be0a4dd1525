"""A metadata store that checks permission before each change, so that a reading command cannot write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bkctl.meta.store import (
    Cancel,
    Check,
    MetadataStore,
    Node,
    Operation,
    SessionCallback,
    Stat,
    Version,
    WatchCallback,
)


class GuardedStore:
    """The given store; `check(what)` is called before each change and raises to forbid it.

    Args:
        store: the store that does the work.
        check: raises (Refused, as a rule) to forbid; `what` describes the change.
    """

    def __init__(self, store: MetadataStore, check: Callable[[str], None]) -> None:
        self._store = store
        self._check = check

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes created now."""
        return self._store.session_id

    @property
    def where(self) -> str:
        """The store in words."""
        return self._store.where

    async def get(self, path: str) -> Node:
        """Reads a node, which is always allowed."""
        return await self._store.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Reads many nodes, which is always allowed."""
        return await self._store.get_many(paths)

    async def exists(self, path: str) -> Stat | None:
        """Reads the Stat."""
        return await self._store.exists(path)

    async def children(self, path: str) -> list[str]:
        """Reads the names below."""
        return await self._store.children(path)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Creates, if permitted."""
        self._check(f"create {path}")
        return await self._store.create(path, data, ephemeral=ephemeral, sequence=sequence, parents=parents)

    async def set(self, path: str, data: bytes, version: Version) -> Version:
        """Sets, if permitted."""
        self._check(f"set {path}")
        return await self._store.set(path, data, version)

    async def overwrite(self, path: str, data: bytes) -> Version:
        """Overwrites, if permitted."""
        self._check(f"overwrite {path}")
        return await self._store.overwrite(path, data)

    async def delete(self, path: str, version: Version) -> None:
        """Deletes, if permitted."""
        self._check(f"delete {path}")
        await self._store.delete(path, version)

    async def delete_any(self, path: str) -> None:
        """Deletes any version, if permitted."""
        self._check(f"delete {path}")
        await self._store.delete_any(path)

    async def sync(self, path: str) -> None:
        """Makes later reads see what the leader has now; always allowed."""
        await self._store.sync(path)

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Executes all or none, if permitted; checks alone are always allowed."""
        for operation in operations:
            if not isinstance(operation, Check):
                self._check(f"{type(operation).__name__.lower()} {operation.path}")
        await self._store.multi(operations)

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """Watches a node."""
        return await self._store.watch_data(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Watches the names below."""
        return await self._store.watch_children(path, callback)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Watches the session."""
        return self._store.on_session(callback)

    async def close(self) -> None:
        """Ends the session."""
        await self._store.close()
