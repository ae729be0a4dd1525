"""A whole cluster in virtual time: real bookie services and clients on simulated machines, and a metadata store."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar

from bkdaemon.bookie.index import MemoryIndex
from bkdaemon.bookie.service import BookieService

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig, Placement
from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.errors import BadBytes, BkctlError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.memory import MemoryStore
from bkctl.model.ledger import LedgerMetadata
from bkctl.world import World
from tests.sim.bookies import BOOKIE_PORT, small_config
from tests.sim.history import History, Violation
from tests.sim.loop import PowerCut, Process, SimLoop
from tests.sim.machine import Machine, SimClock
from tests.sim.metadata import HOST, MetadataService, SimStore
from tests.sim.network import Fabric
from tests.sim.trace import Trace

ROOT: Final = "/ledgers"
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Cluster:
    """Machines, their processes, and what they must not do. Scenario code runs outside of all processes."""

    def __init__(self, loop: SimLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.fabric = Fabric(loop, Random(random.getrandbits(64)), trace)
        self.metadata = MetadataService(loop, self.fabric, Random(random.getrandbits(64)), trace, SimClock(loop, 0))
        self.metadata.on_change = self._metadata_changed
        self.history = History()
        self.on_node: Callable[[str], None] = lambda _path: None
        self.on_ledger: Callable[[int, LedgerMetadata | None, LedgerMetadata], None] = lambda *_: None
        self.machines: dict[str, Machine] = {}
        self.services: dict[str, BookieService] = {}
        self.stores: dict[str, SimStore] = {}
        self.broken: list[str] = []
        self.gone: set[str] = set()  # bookies that never come back
        self.recover_newest = False  # the next recoverer that looks should take the newest ledger, at once
        self.recover_next: int | None = None  # that ledger, rather
        self.writing: dict[int, str] = {}  # ledgers that somebody writes now, and his machine
        self.sync_factor = 1.0  # of all disks
        self.bookie_settings: dict[str, Any] = {}

    async def create(self, bookies: int) -> None:
        """Makes the cluster and starts its bookies."""
        await init_cluster(MemoryStore(self.metadata.tree), ROOT, random=self.random)
        for number in range(bookies):
            self.machine(f"b{number}")
            self.start_bookie(f"b{number}")
        await self.until(lambda: len(self.services) == bookies and all(s.registered for s in self.services.values()))

    def machine(self, name: str) -> Machine:
        """A machine by its name, made when it is first named."""
        if name not in self.machines:
            machine = self.machines[name] = Machine(self.loop, self.fabric, self.trace, self.random, name)
            machine.sync_factor = self.sync_factor
        return self.machines[name]

    @property
    def bookie_hosts(self) -> list[str]:
        """The machines of bookies."""
        return [name for name in self.machines if name.startswith("b")]

    async def until(self, condition: Callable[[], bool], timeout_s: float = 120.0, step_s: float = 0.05) -> bool:
        """Looks every step_s, for at most timeout_s of virtual time; False if it never held."""
        deadline = self.loop.now + timeout_s
        while not condition():
            if self.loop.now >= deadline:
                return False
            await self.sleep(step_s)
        return True

    async def sleep(self, seconds: float) -> None:
        """Lets virtual time pass; raises what was found to be wrong meanwhile."""
        future = self.loop.create_future()
        self.loop.call_later(seconds, future.set_result, None)
        await future
        self.check()

    def check(self) -> None:
        """Raises what is known to be wrong."""
        problems = self.broken + self.loop.failures
        if problems:
            raise Violation(problems[0])

    # -- processes ------------------------------------------------------------------------------------------------

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Runs work in a process; what escapes from it is a bug."""

        async def guarded() -> None:
            try:
                await work
            except PowerCut:
                pass
            except Exception as e:  # noqa: BLE001 - whatever it is, it ends the run, not the process
                _log.exception("%s", name)
                self.broken.append(f"{name}: {type(e).__name__}: {e}")

        process.spawn(guarded(), name)

    def start_bookie(self, host: str) -> None:
        """Starts a bookie's process; it may fail to come up, as bookies do, and is then down."""
        machine = self.machines[host]
        if machine.running or host in self.gone:
            return
        process, world = machine.start()
        self.services.pop(host, None)
        self.spawn(process, self._run_bookie(host, process, world), f"bookie {host}")

    async def _run_bookie(self, host: str, process: Process, world: World) -> None:
        settings = {
            "advertised_address": host,
            "bookie_port": BOOKIE_PORT,
            "metadata_service_uri": f"zk+hierarchical://{HOST}:2181{ROOT}",
            "admin_grpc_port": -1,
        }
        config = small_config(**(settings | self.bookie_settings))
        store = self.stores[host] = self.metadata.session(host, process)
        service = BookieService(config, world, store, lambda directory: MemoryIndex(world.disk, directory))
        try:
            await service.start()
        except (BkctlError, OSError) as e:
            self.trace.add("no-start", host, type(e).__name__)
            disk = self.machines[host].disk
            if isinstance(e, BadBytes) and not disk.lied:
                raise
            process.kill()
            return
        self.services[host] = service
        self.trace.add("serves", host)

    def is_registered(self, host: str) -> bool:
        """True while the metadata store has the bookie's registration, until its session expires."""
        return f"{ROOT}/available/{host}:{BOOKIE_PORT}" in self.metadata.tree.nodes

    def lose_for_ever(self, host: str) -> None:
        """A machine burns down, with its disk."""
        self.trace.add("gone", host)
        self.gone.add(host)
        self.machines[host].power_off()

    async def client(self, host: str, world: World, process: Process, **settings: Any) -> BookKeeper:
        """A client in a process."""
        store = self.metadata.session(host, process)
        ledgers = await open_ledgers(store, ROOT, random=world.random)
        config = ClientConfig(**({"placement": Placement.DEFAULT} | settings))
        return BookKeeper(ledgers, BookieRegistry(store, ROOT), world, config)

    def run_client(self, host: str, work: Callable[[BookKeeper], Awaitable[None]], **settings: Any) -> Process:
        """Starts a process on a machine that makes a client and works with it; BkctlErrors end it, as they may."""
        process, world = self.machine(host).start()

        async def main() -> None:
            try:
                async with await self.client(host, world, process, **settings) as bookkeeper:
                    await work(bookkeeper)
            except BkctlError as e:
                self.trace.add("client-ends", host, type(e).__name__)
            process.kill()

        self.spawn(process, main(), f"client {host}")
        return process

    # -- what happens to ledgers ----------------------------------------------------------------------------------

    def _metadata_changed(self, path: str) -> None:
        """Brings every version of a ledger's metadata to the history, in the moment the store takes it."""
        ledger_id = ledger_of(path)
        node = self.metadata.tree.nodes.get(path)
        if ledger_id is None:
            self.noted(self.on_node, path)
            return
        known = self.history.ledgers.get(ledger_id)
        if node is None:
            if known is not None:
                known.deleted = True
            return
        before = known.metadata if known is not None else None
        now = decode_metadata(node.data, source=path)
        try:
            self.history.changed(ledger_id, now, node.version)
            self.on_ledger(ledger_id, before, now)
        except Violation as e:
            self.trace.add("violation", e)
            self.broken.append(str(e))

    def noted(self, note: Callable[..., None], *arguments: Any) -> None:
        """Tells the history something from within a process: a violation ends the run, not the process."""
        try:
            note(*arguments)
        except Violation as e:
            self.trace.add("violation", e)
            self.broken.append(str(e))

    def copies(self, host: str, ledger_id: int, entry_id: int) -> bytes | None:
        """What a bookie that runs has of an entry; a failing disk does not fail who only checks."""
        storage, disk = self.services[host].bookie.storage, self.machines[host].disk
        chance, disk.error_chance = disk.error_chance, 0.0
        try:
            ledger = storage.ledger(ledger_id)
            if ledger is None:
                return None
            storage.load(ledger)
            return storage.read(ledger, entry_id)
        finally:
            disk.error_chance = chance


def ledger_of(path: str) -> int | None:
    """The ledger whose metadata is at a path of the hierarchical layout, or None."""
    parts = path.removeprefix(ROOT + "/").split("/")
    if len(parts) == 3 and parts[2].startswith("L"):
        return int(parts[0] + parts[1] + parts[2][1:])
    return None
