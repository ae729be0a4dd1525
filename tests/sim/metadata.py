"""The metadata store in virtual time: MemoryStore behind a network that delays, loses and cuts; sessions that expire.

A session keeps the order of its requests, as ZooKeeper's does. Faults, all off unless a scenario turns them on:

    blocks of the fabric   between a machine and HOST: requests wait; after TIMEOUT_S they are Unavailable
    lose_chance            of one operation: its request is lost, or its answer, or the request comes late: after the
                           client has heard that there is no answer
    conflict_chance        of a compare-and-set: somebody else writes the node just before
    expiry                 of a session whose process is dead, frozen or cut off for SESSION_TIMEOUT_S; or at once
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from bkctl.errors import Unavailable
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Cancel, Node, Operation, SessionCallback, Stat, Version, WatchCallback
from bkctl.world import Clock
from tests.sim.loop import OUTSIDE, Process, SimLoop
from tests.sim.network import CLOCK_ERROR_S, Fabric
from tests.sim.trace import Trace

T = TypeVar("T")

HOST: Final = "metadata"
TIMEOUT_S: Final = 4.0
SESSION_TIMEOUT_S: Final = 10.0
HEARTBEAT_S: Final = 0.5
SUSPENDED_AFTER_S: Final = 2.0
LATE_S_MAX: Final = 3.0


class MetadataService:
    """The store of a cluster, and all sessions with it."""

    def __init__(self, loop: SimLoop, fabric: Fabric, random: Random, trace: Trace, clock: Clock) -> None:
        self.loop = loop
        self.fabric = fabric
        self.random = random
        self.trace = trace
        self.tree = MemoryTree(clock)
        self.lose_chance = 0.0
        self.sessions: list[SimStore] = []
        self.on_change: Callable[[str], None] = lambda _path: None
        self.actor = ""  # whose operation was carried out last
        self.conflict_chance = 0.0
        self.before_cas: Callable[[str, str], bool] = self._conflicts
        loop.call_later(HEARTBEAT_S, self._heartbeat, context=OUTSIDE)

    def session(self, host: str, process: Process) -> SimStore:
        """A new session of a process."""
        store = SimStore(self, host, process)
        self.sessions.append(store)
        return store

    def _conflicts(self, _host: str, _path: str) -> bool:
        return self.conflict_chance > 0 and self.random.random() < self.conflict_chance

    async def touch(self, path: str) -> None:
        """Somebody else writes a node again, as it is: whoever has read it before meets a conflict."""
        node = self.tree.nodes.get(path)
        if node is not None and not node.owner:
            self.trace.add("touch", path)
            await MemoryStore(self.tree).overwrite(path, node.data)
            self.on_change(path)

    def _heartbeat(self) -> None:
        for store in self.sessions:
            store.heartbeat()
        self.sessions = [store for store in self.sessions if not store.over]
        self.loop.call_later(HEARTBEAT_S, self._heartbeat, context=OUTSIDE)


class SimStore:
    """bkctl.meta.store.MetadataStore for one process."""

    def __init__(self, service: MetadataService, host: str, process: Process) -> None:
        self.service = service
        self.host = host
        self.process = process
        self.over = False
        self.expired_s = -1e9  # when it expired last
        self.inner = MemoryStore(service.tree)
        self._heard_s = service.loop.now
        self._request_s = self._answer_s = 0.0
        process.on_end(self.inner.abandon)

    # -- what the service does ------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """The server hears from the session, or does not; and the client of the server."""
        fabric, now = self.service.fabric, self.service.loop.now
        cut = fabric.blocked(self.host, HOST) or fabric.blocked(HOST, self.host)
        if self.process.alive and not self.process.stopped and not cut:
            self._heard_s = now
            self.inner.resume()
            return
        if self.process.alive and now - self._heard_s > SUSPENDED_AFTER_S and cut:
            self.inner.suspend()
        if now - self._heard_s > SESSION_TIMEOUT_S and self.service.tree.lives(self.inner.session_id):
            self.expire()
        self.over = not self.process.alive and not self.service.tree.lives(self.inner.session_id)

    def expire(self) -> None:
        """The server ends the session."""
        self.service.trace.add("expire", self.process.name)
        self.expired_s = self.service.loop.now
        self.service.tree.expire(self.inner.session_id)

    # -- the contract ---------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes created now."""
        return self.inner.session_id

    @property
    def where(self) -> str:
        """The store in words."""
        return "simulation"

    async def get(self, path: str) -> Node:
        """As the contract says."""
        return await self._do("get", path, lambda: self.inner.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """As the contract says."""
        return await self._do("get_many", str(len(paths)), lambda: self.inner.get_many(paths))

    async def exists(self, path: str) -> Stat | None:
        """As the contract says."""
        return await self._do("exists", path, lambda: self.inner.exists(path))

    async def children(self, path: str) -> list[str]:
        """As the contract says."""
        return await self._do("children", path, lambda: self.inner.children(path))

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """As the contract says."""
        return await self._do(
            "create",
            path,
            lambda: self.inner.create(path, data, ephemeral=ephemeral, sequence=sequence, parents=parents),
        )

    async def set(self, path: str, data: bytes, version: Version) -> Version:
        """As the contract says."""
        return await self._do("set", path, lambda: self._cas(path, lambda: self.inner.set(path, data, version)))

    async def overwrite(self, path: str, data: bytes) -> Version:
        """As the contract says."""
        return await self._do("overwrite", path, lambda: self.inner.overwrite(path, data))

    async def delete(self, path: str, version: Version) -> None:
        """As the contract says."""
        await self._do("delete", path, lambda: self._cas(path, lambda: self.inner.delete(path, version)))

    async def delete_any(self, path: str) -> None:
        """As the contract says."""
        await self._do("delete_any", path, lambda: self.inner.delete_any(path))

    async def sync(self, path: str) -> None:
        """As the contract says."""
        await self._do("sync", path, lambda: self.inner.sync(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        """As the contract says."""
        await self._do("multi", str(len(operations)), lambda: self.inner.multi(operations))

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """As the contract says."""
        heard = self._in_process(callback)
        return await self._do("watch_data", path, lambda: self.inner.watch_data(path, heard))

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """As the contract says."""
        heard = self._in_process(callback)
        return await self._do("watch_children", path, lambda: self.inner.watch_children(path, heard))

    def on_session(self, callback: SessionCallback) -> Cancel:
        """As the contract says."""
        return self.inner.on_session(self._in_process(callback))

    async def close(self) -> None:
        """Ends the session."""
        self.over = True
        await self.inner.close()

    def _in_process(self, callback: Callable[[Any], None]) -> Callable[[Any], None]:
        """The same, called in the process of the session, whoever changed the node."""
        return lambda event: self.process.call(callback, event) if self.process.alive else None

    async def _do(self, name: str, path: str, operation: Callable[[], Awaitable[T]]) -> T:
        """A request goes there, is carried out there (whatever becomes of the client), and its answer comes back."""
        service, loop = self.service, self.service.loop
        began = loop.now
        self.process.effects += 1
        fate = self._fate()
        self._request_s = max(self._request_s, loop.now + service.fabric.latency(self.host, HOST))
        await asyncio.sleep(self._request_s - loop.now)
        if fate == "late":
            await self._too_late(name, path, operation)
        if fate == "request" or not await self._way(self.host, HOST, began):
            await self._give_up(began, name, path)
        task = loop.create_task(self._carry_out(path, operation), context=OUTSIDE.copy())
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        failed: BaseException | None = None
        try:
            result = await asyncio.shield(task)
        except Exception as e:  # noqa: BLE001 - the answer: it goes back to the client
            failed = e
        service.trace.add("meta", self.host, name, path, type(failed).__name__ if failed else "")
        if fate == "answer" or not await self._way(HOST, self.host, began):
            await self._give_up(began, name, path)
        self._answer_s = max(self._answer_s, loop.now + service.fabric.latency(HOST, self.host))
        await asyncio.sleep(self._answer_s - loop.now)
        if failed is not None:
            raise failed
        return result

    async def _cas(self, path: str, operation: Callable[[], Awaitable[T]]) -> T:
        """A compare-and-set, in front of which somebody else may have written."""
        if self.service.before_cas(self.host, path):
            await self.service.touch(path)
        return await operation()

    async def _carry_out(self, path: str, operation: Callable[[], Awaitable[T]]) -> T:
        result = await operation()
        self.service.actor = self.host
        self.service.on_change(path)  # in the same turn of the loop in which the tree changed
        return result

    def _fate(self) -> str:
        random = self.service.random
        if self.service.lose_chance and random.random() < self.service.lose_chance:
            return random.choice(("request", "answer", "late"))
        return ""

    async def _way(self, source: str, target: str, began: float) -> bool:
        """Waits until the way is free; False when it took too long."""
        fabric, loop = self.service.fabric, self.service.loop
        while fabric.blocked(source, target):
            left = TIMEOUT_S - (loop.now - began)
            if left <= CLOCK_ERROR_S:
                return False
            await fabric.until_healed(left)
        return True

    async def _give_up(self, began: float, name: str, path: str) -> None:
        """No answer came in time."""
        left = TIMEOUT_S * self.service.random.random() - (self.service.loop.now - began)
        await asyncio.sleep(max(left, 0.0))
        raise Unavailable(f"{name} {path}: no answer from the metadata store")

    async def _too_late(self, name: str, path: str, operation: Callable[[], Awaitable[Any]]) -> None:
        """The client hears that there is no answer; the request arrives afterwards, or perhaps before."""
        service = self.service

        async def arrive() -> None:
            await asyncio.sleep(service.random.random() * LATE_S_MAX)
            try:
                await self._carry_out(path, operation)
            except Exception as e:  # noqa: BLE001 - an answer that nobody hears
                service.trace.add("late", self.host, name, path, type(e).__name__)
            else:
                service.trace.add("late", self.host, name, path)

        service.loop.create_task(arrive(), context=OUTSIDE.copy())
        await asyncio.sleep(service.random.random() * LATE_S_MAX / 2)
        raise Unavailable(f"{name} {path}: no answer from the metadata store")
