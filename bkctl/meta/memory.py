"""A metadata store in memory, for the simulator, the demo's tests, and everything that needs no ZooKeeper.

A MemoryTree holds the nodes; each MemoryStore is one session with it. Both live on the event loop, use no thread and
no chance, and answer after one turn of the loop, never within the call. What ZooKeeper does in sequence numbers,
`cversion` and the order of events is done here the same way.

To try what a network does to a session: `before` is awaited before an operation is applied and `after` when it has
been applied and its answer is in flight; either may wait, and either may raise (Unavailable, say) to lose the request
or the answer. `suspend`, `resume`, `expire` and `abandon` do to the session what a partition, its end, a session
timeout and a crash of the process do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from bkctl.errors import BkctlError, SessionExpired, Unavailable
from bkctl.meta.store import (
    ANY_VERSION,
    Cancel,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SessionCallback,
    SessionEvent,
    Set,
    Stat,
    Version,
    WatchCallback,
    WatchEvent,
    bad_version,
    check_path,
    ephemeral_parent,
    no_node,
    node_exists,
    not_empty,
    parent_of,
    refuse_any,
)
from bkctl.world import Clock, SystemClock

T = TypeVar("T")

Hook: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Awaited with the operation's name and path."""


@dataclass(slots=True)
class _Node:
    data: bytes
    ctime_ms: int
    mtime_ms: int
    owner: int = 0
    version: int = 0
    created: int = 0  # children ever created: the next sequence number
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        # ZooKeeper counts creations and shows changes: every child that is gone was two changes
        count = len(self.children)
        changes = 2 * self.created - count
        return Stat(Version(self.version), self.ctime_ms, self.mtime_ms, self.owner, changes, count)


@dataclass(slots=True, eq=False)
class _Watch:
    session: int
    callback: WatchCallback
    loop: asyncio.AbstractEventLoop
    active: bool = True

    def fire(self, event: WatchEvent) -> None:
        self.loop.call_soon(self._call, event)

    def _call(self, event: WatchEvent) -> None:
        if self.active:
            self.active = False
            self.callback(event)


_Watches: TypeAlias = dict[str, list[_Watch]]


class _Transaction:
    """Applies operations to a tree; either keeps them and fires the watches, or takes all of them back."""

    def __init__(self, tree: MemoryTree, session: int) -> None:
        self._tree = tree
        self._nodes = tree.nodes
        self._session = session
        self._undo: list[Callable[[], None]] = []
        self._events: list[tuple[_Watches, str, WatchEvent]] = []

    def create(self, path: str, data: bytes, *, ephemeral: bool, sequence: bool = False) -> str:
        above = parent_of(path)
        parent = self._nodes.get(above)
        if parent is None:
            raise no_node(above)
        if sequence:
            path = f"{path}{parent.created:010d}"
        if path in self._nodes:
            raise node_exists(path)
        if parent.owner:
            raise ephemeral_parent(above)
        now_ms = self._tree.clock.now_ms()
        name = path.rpartition("/")[2]
        self._nodes[path] = _Node(data, now_ms, now_ms, self._session if ephemeral else 0)
        parent.children.add(name)
        parent.created += 1
        self._undo.append(lambda: self._uncreate(parent, path, name))
        self._events.append((self._tree.data_watches, path, WatchEvent.CREATED))
        self._events.append((self._tree.child_watches, above, WatchEvent.CHILDREN))
        return path

    def _uncreate(self, parent: _Node, path: str, name: str) -> None:
        del self._nodes[path]
        parent.children.discard(name)
        parent.created -= 1

    def set(self, path: str, data: bytes, version: int) -> Version:
        node = self._at(path, version)
        before = (node.data, node.version, node.mtime_ms)
        node.data, node.version, node.mtime_ms = data, node.version + 1, self._tree.clock.now_ms()
        self._undo.append(lambda: self._unset(node, before))
        self._events.append((self._tree.data_watches, path, WatchEvent.CHANGED))
        return Version(node.version)

    @staticmethod
    def _unset(node: _Node, before: tuple[bytes, int, int]) -> None:
        node.data, node.version, node.mtime_ms = before

    def delete(self, path: str, version: int) -> None:
        node = self._at(path, version)
        if node.children:
            raise not_empty(path)
        above, _, name = path.rpartition("/")
        parent = self._nodes[above or "/"]
        del self._nodes[path]
        parent.children.discard(name)
        self._undo.append(lambda: self._undelete(parent, path, name, node))
        self._events.append((self._tree.data_watches, path, WatchEvent.DELETED))
        self._events.append((self._tree.child_watches, path, WatchEvent.DELETED))
        self._events.append((self._tree.child_watches, above or "/", WatchEvent.CHILDREN))

    def _undelete(self, parent: _Node, path: str, name: str, node: _Node) -> None:
        self._nodes[path] = node
        parent.children.add(name)

    def check(self, path: str, version: int) -> None:
        self._at(path, version)

    def apply(self, operation: Operation) -> None:
        match operation:
            case Create(path, data, ephemeral):
                self.create(path, data, ephemeral=ephemeral)
            case Set(path, data, version):
                self.set(path, data, version)
            case Delete(path, version):
                self.delete(path, version)
            case Check(path, version):
                self.check(path, version)

    def _at(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise no_node(path)
        if version not in (ANY_VERSION, node.version):
            raise bad_version(path, version)
        return node

    def commit(self) -> None:
        for watches, path, event in self._events:
            for watch in watches.pop(path, ()):
                watch.fire(event)

    def roll_back(self) -> None:
        for undo in reversed(self._undo):
            undo()


class MemoryTree:
    """The nodes, the watches on them, and the sessions that live. Shared by the MemoryStores of a cluster."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0)}
        self.data_watches: _Watches = {}
        self.child_watches: _Watches = {}
        self._sessions: dict[int, MemoryStore] = {}
        self._session_last = 0

    def begin(self, store: MemoryStore) -> int:
        """A new session for this store."""
        self._session_last += 1
        self._sessions[self._session_last] = store
        return self._session_last

    def lives(self, session: int) -> bool:
        """True until the session ends."""
        return session in self._sessions

    def end(self, session: int) -> None:
        """Deletes the ephemeral nodes of a session, in the order of their paths, and drops its watches."""
        self._sessions.pop(session, None)
        self.take_watches(session)
        for path in sorted(path for path, node in self.nodes.items() if node.owner == session):
            transaction = _Transaction(self, session)
            transaction.delete(path, ANY_VERSION)
            transaction.commit()

    def expire(self, session: int) -> None:
        """Ends a session as the server does when it has not heard from it for too long."""
        store = self._sessions.get(session)
        watches = self.take_watches(session)
        self.end(session)
        if store is not None:
            store.session_expired(watches)

    def take_watches(self, session: int) -> list[_Watch]:
        """Removes the watches of a session and returns them, in the order of their paths."""
        taken = []
        for watches in (self.data_watches, self.child_watches):
            for path in sorted(watches):
                taken += [w for w in watches[path] if w.session == session]
                watches[path] = [w for w in watches[path] if w.session != session]
                if not watches[path]:
                    del watches[path]
        return taken

    def set_next_sequence(self, path: str, number: int) -> None:
        """Makes the next sequence node below path get this number, to try what happens at the end of a range."""
        self.nodes[path].created = number


class MemoryStore:
    """One session with a MemoryTree. Keeps the contract of `store.MetadataStore`."""

    def __init__(self, tree: MemoryTree, before: Hook | None = None, after: Hook | None = None) -> None:
        self.tree = tree
        self.before = before
        self.after = after
        self._session = tree.begin(self)
        self._callbacks: list[tuple[SessionCallback, asyncio.AbstractEventLoop]] = []
        self._suspended = False
        self._closed = False

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes created now."""
        return self._session

    @property
    def where(self) -> str:
        """The store in words."""
        return "memory"

    def suspend(self) -> None:
        """The connection breaks: watches fire LOST, operations fail with Unavailable until resume()."""
        if self._suspended or self._closed:
            return
        self._suspended = True
        for watch in self.tree.take_watches(self._session):
            watch.fire(WatchEvent.LOST)
        self._announce(SessionEvent.SUSPENDED)

    def resume(self) -> None:
        """The connection is back; a session that expired meanwhile is replaced."""
        if not self._suspended or self._closed:
            return
        self._suspended = False
        if not self.tree.lives(self._session):
            self._announce(SessionEvent.EXPIRED)
            self._session = self.tree.begin(self)
        self._announce(SessionEvent.CONNECTED)

    def expire(self) -> None:
        """The server ends the session; a new one follows, at once or when the connection is back."""
        self.tree.expire(self._session)

    def abandon(self) -> None:
        """The process has died: no more callbacks; ephemeral nodes stay until the tree expires the session."""
        self._closed = True
        self._callbacks.clear()
        for watch in self.tree.take_watches(self._session):
            watch.active = False

    def session_expired(self, watches: list[_Watch]) -> None:
        """Called by the tree, which has ended this session and taken these watches off."""
        if self._closed or self._suspended:  # no callback may be called, or not yet
            return
        for watch in watches:
            watch.fire(WatchEvent.LOST)
        self._announce(SessionEvent.EXPIRED)
        self._session = self.tree.begin(self)
        self._announce(SessionEvent.CONNECTED)

    def _announce(self, event: SessionEvent) -> None:
        for callback, loop in self._callbacks:
            loop.call_soon(self._tell, (callback, loop), event)

    def _tell(self, entry: tuple[SessionCallback, asyncio.AbstractEventLoop], event: SessionEvent) -> None:
        if entry in self._callbacks:
            entry[0](event)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Calls back at every change of the session, until cancelled."""
        entry = (callback, asyncio.get_running_loop())
        self._callbacks.append(entry)

        def cancel() -> None:
            if entry in self._callbacks:
                self._callbacks.remove(entry)

        return cancel

    async def close(self) -> None:
        """Ends the session: its watches fire LOST, its ephemeral nodes are deleted."""
        if not self._closed:
            watches = self.tree.take_watches(self._session)
            self.abandon()
            for watch in watches:
                watch.fire(WatchEvent.LOST)
            self.tree.end(self._session)
        await asyncio.sleep(0)

    async def get(self, path: str) -> Node:
        """The node's data and Stat."""
        return await self._answer("get", path, lambda: self._node(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The same for many nodes; None for those that are not there."""
        for path in paths:
            check_path(path)
        return await self._answer("get_many", paths[0] if paths else "/", lambda: [self._node_if(p) for p in paths])

    async def exists(self, path: str) -> Stat | None:
        """The node's Stat, or None."""
        node = await self._answer("exists", path, lambda: self._node_if(path))
        return node.stat if node is not None else None

    async def children(self, path: str) -> list[str]:
        """The names of the node's children, sorted."""
        return await self._answer("children", path, lambda: sorted(self._raw(path).children))

    async def sync(self, path: str) -> None:
        """Nothing to wait for: there is one tree."""
        await self._answer("sync", path, lambda: None)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Creates a node and returns its path."""
        if sequence:
            check_path(path + "0")

        def apply(transaction: _Transaction) -> str:
            if parents:
                self._make_parents(transaction, parent_of(path))
            return transaction.create(path, bytes(data), ephemeral=ephemeral, sequence=sequence)

        return await self._write("create", "/" if sequence else path, apply, shown=path)

    def _make_parents(self, transaction: _Transaction, path: str) -> None:
        if path not in self.tree.nodes:
            self._make_parents(transaction, parent_of(path))
            transaction.create(path, b"", ephemeral=False)

    async def set(self, path: str, data: bytes, version: Version) -> Version:
        """Replaces the data if the version is still this one."""
        refuse_any(version)
        return await self._write("set", path, lambda t: t.set(path, bytes(data), version))

    async def overwrite(self, path: str, data: bytes) -> Version:
        """Replaces the data whatever its version."""
        return await self._write("overwrite", path, lambda t: t.set(path, bytes(data), ANY_VERSION))

    async def delete(self, path: str, version: Version) -> None:
        """Deletes a childless node, if its version is still this one."""
        refuse_any(version)
        await self._write("delete", path, lambda t: t.delete(path, version))

    async def delete_any(self, path: str) -> None:
        """Deletes a childless node, whatever its version."""
        await self._write("delete_any", path, lambda t: t.delete(path, ANY_VERSION))

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Does all of them or none."""
        for operation in operations:
            check_path(operation.path)

        def apply(transaction: _Transaction) -> None:
            for operation in operations:
                transaction.apply(operation)

        await self._write("multi", operations[0].path if operations else "/", apply)

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once: at the next creation, change or deletion of the node."""
        loop = asyncio.get_running_loop()
        return await self._answer("watch_data", path, lambda: self._watch(self.tree.data_watches, path, callback, loop))

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once: when a child comes or goes, or the node is deleted."""
        loop = asyncio.get_running_loop()

        def set_watch() -> Cancel:
            self._raw(path)
            return self._watch(self.tree.child_watches, path, callback, loop)

        return await self._answer("watch_children", path, set_watch)

    def _watch(self, watches: _Watches, path: str, callback: WatchCallback, loop: asyncio.AbstractEventLoop) -> Cancel:
        watch = _Watch(self._session, callback, loop)
        watches.setdefault(path, []).append(watch)

        def cancel() -> None:
            watch.active = False
            if watch in watches.get(path, ()):
                watches[path].remove(watch)

        return cancel

    def _raw(self, path: str) -> _Node:
        node = self.tree.nodes.get(path)
        if node is None:
            raise no_node(path)
        return node

    def _node(self, path: str) -> Node:
        node = self._raw(path)
        return Node(node.data, node.stat())

    def _node_if(self, path: str) -> Node | None:
        return self._node(path) if path in self.tree.nodes else None

    async def _write(
        self, operation: str, path: str, apply: Callable[[_Transaction], T], *, shown: str | None = None
    ) -> T:
        def whole() -> T:
            transaction = _Transaction(self.tree, self._session)
            try:
                result = apply(transaction)
            except BkctlError:
                transaction.roll_back()
                raise
            transaction.commit()
            return result

        return await self._answer(operation, path, whole, shown=shown)

    async def _answer(self, operation: str, path: str, apply: Callable[[], T], *, shown: str | None = None) -> T:
        """One request and its answer: `apply` runs in one piece, one turn of the loop or more after the call."""
        check_path(path)
        shown = shown if shown is not None else path
        session = self._session
        if self.before is not None:
            await self.before(operation, shown)
        await asyncio.sleep(0)
        self._check_session(session, operation, shown)
        try:
            return apply()
        finally:  # a "no" is an answer too, and can be lost
            if self.after is not None:
                await self.after(operation, shown)
                self._check_session(session, operation, shown)

    def _check_session(self, session: int, operation: str, path: str) -> None:
        if self._closed:
            raise Unavailable(f"{operation} {path}: the session with the metadata store is closed")
        if self._suspended:
            raise Unavailable(f"{operation} {path}: no connection to the metadata store")
        if session != self._session:
            raise SessionExpired(f"{operation} {path}: the session with the metadata store expired")
