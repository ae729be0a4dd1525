"""Managed ledgers on a simulated cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.errors import BkctlError, Unavailable
from bkctl.log.cache import EntryCache
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext
from bkctl.log.settings import LedgerSettings
from bkctl.log.state import State
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.memory import MemoryStore
from bkctl.model.topic import Position
from tests.unit.client.cluster import SimCluster, simulate

NAME = "public/default/persistent/t"
TRIMMING = LedgerSettings(rollover_min_s=0, entries_max=10, mark_delete_rate=0, retention_check_s=1e6)
EAGER = replace(TRIMMING, retention_s=-1, retention_bytes=-1)
T = TypeVar("T")


@dataclass
class Broker:
    """One owner of logs, with the events of its logs."""

    cluster: SimCluster
    context: LedgerContext
    confirmed: list[Position] = field(default_factory=list)
    failures: list[BkctlError] = field(default_factory=list)

    async def open(self, settings: LedgerSettings = EAGER, name: str = NAME) -> ManagedLedger:
        log = await ManagedLedger.open(self.context, name, settings)
        log.on_confirmed = self.confirmed.extend
        log.on_failed = self.failures.append
        return log

    @property
    def ledgers(self) -> ManagedLedgerStore:
        return self.context.store


async def broker_of(cluster: SimCluster, client: BookKeeper, **cache: int) -> Broker:
    store = ManagedLedgerStore(MemoryStore(cluster.tree))
    return Broker(cluster, LedgerContext(client, store, EntryCache(**cache), client.context.world, recover_ledger))


async def another(broker: Broker, **settings: Any) -> Broker:
    """A second broker on the same host, with a client of its own."""
    client = await broker.cluster.client(ClientConfig(**settings))
    return await broker_of(broker.cluster, client)


def on_brokers(scenario: Callable[[Broker], Awaitable[T]], *, cache: dict[str, int] | None = None, **how: Any) -> T:
    """Runs a scenario with one broker in a new cluster."""

    async def main(cluster: SimCluster, client: BookKeeper) -> T:
        return await scenario(await broker_of(cluster, client, **(cache or {})))

    return simulate(main, **how)


def payloads(count: int, start: int = 0) -> list[bytes]:
    return [b"entry %d" % i for i in range(start, start + count)]


async def until(condition: Callable[[], object], turns: int = 20_000) -> None:
    """Waits in virtual time until a condition is true."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not become true")


async def read_all(log: ManagedLedger, start: Position = Position(-1, -1), entries_max: int = 7) -> list[bytes]:  # noqa: B008
    found: list[bytes] = []
    while True:
        entries = await log.read(start, entries_max, 1_000_000)
        if not entries:
            return found
        found += [entry for _, entry in entries]
        start = log.next_position(entries[-1][0])


async def filled(broker: Broker, settings: Any = EAGER, count: int = 30) -> ManagedLedger:
    log = await broker.open(settings)
    log.add_many(payloads(count))
    await until(lambda: len(broker.confirmed) == count and log.state is State.OPEN)
    return log


async def ledger_ids(broker: Broker) -> list[int]:
    return sorted([ledger_id async for ids in broker.context.bookkeeper.list() for ledger_id in ids])


class LostAnswers:
    """A store whose answers to writes of a path are lost after the writes were done, and reads of it fail a while."""

    def __init__(self, store: Any, path_end: str) -> None:
        self.blind = False
        self._store, self._path_end = store, path_end
        self._calls = {name: getattr(store, name) for name in ("multi", "delete", "get", "exists")}
        store.multi, store.delete = self._multi, self._delete
        store.get, store.exists = self._reading("get"), self._reading("exists")

    async def _multi(self, operations: Any) -> None:
        await self._calls["multi"](operations)
        self._lose(*(operation.path for operation in operations))

    async def _delete(self, path: str, version: Any) -> None:
        await self._calls["delete"](path, version)
        self._lose(path)

    def _lose(self, *paths: str) -> None:
        if any(path.endswith(self._path_end) for path in paths):
            raise Unavailable("the answer was lost")

    def _reading(self, name: str) -> Callable[[str], Any]:
        async def read(path: str) -> Any:
            if self.blind and path.endswith(self._path_end):
                raise Unavailable("no answer")
            return await self._calls[name](path)

        return read

    def mend(self) -> None:
        for name, call in self._calls.items():
            setattr(self._store, name, call)
