"""The metadata store in ZooKeeper, through kazoo, for an event loop.

kazoo does its work in threads of its own; every result arrives through call_soon_threadsafe, so callers see one
thread. It finds its way back to the servers by itself, and begins a new session when the old one has expired; all that
is reported by session events, and every watch fires LOST when its connection breaks.

    reads     asked again when the connection breaks, READ_ATTEMPTS_MAX times in all, within the timeout
    writes    sent once: a connection that breaks leaves open whether they were done
    without   a connection an operation waits for one; no request is queued and sent after its caller has stopped
    waiting
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat

from bkctl.errors import AlreadyExists, BkctlError, NotFound, Refused, ServerError, SessionExpired, Unavailable
from bkctl.meta.kazoo_client import new_client
from bkctl.meta.multi_read import MultiRead
from bkctl.meta.shared_watch import SharedWatch
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

SESSION_TIMEOUT_S: Final = 10.0  # BookKeeper's zkTimeout
OPERATION_TIMEOUT_S: Final = 30.0
CLOSE_TIMEOUT_S: Final = 3.0
READ_ATTEMPTS_MAX: Final = 3
PARENT_ATTEMPTS_MAX: Final = 10  # a parent that is deleted this often is deleted on purpose
BATCH_SIZE: Final = 250  # reads in one request
BATCHES_IN_FLIGHT_MAX: Final = 8

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _Answer(Protocol):
    """kazoo's IAsyncResult, as far as it is used here."""

    def rawlink(self, callback: Callable[[_Answer], None]) -> None: ...

    def get_nowait(self) -> object: ...


class ZooKeeperStore:
    """One session with a ZooKeeper ensemble. Keeps the contract of `store.MetadataStore`; made by connect()."""

    def __init__(self, client: KazooClient, where: str, timeout_s: float) -> None:
        self._client = client
        self._where = where
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._session = 0
        self._closed = False
        self._single_reads = False  # the server is older than 3.6
        self._callbacks: list[SessionCallback] = []
        self._data_watches: dict[str, SharedWatch] = {}
        self._child_watches: dict[str, SharedWatch] = {}

    @classmethod
    async def connect(
        cls,
        hosts: Sequence[str],
        *,
        timeout_s: float = OPERATION_TIMEOUT_S,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> ZooKeeperStore:
        """Opens a session; timeout_s is for that, and for every operation later.

        Raises:
            Unavailable: none of the hosts answered in time.
        """
        client = new_client(hosts, session_timeout_s)
        store = cls(client, ", ".join(hosts), timeout_s)
        client.add_listener(store._state_changed)
        client.start_async()
        try:
            async with asyncio.timeout(timeout_s):
                await store._connected.wait()
        except TimeoutError:
            store._begin_close()
            raise Unavailable(
                f"no ZooKeeper answers at {store.where} within {timeout_s:g} s", hint="is it running, is the URI right?"
            ) from None
        except BaseException:
            store._begin_close()
            raise
        return store

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes created now."""
        return self._session

    @property
    def where(self) -> str:
        """The hosts of the ensemble, for messages."""
        return self._where

    # -- the session ----------------------------------------------------------------------------------------------

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Calls back at every change of the session, until cancelled."""
        self._callbacks.append(callback)

        def cancel() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return cancel

    def _state_changed(self, state: str) -> None:
        """Called by kazoo in its own thread."""
        client_id = self._client.client_id
        self._post(self._session_event, state, client_id[0] if client_id else None)

    def _session_event(self, state: str, session: int | None) -> None:
        if self._closed:
            return
        if state == KazooState.CONNECTED:
            self._session = session if session is not None else self._session
            self._connected.set()
            event = SessionEvent.CONNECTED
        else:
            self._connected.clear()
            event = SessionEvent.EXPIRED if state == KazooState.LOST else SessionEvent.SUSPENDED
        for callback in list(self._callbacks):
            callback(event)

    def _post(self, call: Callable[..., None], *args: object) -> None:
        """Hands a call over to the event loop."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            pass  # the loop is closed: no callback is left

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted."""
        if not self._closed:
            done = self._begin_close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await done.wait()
            except TimeoutError:
                pass  # the thread continues; if it cannot tell the server, the session ends by its timeout

    def _begin_close(self) -> asyncio.Event:
        """Stops kazoo in a thread of our own: without a connection that takes as long as a connection attempt."""
        self._closed = True
        self._callbacks.clear()
        self._connected.set()  # those who wait for a connection learn that none will come
        for watches in (self._data_watches, self._child_watches):
            for path, shared in list(watches.items()):
                shared.fire(watches, path, WatchEvent.LOST)
        done = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception:  # noqa: BLE001 - kazoo raises bare Exception where its thread does not end in time
                _log.debug("kazoo did not end in time", exc_info=True)
            self._post(done.set)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        return done

    # -- reads ----------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node:
        """The node's data and Stat."""
        return await self._read("get", path, lambda: self._client.get_async(path), _node)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The same for many nodes, in order; None for those that are not there."""
        for path in paths:
            check_path(path)
        batches = [tuple(paths[start : start + BATCH_SIZE]) for start in range(0, len(paths), BATCH_SIZE)]
        nodes: list[Node | None] = []
        for start in range(0, len(batches), BATCHES_IN_FLIGHT_MAX):
            group = batches[start : start + BATCHES_IN_FLIGHT_MAX]
            for answer in await asyncio.gather(*map(self._get_batch, group)):
                nodes += answer
        return nodes

    async def _get_batch(self, paths: tuple[str, ...]) -> list[Node | None]:
        if not self._single_reads:
            try:
                return await self._read("get_many", paths[0], lambda: self._send(MultiRead(paths)), _same_nodes)
            except ServerError as e:
                if e.status != zk.UnimplementedError.code:
                    raise
                self._single_reads = True
        return list(await asyncio.gather(*map(self._get_if, paths)))

    async def _get_if(self, path: str) -> Node | None:
        try:
            return await self.get(path)
        except NotFound:
            return None

    def _send(self, request: MultiRead) -> _Answer:
        answer: _Answer = self._client.handler.async_result()
        self._client._call(request, answer)  # what kazoo's own methods do with their requests
        return answer

    async def exists(self, path: str) -> Stat | None:
        """The node's Stat, or None."""
        return await self._read("exists", path, lambda: self._client.exists_async(path), _stat_if)

    async def children(self, path: str) -> list[str]:
        """The names of the node's children, sorted."""
        return await self._read("children", path, lambda: self._client.get_children_async(path), _sorted_names)

    async def sync(self, path: str) -> None:
        """Returns when this session sees everything written before the call."""
        await self._read("sync", path, lambda: self._client.sync_async(path), _nothing)

    # -- writes ---------------------------------------------------------------------------------------------------

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Creates a node and returns its path."""
        check_path(path + "0" if sequence else path)
        data = bytes(data)

        def submit() -> _Answer:
            answer: _Answer = self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequence)
            return answer

        for _ in range(PARENT_ATTEMPTS_MAX):
            try:
                return await self._ask("create", path, submit, str)
            except NotFound:
                if not parents:
                    raise no_node(parent_of(path)) from None
                await self._make_parents(parent_of(path))
        raise Unavailable(f"create {path}: its parents are deleted again and again")

    async def _make_parents(self, path: str) -> None:
        try:
            await self.create(path, b"", parents=True)
        except AlreadyExists:
            pass  # another client made it, which is as good

    async def set(self, path: str, data: bytes, version: Version) -> Version:
        """Replaces the data if the version is still this one."""
        refuse_any(version)
        return await self._set("set", path, bytes(data), version)

    async def overwrite(self, path: str, data: bytes) -> Version:
        """Replaces the data whatever its version."""
        return await self._set("overwrite", path, bytes(data), ANY_VERSION)

    async def _set(self, name: str, path: str, data: bytes, version: Version) -> Version:
        check_path(path)
        return await self._ask(name, path, lambda: self._client.set_async(path, data, version), _version, version)

    async def delete(self, path: str, version: Version) -> None:
        """Deletes a childless node, if its version is still this one."""
        refuse_any(version)
        await self._delete("delete", path, version)

    async def delete_any(self, path: str) -> None:
        """Deletes a childless node, whatever its version."""
        await self._delete("delete_any", path, ANY_VERSION)

    async def _delete(self, name: str, path: str, version: Version) -> None:
        check_path(path)
        await self._ask(name, path, lambda: self._client.delete_async(path, version), _nothing, version)

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Does all of them or none; the error is that of the first that failed."""
        if not operations:
            return
        for operation in operations:
            check_path(operation.path)

        def submit() -> _Answer:
            transaction = self._client.transaction()
            for operation in operations:
                match operation:
                    case Create(path, data, ephemeral):
                        transaction.create(path, bytes(data), ephemeral=ephemeral)
                    case Set(path, data, version):
                        transaction.set_data(path, bytes(data), version)
                    case Delete(path, version):
                        transaction.delete(path, version)
                    case Check(path, version):
                        transaction.check(path, version)
            answer: _Answer = transaction.commit_async()
            return answer

        results = await self._ask("multi", operations[0].path, submit, _same_results)
        for operation, result in zip(operations, results, strict=False):
            # the others of a failed multi are "rolled back" before the failed one, "inconsistent" after it
            if isinstance(result, zk.ZookeeperError) and not isinstance(result, _NOT_THE_CULPRIT):
                path = parent_of(operation.path) if _no_parent(operation, result) else operation.path
                raise self._error(result, "multi", path, getattr(operation, "version", ANY_VERSION))

    # -- watches --------------------------------------------------------------------------------------------------

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once: at the next creation, change or deletion of the node."""

        def arm(fired: Callable[[WatchedEvent], None]) -> _Answer:
            answer: _Answer = self._client.exists_async(path, watch=fired)
            return answer

        return await self._watch("watch_data", self._data_watches, path, callback, arm)

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once: when a child comes or goes, or the node is deleted."""

        def arm(fired: Callable[[WatchedEvent], None]) -> _Answer:
            answer: _Answer = self._client.get_children_async(path, watch=fired)
            return answer

        return await self._watch("watch_children", self._child_watches, path, callback, arm)

    async def _watch(
        self,
        name: str,
        watches: dict[str, SharedWatch],
        path: str,
        callback: WatchCallback,
        arm: Callable[[Callable[[WatchedEvent], None]], _Answer],
    ) -> Cancel:
        """Joins the watch that is set on the path already, or sets one. A watch at the server cannot be taken back."""
        shared = watches.get(path)
        if shared is None:
            shared = SharedWatch()
            fresh = shared

            def fired(event: WatchedEvent) -> None:  # in a thread of kazoo's
                self._post(fresh.fire, watches, path, _EVENTS.get(event.type, WatchEvent.LOST))

            await self._read(name, path, lambda: arm(fired), _nothing)
            if not shared.over:
                watches[path] = shared
        return shared.join(callback)

    # -- one request ----------------------------------------------------------------------------------------------

    async def _read(self, name: str, path: str, submit: Callable[[], _Answer], convert: Callable[..., T]) -> T:
        check_path(path)
        deadline = self._loop.time() + self._timeout_s
        for _ in range(READ_ATTEMPTS_MAX - 1):
            try:
                return await self._ask(name, path, submit, convert)
            except Unavailable:
                if self._closed or self._loop.time() >= deadline:
                    raise
        return await self._ask(name, path, submit, convert)

    async def _ask(
        self,
        name: str,
        path: str,
        submit: Callable[[], _Answer],
        convert: Callable[..., T],
        version: int = ANY_VERSION,
    ) -> T:
        """Sends a request once there is a connection, and waits for its answer; both within the timeout."""
        answered: asyncio.Future[_Answer] = self._loop.create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                while not self._client.connected and not self._closed:
                    self._connected.clear()
                    await self._connected.wait()
                if self._closed:
                    raise Unavailable(f"{name} {path}: the session with ZooKeeper is closed")
                submit().rawlink(lambda answer: self._post(_resolve, answered, answer))
                answer = await answered
            return convert(answer.get_nowait())
        except TimeoutError:
            raise Unavailable(
                f"{name} {path}: ZooKeeper at {self.where} does not answer within {self._timeout_s:g} s"
            ) from None
        except zk.KazooException as e:
            raise self._error(e, name, path, version) from e

    def _error(self, error: zk.KazooException, name: str, path: str, version: int) -> BkctlError:
        """Converts a kazoo exception to a BkctlError."""
        what = f"{name} {path}"
        match error:
            case zk.NoNodeError():
                return no_node(path)
            case zk.NodeExistsError():
                return node_exists(path)
            case zk.BadVersionError():
                return bad_version(path, version)
            case zk.NotEmptyError():
                return not_empty(path)
            case zk.NoChildrenForEphemeralsError():
                return ephemeral_parent(parent_of(path))
            case zk.NoAuthError():
                return Refused(f"{what}: ZooKeeper at {self.where} does not allow it", hint="the node has an ACL")
            case zk.SessionExpiredError():
                return SessionExpired(f"{what}: the session with ZooKeeper expired")
            case zk.ConnectionLoss() | zk.ConnectionClosedError() | zk.OperationTimeoutError() | zk.SessionMovedError():
                return Unavailable(f"{what}: the connection to ZooKeeper at {self.where} broke")
            case zk.ZookeeperError():
                number = int(error.code)
                return ServerError(f"{what}: ZooKeeper answers {type(error).__name__} ({number})", status=number)
        return Unavailable(f"{what}: {type(error).__name__}: {error}")


_EVENTS: Final = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.CHANGED: WatchEvent.CHANGED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHILD: WatchEvent.CHILDREN,
}
_NOT_THE_CULPRIT: Final = (zk.RolledBackError, zk.RuntimeInconsistency)


def _no_parent(operation: Operation, result: zk.ZookeeperError) -> bool:
    return isinstance(operation, Create) and isinstance(result, zk.NoNodeError)


def _resolve(future: asyncio.Future[_Answer], answer: _Answer) -> None:
    if not future.done():
        future.set_result(answer)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(Version(stat.version), stat.ctime, stat.mtime, stat.ephemeralOwner, stat.cversion, stat.numChildren)


def _stat_if(stat: ZnodeStat | None) -> Stat | None:
    return None if stat is None else _stat(stat)


def _node(answer: tuple[bytes, ZnodeStat]) -> Node:
    return Node(answer[0] or b"", _stat(answer[1]))


def _version(stat: ZnodeStat) -> Version:
    return Version(stat.version)


def _same_nodes(nodes: list[Node | None]) -> list[Node | None]:
    return nodes


def _same_results(results: list[object]) -> list[object]:
    return results


def _sorted_names(names: list[str]) -> list[str]:
    return sorted(names)


def _nothing(_: object) -> None:
    return None
