"""Managed ledgers on a simulated cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.errors import BkctlError
from bkctl.log.cache import EntryCache
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext
from bkctl.log.settings import LedgerSettings
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
    """One owner of logs, with what its logs told."""

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
    """Waits in virtual time until something is so."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


async def read_all(log: ManagedLedger, start: Position = Position(-1, -1), entries_max: int = 7) -> list[bytes]:  # noqa: B008
    found: list[bytes] = []
    while True:
        entries = await log.read(start, entries_max, 1_000_000)
        if not entries:
            return found
        found += [entry for _, entry in entries]
        start = log.next_position(entries[-1][0])
