"""Owners that depose each other at any moment, over bookies that come and go: nothing confirmed is lost, ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from bkdaemon.broker.managed_ledger import ManagedLedger

from bkctl.errors import BkctlError
from bkctl.model.topic import EARLIEST, Position
from tests.unit.client.cluster import SimCluster, bookie_id
from tests.unit.daemon.broker.logs import EAGER, Broker, another, on_brokers, until

OWNERS = 6
SETTINGS = replace(EAGER, entries_max=7, cursor_entries_max=4)


@dataclass
class Promises:
    """What owners were told to be safe: (position, entry) in the order of confirmation; acks that were flushed."""

    confirmed: list[tuple[Position, bytes]] = field(default_factory=list)
    acked: set[Position] = field(default_factory=set)
    asked: set[Position] = field(default_factory=set)  # acks that may or may not count


class Owner:
    """One broker that works until it is deposed."""

    def __init__(self, number: int, broker: Broker, promises: Promises, random: Random) -> None:
        self.number, self.broker, self.promises, self.random = number, broker, promises, random
        self.added: list[bytes] = []
        self.told = 0
        self.log: ManagedLedger | None = None

    def _confirmed(self, positions: list[Position]) -> None:
        for position in positions:
            self.promises.confirmed.append((position, self.added[self.told]))
            self.told += 1

    async def work(self) -> None:
        """Takes the log over, then adds and acknowledges until somebody else has it."""
        while self.log is None:
            try:
                self.log = await self.broker.open(SETTINGS)
            except BkctlError:
                await asyncio.sleep(self.random.random())
        log = self.log
        log.on_confirmed = self._confirmed
        try:
            cursor = await log.open_cursor("s", EARLIEST)
            while True:
                batch = [b"%d.%d" % (self.number, len(self.added) + i) for i in range(self.random.randint(1, 5))]
                self.added += batch
                log.add_many(batch)
                await asyncio.sleep(self.random.random() * 0.05)
                known = [p for p, _ in self.promises.confirmed if log.ledgers.contains(p)]
                if known and self.random.random() < 0.4:
                    chosen = set(self.random.sample(known, min(3, len(known))))
                    self.promises.asked |= chosen
                    cursor.ack(sorted(chosen))
                    await cursor.flush()
                    self.promises.acked |= chosen
        except BkctlError:
            return


async def check(log: ManagedLedger, promises: Promises) -> None:
    """The log holds all that was confirmed, in one order, nothing twice; and every ack that was told to be safe."""
    found: list[tuple[Position, bytes]] = []
    start = EARLIEST
    while batch := await log.read(start, 100, 1_000_000):
        found += batch
        start = log.next_position(batch[-1][0])
    by_position = dict(found)
    lost = [(p, e) for p, e in promises.confirmed if by_position.get(p) != e]
    assert lost == []
    entries = [entry for _, entry in found]
    assert len(set(entries)) == len(entries)
    for number in range(OWNERS):
        own = [int(e.split(b".")[1]) for e in entries if e.startswith(b"%d." % number)]
        assert own == sorted(own)
        assert own == list(range(len(own)))  # no hole in what one owner wrote
    cursor = log.cursors["s"]
    assert [p for p in promises.acked if not cursor.is_acked(p)] == []
    assert [p for p, _ in found if cursor.is_acked(p) and p not in promises.asked] == []


async def flap(cluster: SimCluster, random: Random, stop: asyncio.Event) -> None:
    """One bookie at a time is away for a while."""
    while not stop.is_set():
        host = f"b{random.randrange(4)}"
        cluster.kill(bookie_id(host))
        await asyncio.sleep(random.random() * 2)
        await cluster.start_bookie(host)
        await asyncio.sleep(random.random() * 4)


@pytest.mark.parametrize("seed", range(6))
def test_owners_that_depose_each_other(seed: int) -> None:
    async def scenario(broker: Broker) -> None:
        random, promises = Random(seed), Promises()
        works, stop = [], asyncio.Event()
        bookies = asyncio.create_task(flap(broker.cluster, random, stop))
        for number in range(OWNERS):
            owner = Owner(number, await another(broker, add_timeout_s=2, read_timeout_s=2), promises, random)
            works.append(asyncio.create_task(owner.work()))
            await asyncio.sleep(random.random() * 6)
        stop.set()
        await bookies
        last = await another(broker)
        log: ManagedLedger | None = None
        while log is None:
            try:
                log = await last.open(SETTINGS)
            except BkctlError:
                await asyncio.sleep(1)
        await until(lambda: all(work.done() for work in works), 60_000)
        assert len(promises.confirmed) > 50
        assert promises.acked
        await check(log, promises)
        await log.close()

    on_brokers(scenario, seed=seed + 1)
