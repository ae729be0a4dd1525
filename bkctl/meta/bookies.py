"""Bookies in the metadata store: registrations, writable or read-only, addresses, cookies.

    available/<id>            writable; ephemeral, so it goes when the bookie's session does
    available/readonly/<id>   read-only
    cookies/<id>              every bookie that has started with data and was not removed

Changing sides creates the new node before the old one is deleted: for a moment a bookie can be in both lists.
Source: ZKRegistrationManager.java, ZKRegistrationClient.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from bkctl.codec.data_dir import decode_cookie, encode_cookie
from bkctl.codec.registration import bookie_address, decode_service_info, encode_service_info
from bkctl.errors import AlreadyExists, NotFound, SessionExpired, Unavailable
from bkctl.meta import paths
from bkctl.meta.store import (
    FIRST_VERSION,
    Cancel,
    MetadataStore,
    SessionEvent,
    Version,
    WatchCallback,
    WatchEvent,
    wakes,
)
from bkctl.model.bookie import BookieServiceInfo, Cookie
from bkctl.model.ids import BookieId

SERVER_TICKS_S: Final = 6.0  # two ticks of a usual server, which ends a session at the tick behind its time-out
STALE_WAIT_S: Final = 10.0 + SERVER_TICKS_S  # zkTimeout's default: by then the server has forgotten a dead session
SESSIONS_REMEMBERED_MAX: Final = 16  # of this store, in which it tried to register
LOST_ANSWERS_MAX: Final = 2  # to creations, before the store counts as unavailable
WATCH_RETRY_S: Final = 0.2  # between looks while the store does not answer
REGISTER_ROUNDS_MAX: Final = 10  # creations that fail because of another process's node

_log = logging.getLogger(__name__)


class RegisteredBookies(NamedTuple):
    """The two lists, as read one after the other."""

    writable: frozenset[BookieId]
    read_only: frozenset[BookieId]


class BookieRegistry:
    """Registrations below a root; the nodes it creates belong to the store's session."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self.store = store
        self.root = root
        self._available = f"{root}/{paths.AVAILABLE}"
        self._read_only = f"{self._available}/{paths.READ_ONLY}"
        self._sessions: deque[int] = deque(maxlen=SESSIONS_REMEMBERED_MAX)

    # -- the bookie's side ----------------------------------------------------------------------------------------

    async def register(
        self,
        bookie_id: BookieId,
        info: BookieServiceInfo,
        *,
        read_only: bool = False,
        stale_wait_s: float = STALE_WAIT_S,
    ) -> None:
        """Registers on one side and leaves the other. Call it again after every EXPIRED session.

        A node of another session, such as our own before a crash, is waited for; one of this session is kept as it is.
        A process that was frozen past the end of its session waits again for what it finds afterwards.

        Raises:
            AlreadyExists: another session keeps the id for longer than stale_wait_s.
        """
        data = encode_service_info(info)
        if read_only:
            await self._ensure(self._read_only)
            await self._hold(f"{self._read_only}/{bookie_id}", data, stale_wait_s)
            await self._release(f"{self._available}/{bookie_id}")
        else:
            await self._hold(f"{self._available}/{bookie_id}", data, stale_wait_s)
            await self._release(f"{self._read_only}/{bookie_id}")

    async def unregister(self, bookie_id: BookieId) -> None:
        """Leaves both lists; nodes of other sessions stay."""
        await self._release(f"{self._available}/{bookie_id}")
        await self._release(f"{self._read_only}/{bookie_id}")

    async def _ensure(self, path: str) -> None:
        try:
            await self.store.create(path, b"", parents=True)
        except AlreadyExists:
            pass

    async def _hold(self, path: str, data: bytes, stale_wait_s: float) -> None:
        """Creates an ephemeral node of this session, unless it exists.

        A node of an earlier session of this store is never another bookie: it is waited for in every round. A node of
        another session is too much after one wait, unless the own session changed meanwhile: then this process was
        frozen, or the network was away, and the wait says nothing.
        """
        lost = 0
        for _ in range(REGISTER_ROUNDS_MAX):
            session = self.store.session_id
            if session not in self._sessions:
                self._sessions.append(session)
            try:
                await self.store.create(path, data, ephemeral=True)
                return
            except AlreadyExists:
                owner = await self._owner_after(path, stale_wait_s)
            except Unavailable:  # it may have been created: by this session, or by one that has expired since
                lost += 1
                if lost > LOST_ANSWERS_MAX:
                    raise
                continue
            if owner is not None and owner == self.store.session_id:
                return
            if owner is not None and owner not in self._sessions and session == self.store.session_id:
                raise AlreadyExists(
                    f"{path} belongs to another session",
                    hint="check whether a bookie with the same id is running elsewhere",
                    path=path,
                )
        raise AlreadyExists(f"{path}: another process keeps registering with the same id", path=path)

    async def _owner_after(self, path: str, wait_s: float) -> int | None:
        """The session that owns a node: at once if it is this one, else after wait_s; None as soon as it is gone."""
        gone = asyncio.Event()
        cancel = await self.store.watch_data(path, wakes(gone))
        try:
            stat = await self.store.exists(path)
            if stat is None or stat.ephemeral_owner == self.store.session_id:
                return None if stat is None else stat.ephemeral_owner
            before = stat.ephemeral_owner
            try:
                async with asyncio.timeout(wait_s):
                    await gone.wait()
            except TimeoutError:
                # A process that was frozen finds the time passed before it hears what happened: ask the server.
                await self.store.sync(path)
                stat = await self.store.exists(path)
                return before if stat is not None and stat.ephemeral_owner == before else None
            return None
        except SessionExpired:
            return None
        finally:
            cancel()

    async def _release(self, path: str) -> None:
        """Deletes a node if it is this session's."""
        stat = await self.store.exists(path)
        if stat is not None and stat.ephemeral_owner == self.store.session_id:
            try:
                await self.store.delete(path, stat.version)
            except NotFound:
                pass

    # -- the clients' side -----------------------------------------------------------------------------------------

    async def writable(self) -> set[BookieId]:
        """Bookies that take new entries.

        Raises:
            NotFound: no cluster exists below this root.
        """
        try:
            names = await self.store.children(self._available)
        except NotFound:
            raise NotFound(
                f"no BookKeeper cluster exists below {self.root} of {self.store.where}",
                hint="bkctl cluster init creates one",
            ) from None
        return {BookieId(name) for name in names if name != paths.READ_ONLY}

    async def read_only(self) -> set[BookieId]:
        """Bookies that only serve reads."""
        return await self._names(self._read_only)

    async def known(self) -> set[BookieId]:
        """Bookies that have a cookie: all that may hold data."""
        return await self._names(f"{self.root}/{paths.COOKIES}")

    async def registered(self) -> RegisteredBookies:
        """The writable and the read-only bookies, one list read after the other."""
        return RegisteredBookies(frozenset(await self.writable()), frozenset(await self.read_only()))

    async def _names(self, path: str) -> set[BookieId]:
        try:
            return {BookieId(name) for name in await self.store.children(path)}
        except NotFound:
            return set()

    async def service_info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """The bookie's registration, writable or else read-only.

        Raises:
            NotFound: it is not registered. BadBytes: what it registered cannot be read.
        """
        for path in (f"{self._available}/{bookie_id}", f"{self._read_only}/{bookie_id}"):
            try:
                return decode_service_info((await self.store.get(path)).data, source=path)
            except NotFound:
                continue
        raise NotFound(f"bookie {bookie_id} is not registered", bookie_id=bookie_id)

    async def address(self, bookie_id: BookieId) -> tuple[str, int]:
        """The host and port of its bookie-rpc endpoint; of an old bookie, those in its id."""
        return bookie_address(bookie_id, await self.service_info(bookie_id), source=f"registration of {bookie_id}")

    async def cookie(self, bookie_id: BookieId) -> tuple[Cookie, Version]:
        """The bookie's cookie and the version to change it by.

        Raises:
            NotFound: it has none. BadBytes: it cannot be read.
        """
        path = self._cookie_path(bookie_id)
        try:
            node = await self.store.get(path)
        except NotFound:
            raise NotFound(f"bookie {bookie_id} has no cookie", bookie_id=bookie_id) from None
        return decode_cookie(node.data, source=path), node.stat.version

    async def create_cookie(self, cookie: Cookie) -> Version:
        """Stores the cookie of a bookie that has none; AlreadyExists if it has."""
        await self.store.create(self._cookie_path(cookie.bookie_id), encode_cookie(cookie), parents=True)
        return FIRST_VERSION

    async def update_cookie(self, cookie: Cookie, version: Version) -> Version:
        """Replaces the bookie's cookie if it is still at this version."""
        return await self.store.set(self._cookie_path(cookie.bookie_id), encode_cookie(cookie), version)

    async def delete_cookie(self, bookie_id: BookieId, version: Version) -> None:
        """Deletes the cookie if it is still at this version: the bookie's data is treated as lost."""
        await self.store.delete(self._cookie_path(bookie_id), version)

    def _cookie_path(self, bookie_id: BookieId) -> str:
        return f"{self.root}/{paths.COOKIES}/{bookie_id}"

    async def watch(self, callback: Callable[[RegisteredBookies], None]) -> Cancel:
        """Calls back with both lists at once, and again whenever one has changed, until cancelled."""
        watch = _ListWatch(self, callback)
        try:
            await watch.look()
        except BaseException:
            watch.close()
            raise
        task = asyncio.create_task(watch.run(), name=f"watch of {self._available}")

        def cancel() -> None:
            task.cancel()
            watch.close()

        return cancel


class _ListWatch:
    """Keeps one-shot watches on both lists set, through lost connections and new sessions."""

    def __init__(self, registry: BookieRegistry, callback: Callable[[RegisteredBookies], None]) -> None:
        self._registry = registry
        self._callback = callback
        self._changed = asyncio.Event()
        self._watched: set[str] = set()
        self._cancels: dict[str, Cancel] = {}
        self._last: RegisteredBookies | None = None
        self._end_session_events = registry.store.on_session(self._on_session)

    async def look(self) -> None:
        """Sets the watches that are not set, reads, and reports changes."""
        self._changed.clear()
        root = f"{self._registry.root}/{paths.AVAILABLE}"
        for path in (root, f"{root}/{paths.READ_ONLY}"):
            if path not in self._watched:
                self._watched.add(path)  # before the call: the watch may fire before its answer is here
                try:
                    self._cancels[path] = await self._registry.store.watch_children(path, self._fired(path))
                except (
                    NotFound
                ):  # without `readonly` there are no read-only bookies; its creation fires the other watch
                    self._watched.discard(path)
                except BaseException:
                    self._watched.discard(path)
                    raise
        found = await self._registry.registered()
        if found != self._last:
            self._last = found
            self._callback(found)

    async def run(self) -> None:
        """Reads again after every event; while the store does not answer, every WATCH_RETRY_S."""
        retry = False
        while True:
            try:
                async with asyncio.timeout(WATCH_RETRY_S if retry else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            try:
                await self.look()
                retry = False
            except (Unavailable, NotFound) as e:
                _log.warning("cannot read the list of bookies: %s", e)
                retry = True

    def close(self) -> None:
        """Removes the watches."""
        self._end_session_events()
        for cancel in self._cancels.values():
            cancel()

    def _fired(self, path: str) -> WatchCallback:
        def fired(_: WatchEvent) -> None:
            self._watched.discard(path)
            self._changed.set()

        return fired

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._changed.set()
