"""Managed ledgers in the metadata store: a node a topic, below it a node a cursor.

    /managed-ledgers/tenant/namespace/persistent/topic           ManagedLedgerInfo; empty right after its creation
    /managed-ledgers/tenant/namespace/persistent/topic/cursor    ManagedCursorInfo

A name is the path below the root: `tenant/namespace/persistent/encoded-topic`. Every write names the version it
replaces; a conflict means that the topic has another owner. If an answer was lost, the node is read again to determine
whether the write was done. Source: MetaStoreImpl.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bkctl.codec.managed_ledger import (
    ManagedCursorInfo,
    ManagedLedgerInfo,
    decode_cursor_info,
    decode_ledger_info,
    encode_cursor_info,
    encode_ledger_info,
)
from bkctl.errors import AlreadyExists, Conflict, NotFound, Unavailable
from bkctl.meta.store import FIRST_VERSION, Check, Create, Delete, MetadataStore, SessionEvent, Set, Version
from bkctl.model.topic import decode_name, encode_name

ROOT: Final = "/managed-ledgers"
WRITE_ATTEMPTS_MAX: Final = 3  # of one write whose answers are lost


class StoredLedger(NamedTuple):
    """A managed ledger's node as read."""

    info: ManagedLedgerInfo
    version: Version


class StoredCursor(NamedTuple):
    """A cursor's node as read."""

    info: ManagedCursorInfo
    version: Version


class ManagedLedgerStore:
    """The managed ledgers of a cluster.

    Attributes:
        reachable: false while the session is known to be disconnected, as far as `follow` was called.
    """

    def __init__(self, store: MetadataStore, root: str = ROOT) -> None:
        self.store = store
        self.root = root
        self.reachable = True
        self._follows = False

    def follow(self) -> None:
        """Tracks, until the store is closed, whether the session is connected."""
        if not self._follows:
            self._follows = True
            self.store.on_session(self._session_changed)

    def _session_changed(self, event: SessionEvent) -> None:
        self.reachable = event is SessionEvent.CONNECTED

    def path(self, name: str) -> str:
        """Where the node of a managed ledger is."""
        return f"{self.root}/{name}"

    def cursor_path(self, name: str, cursor: str) -> str:
        """Where the node of a cursor is; cursor is the plain name of the subscription."""
        return f"{self.root}/{name}/{encode_name(cursor)}"

    # -- managed ledgers --------------------------------------------------------------------------------------------

    async def names(self, tenant: str, namespace: str) -> list[str]:
        """The managed ledgers of a namespace, sorted."""
        parent = f"{tenant}/{namespace}/persistent"
        try:
            return [f"{parent}/{child}" for child in await self.store.children(self.path(parent))]
        except NotFound:
            return []

    async def read(self, name: str) -> StoredLedger:
        """The list of ledgers.

        Raises:
            NotFound: the managed ledger does not exist. BadBytes: the node holds something else.
        """
        path = self.path(name)
        try:
            node = await self.store.get(path)
        except NotFound:
            raise NotFound(f"managed ledger {name} does not exist", name=name) from None
        return StoredLedger(decode_ledger_info(node.data, source=path), node.stat.version)

    async def create(self, name: str) -> StoredLedger:
        """A managed ledger without ledgers: an empty node.

        Raises:
            AlreadyExists: it is there.
        """
        await self._create(self.path(name), b"")
        return StoredLedger(ManagedLedgerInfo(), FIRST_VERSION)

    async def write(self, name: str, info: ManagedLedgerInfo, version: Version) -> Version:
        """Replaces the list if its version is still this one.

        Raises:
            Conflict: it has changed, so another broker owns the topic. NotFound: it was deleted.
            Unavailable: no answer after several attempts.
        """
        return await self._set(self.path(name), encode_ledger_info(info), version)

    async def delete(self, name: str, version: Version) -> None:
        """Deletes the node; its cursors must be gone."""
        try:
            await self.store.delete(self.path(name), version)
        except Unavailable:
            if await self.store.exists(self.path(name)) is not None:
                raise

    # -- cursors ----------------------------------------------------------------------------------------------------

    async def cursors(self, name: str) -> list[str]:
        """The names of the cursors, as subscriptions are called."""
        return [decode_name(child) for child in await self.store.children(self.path(name))]

    async def read_cursor(self, name: str, cursor: str) -> StoredCursor:
        """The state of a cursor, or the place of its ledger.

        Raises:
            NotFound: the cursor does not exist. BadBytes: the node holds something else.
        """
        path = self.cursor_path(name, cursor)
        try:
            node = await self.store.get(path)
        except NotFound:
            raise NotFound(f"{name} has no cursor {cursor}", name=name, cursor=cursor) from None
        return StoredCursor(decode_cursor_info(node.data, source=path), node.stat.version)

    async def read_cursors(self, name: str, cursors: Sequence[str]) -> dict[str, StoredCursor]:
        """Several of them together; deleted ones are omitted."""
        paths = [self.cursor_path(name, cursor) for cursor in cursors]
        found = {}
        for cursor, path, node in zip(cursors, paths, await self.store.get_many(paths), strict=True):
            if node is not None:
                found[cursor] = StoredCursor(decode_cursor_info(node.data, source=path), node.stat.version)
        return found

    async def create_cursor(self, name: str, cursor: str, info: ManagedCursorInfo, owned: Version) -> Version:
        """Stores a new cursor, if the managed ledger's own node still has the version `owned`.

        Raises:
            AlreadyExists: it is there. Conflict: the managed ledger has another owner.
        """
        path, data = self.cursor_path(name, cursor), encode_cursor_info(info)
        try:
            await self.store.multi([Check(self.path(name), owned), Create(path, data)])
        except Unavailable:
            if not await self._holds(path, data, FIRST_VERSION):
                raise
        return FIRST_VERSION

    async def write_cursor(
        self, name: str, cursor: str, info: ManagedCursorInfo, version: Version, owned: Version
    ) -> Version:
        """Replaces a cursor's node if its version is still this one, and the managed ledger's node has that of its own.

        An owner that was deposed is stopped here even where the new one has not touched the cursor yet.

        Raises:
            Conflict, NotFound, Unavailable: as for `write`.
        """
        return await self._set(self.cursor_path(name, cursor), encode_cursor_info(info), version, (name, owned))

    async def delete_cursor(self, name: str, cursor: str, version: Version, owned: Version) -> None:
        """Deletes a cursor's node; fine if it is gone.

        Raises:
            Conflict: it was changed, or the managed ledger has another owner.
        """
        path = self.cursor_path(name, cursor)
        try:
            await self.store.multi([Check(self.path(name), owned), Delete(path, version)])
        except NotFound:
            pass
        except Unavailable:
            if await self.store.exists(path) is not None:
                raise

    # -- writes whose answer may be lost ------------------------------------------------------------------------------

    async def _create(self, path: str, data: bytes, *, parents: bool = True) -> None:
        try:
            await self.store.create(path, data, parents=parents)
        except AlreadyExists:
            raise
        except Unavailable:
            if not await self._holds(path, data, FIRST_VERSION):
                raise

    async def _set(self, path: str, data: bytes, version: Version, guard: tuple[str, Version] | None = None) -> Version:
        lost: Unavailable | None = None
        for _ in range(WRITE_ATTEMPTS_MAX):
            try:
                if guard is None:
                    return await self.store.set(path, data, version)
                await self.store.multi([Check(self.path(guard[0]), guard[1]), Set(path, data, version)])
                return Version(version + 1)
            except Unavailable as e:
                lost = e
            except Conflict:
                if lost is None:
                    raise
            if await self._holds(path, data, Version(version + 1)):
                return Version(version + 1)
            if not await self._is(path, version):
                raise Conflict(f"{path} was changed by another client", path=path, version=version)
        assert lost is not None
        raise lost

    async def _holds(self, path: str, data: bytes, version: Version) -> bool:
        """True if the node contains the write whose answer was lost."""
        try:
            node = await self.store.get(path)
        except NotFound:
            return False
        return node.stat.version == version and node.data == data

    async def _is(self, path: str, version: Version) -> bool:
        stat = await self.store.exists(path)
        return stat is not None and stat.version == version
