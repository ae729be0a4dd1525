"""A metadata store that exposes the subtree of another store: a chroot in Java's clients.

Pulsar's metadata often live so (`metadataStoreUrl=zk:h1:2181,h2:2181/pulsar`) while the ledgers are elsewhere in the
same ZooKeeper. Paths are relative to the prefix; errors show the complete path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bkctl.meta.store import (
    Cancel,
    MetadataStore,
    Node,
    Operation,
    SessionCallback,
    Stat,
    Version,
    WatchCallback,
    check_path,
)


def below(store: MetadataStore, path: str) -> MetadataStore:
    """The store as seen from a path; the store itself where that is "" or "/"."""
    return store if path in ("", "/") else StoreBelow(store, path)


class StoreBelow:
    """The nodes below a path, in the session of the given store.

    Args:
        store: the store that does the work.
        prefix: the path that is "/" here; it need not be there before something is created with its parents.
    """

    def __init__(self, store: MetadataStore, prefix: str) -> None:
        self._store = store
        self._prefix = check_path(prefix)

    def _full(self, path: str) -> str:
        return self._prefix if check_path(path) == "/" else self._prefix + path

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes created now."""
        return self._store.session_id

    @property
    def where(self) -> str:
        """The store in words, with the path."""
        return f"{self._store.where}{self._prefix}"

    async def get(self, path: str) -> Node:
        """Reads a node."""
        return await self._store.get(self._full(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Reads many nodes."""
        return await self._store.get_many([self._full(path) for path in paths])

    async def exists(self, path: str) -> Stat | None:
        """Reads the Stat."""
        return await self._store.exists(self._full(path))

    async def children(self, path: str) -> list[str]:
        """Reads the names below."""
        return await self._store.children(self._full(path))

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Creates a node and returns its path as it is called here."""
        made = await self._store.create(self._full(path), data, ephemeral=ephemeral, sequence=sequence, parents=parents)
        return made.removeprefix(self._prefix) or "/"

    async def set(self, path: str, data: bytes, version: Version) -> Version:
        """Replaces the data of this version."""
        return await self._store.set(self._full(path), data, version)

    async def overwrite(self, path: str, data: bytes) -> Version:
        """Replaces the data of any version."""
        return await self._store.overwrite(self._full(path), data)

    async def delete(self, path: str, version: Version) -> None:
        """Deletes a node of this version."""
        await self._store.delete(self._full(path), version)

    async def delete_any(self, path: str) -> None:
        """Deletes a node of any version."""
        await self._store.delete_any(self._full(path))

    async def sync(self, path: str) -> None:
        """Makes later reads see what the leader has now."""
        await self._store.sync(self._full(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Does all or none."""
        await self._store.multi([replace(one, path=self._full(one.path)) for one in operations])

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """Watches a node."""
        return await self._store.watch_data(self._full(path), callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Watches the names below."""
        return await self._store.watch_children(self._full(path), callback)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Watches the session."""
        return self._store.on_session(callback)

    async def close(self) -> None:
        """Ends the session of the whole store."""
        await self._store.close()
