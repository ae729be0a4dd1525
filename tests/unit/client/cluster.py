"""A small cluster in virtual time: our bookies on simulated machines, metadata in memory, a client of its own host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from bkdaemon.bookie.bookie import Bookie

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId
from bkctl.world import World
from tests.sim.bookies import BOOKIE_PORT, serve, small_config
from tests.sim.loop import SimLoop, run
from tests.sim.machine import Machine
from tests.sim.network import Fabric
from tests.sim.trace import Trace

ROOT = "/ledgers"
T = TypeVar("T")


class SimCluster:
    """Bookies b0, b1, …; `bookies` holds the live Bookie objects by host."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        random, trace = Random(seed), Trace(loop.time)
        self.loop = loop
        self.fabric = Fabric(loop, random, trace)
        self.tree = MemoryTree()
        self.machines: dict[str, Machine] = {}
        self.bookies: dict[str, Bookie] = {}
        self.stores: dict[str, MemoryStore] = {}
        self._worlds: dict[str, World] = {}
        self._machine = lambda name: Machine(loop, self.fabric, trace, random, name)

    async def start_bookie(self, host: str) -> None:
        """Starts, again or for the first time, a bookie that is registered as writable."""
        machine = self.machines.setdefault(host, self._machine(host))
        process, world = machine.start()
        self.bookies[host], _ = await process.spawn(serve(world, small_config(), host))
        store = self.stores[host] = MemoryStore(self.tree)
        await BookieRegistry(store, ROOT).register(bookie_id(host), BookieServiceInfo())

    def kill(self, bookie: BookieId) -> None:
        """SIGKILL; the registration goes with the session."""
        host = bookie.partition(":")[0]
        self.machines[host].kill()
        self.stores[host].expire()

    async def client(self, config: ClientConfig, host: str = "client") -> BookKeeper:
        """A client on a host of its own; call it inside of `on_host`."""
        store = MemoryStore(self.tree)
        world = self._worlds[host]
        ledgers = await open_ledgers(store, ROOT, random=world.random)
        return BookKeeper(ledgers, BookieRegistry(store, ROOT), world, config)

    async def on_host(self, host: str, work: Callable[[], Awaitable[T]]) -> T:
        """Runs work as a process of a host."""
        machine = self.machines.setdefault(host, self._machine(host))
        process, self._worlds[host] = machine.start()

        async def main() -> T:
            return await work()

        return await process.spawn(main())


def bookie_id(host: str) -> BookieId:
    return BookieId(f"{host}:{BOOKIE_PORT}")


def simulate(
    scenario: Callable[[SimCluster, BookKeeper], Awaitable[T]], *, bookies: int = 4, seed: int = 1, **settings: Any
) -> T:
    """Runs a scenario with a cluster and a client, in virtual time."""

    async def main(loop: SimLoop) -> T:
        cluster = SimCluster(loop, seed)
        await init_cluster(MemoryStore(cluster.tree), ROOT)
        for i in range(bookies):
            await cluster.start_bookie(f"b{i}")

        async def work() -> T:
            async with await cluster.client(ClientConfig(**settings)) as bookkeeper:
                return await scenario(cluster, bookkeeper)

        result = await cluster.on_host("client", work)
        assert loop.failures == []
        return result

    return run(main)
