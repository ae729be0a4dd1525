"""One run with auto recovery: auditors, workers, writers, readers, recoverers, and a nemesis; drawn from a seed.

As in scenario.py, and besides: two or three auto recovery processes that are killed, frozen and cut off; bookies that
come and go for shorter and longer than they are waited for; bookies lost for ever, no more than Qa - 1 between two
times of peace, with enough others to take their copies; ledgers deleted; auto recovery switched off and on; the delay
changed; somebody else's write before a compare-and-set. In peace everything that `promises` says must come true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from bkdaemon.autorecovery.server import AutoRecovery
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.errors import BkctlError
from bkctl.meta.memory import MemoryStore
from bkctl.meta.underreplication import Underreplication
from bkctl.meta.uri import parse_uri
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType
from bkctl.world import World
from tests.sim.cluster import ROOT, Cluster
from tests.sim.history import History, Violation
from tests.sim.loop import OUTSIDE, Deadlock, Livelock, Process, SimLoop, run
from tests.sim.machine import SimClock
from tests.sim.metadata import HOST
from tests.sim.nemesis import KINDS, Nemesis
from tests.sim.promises import Promises
from tests.sim.scenario import PASSWORD, Outcome, Scenario, Shape, shape_of
from tests.sim.trace import Trace

URI: Final = parse_uri(f"zk+hierarchical://{HOST}:2181{ROOT}")
REPAIR_S_MAX: Final = 400.0
RESTART_S: Final = 2.0
NODE_KINDS: Final[dict[str, float]] = {
    "flap bookie": 0.6,
    "kill node": 0.6,
    "stop node": 0.4,
    "cut off node": 0.3,
    "expire node": 0.4,
    "switch off": 0.2,
    "change delay": 0.2,
    "trigger audit": 0.3,
    "conflicts": 0.5,
}
NOT_HERE: Final = ("lying disk",)
"""A drive that lied has lost entries for good: nothing could be promised."""


@dataclass(frozen=True)
class RepairShape:
    """What a seed decides besides the clients' shape."""

    base: Shape
    nodes: int
    rounds: int
    losses: int
    pause_s: float
    trouble_s: float
    deleters: int
    node_version: int
    settings: RecoverySettings

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of trouble."""
        return self.base.kinds


def repair_shape_of(seed: int) -> RepairShape:
    """Draws the shape of a run."""
    random = Random(f"autorecovery {seed}")
    base = shape_of(seed)
    sizes, rounds = base.quorums, random.choice((1, 1, 2))
    losses = sizes[2] - 1
    share = random.choice((0.3, 0.6, 1.0))  # of the trouble that runs without auto recovery have
    kinds = [k for k in KINDS if k not in NOT_HERE and random.random() < KINDS[k] * share]
    kinds += [k for k in NODE_KINDS if random.random() < NODE_KINDS[k]]
    if losses and random.random() < 0.7 and "lose bookie" not in kinds:
        kinds.append("lose bookie")
    changes: dict[str, Any] = {
        "bookies": sizes[0] + losses * rounds + random.choice((1, 2)),
        "writers": random.choice((1, 1, 2)),
        "entries": random.choice((4, 12, 40)),
        "recoverers": random.choice((0, 0, 1)),
        "readers": random.choice((0, 0, 1)),
        "kinds": tuple(kinds),
        "delay_change": random.random() < 0.1,
        "explicit_lac_s": 0.0,
    }
    settings = RecoverySettings(
        lost_bookie_delay_s=random.choice((0, 2, 6)),
        bookie_check_s=random.choice((10.0, 40.0)),
        ledger_check_s=random.choice((5.0, 15.0)),
        verify_percentage=100 if random.random() < 0.85 else 0,
        open_grace_s=random.choice((1.0, 3.0, 6.0)),
        failure_pause_s=random.choice((4.0, 20.0)),
        rate_bytes_per_s=random.choice((-1.0, -1.0, 200_000.0)),
        password=PASSWORD,
    )
    shape = Shape(**(base.__dict__ | changes))
    return RepairShape(
        base=shape,
        nodes=random.choice((1, 2, 3)),
        rounds=rounds,
        losses=losses,
        pause_s=random.choice((0.7, 2.0, 5.0)),
        trouble_s=random.choice((9.0, 18.0)) / rounds,
        deleters=random.choice((0, 0, 1)),
        node_version=random.choice((2, 2, 3)),
        settings=settings,
    )


def calm_shape(bookies: int, quorums: tuple[int, int, int], settings: RecoverySettings) -> RepairShape:
    """Nothing happens by itself: for tests that say what happens."""
    base = Shape(
        seed=0,
        bookies=bookies,
        quorums=quorums,
        version=3,
        digest=DigestType.CRC32C,
        delay_change=False,
        explicit_lac_s=0.0,
        writers=0,
        entries=0,
        recoverers=0,
        readers=0,
        kinds=(),
        latency_s=0.0005,
        sync_factor=1.0,
    )
    return RepairShape(
        base=base,
        nodes=0,
        rounds=1,
        losses=quorums[2] - 1,
        pause_s=1.0,
        trouble_s=0.0,
        deleters=0,
        node_version=2,
        settings=settings,
    )


class RepairScenario(Scenario):
    """The clients of a run, and its auto recovery processes on machines a0, a1, …, which come back when they end."""

    def __init__(self, cluster: Cluster, shape: RepairShape, random: Random) -> None:
        super().__init__(cluster, shape.base, random)
        self.repair = shape
        self.recoveries: dict[str, AutoRecovery] = {}
        self.retired: set[str] = set()  # machines whose auto recovery does not come back
        self.promises = Promises(self, shape.settings.open_grace_s)
        self.queue = Underreplication(MemoryStore(cluster.metadata.tree), ROOT, SimClock(cluster.loop, 0))
        self._noted = cluster.noted
        cluster.noted = self._note  # type: ignore[method-assign]

    def _note(self, note: Callable[..., None], *arguments: Any) -> None:
        self._noted(note, *arguments)
        if note == self.history.confirmed:
            self.promises.confirmed(*arguments)

    def start(self) -> None:
        """Starts all clients."""
        self.over = False
        super().start()
        for number in range(self.repair.deleters):
            host = f"d{number}"
            self.cluster.run_client(host, self._own(self.delete, host), **self.settings)

    def start_nodes(self) -> None:
        """Starts auto recovery."""
        for number in range(self.repair.nodes):
            self.start_node(f"a{number}")

    def start_node(self, host: str) -> None:
        """Starts one process, if its machine has none."""
        machine = self.cluster.machine(host)
        if machine.running or host in self.retired:
            return
        process, world = machine.start()
        loop = self.cluster.loop
        process.on_end(lambda: loop.call_later(RESTART_S, self.start_node, host, context=OUTSIDE) and None)
        self.cluster.spawn(process, self._run_node(host, process, world), f"auto recovery {host}")

    async def _run_node(self, host: str, process: Process, world: World) -> None:
        try:
            settings = self.settings | {"version": self.repair.node_version}
            bookkeeper = await self.cluster.client(host, world, process, **settings)
            recovery = AutoRecovery(BookieId(f"{host}:1"), bookkeeper, self.repair.settings, URI)
            await recovery.prepare()
        except BkctlError as e:
            self.cluster.trace.add("no-start", host, type(e).__name__)
            process.kill()
            return
        self.recoveries[host] = recovery
        await recovery.run()

    async def delete(self, bookkeeper: BookKeeper, random: Random, _host: str) -> None:
        """Deletes closed ledgers at random."""
        while not self.over:
            await asyncio.sleep(random.random() * 4)
            closed = [i for i, e in self.history.ledgers.items() if e.metadata and e.metadata.closed and not e.deleted]
            if not closed:
                continue
            ledger_id = random.choice(closed)
            try:
                _, version = await bookkeeper.ledgers.read(ledger_id)
                await bookkeeper.ledgers.delete(ledger_id, version)
                self.cluster.trace.add("deleted", ledger_id)
            except BkctlError as e:
                self.cluster.trace.add("not-deleted", ledger_id, type(e).__name__)

    async def wait_repaired(self) -> None:
        """Until every promise is kept, and no lost bookie is registered.

        A writer may select a lost bookie until its session expires. Its ledger then has one copy less from the start,
        and may not survive the losses of the next round.
        """
        cluster, left = self.cluster, ""
        entries = self.repair.settings.verify_percentage == 100

        def kept() -> bool:
            nonlocal left
            left = self.promises.unfinished(entries=entries) or ", ".join(
                f"{host} is lost and registered" for host in cluster.gone if cluster.is_registered(host)
            )
            return not left

        if not await cluster.until(kept, REPAIR_S_MAX, 0.5):
            raise Violation(f"{left}, after {REPAIR_S_MAX:.0f} s of peace")
        cluster.trace.add("repaired")


class RepairNemesis(Nemesis):
    """Strikes at auto recovery too."""

    def __init__(self, scenario: RepairScenario, random: Random) -> None:
        shape = scenario.repair
        super().__init__(scenario.cluster, shape.kinds, random, shape.losses)
        self.scenario = scenario
        self.pause_s = shape.pause_s

    async def make_peace(self) -> None:
        """As ever; and auto recovery is on."""
        await self.scenario.queue.enable()
        for host in [h for h in self.cluster.machines if h.startswith("a")]:
            self.scenario.start_node(host)
        await super().make_peace()

    def _node(self) -> str:
        return self.random.choice([n for n in self.cluster.machines if n.startswith("a")])

    def _bookie(self) -> str:
        return self.random.choice([n for n in self.cluster.bookie_hosts if n not in self.cluster.gone])

    def _do(self, work: Any) -> None:
        self.cluster.loop.create_task(work, context=OUTSIDE.copy())

    def _flap_bookie(self) -> None:
        host = self._bookie()
        self.cluster.machines[host].kill()
        delay_s = self.scenario.repair.settings.lost_bookie_delay_s
        seconds = 10.0 + delay_s * self.random.choice((0.5, 2.0))  # it is missed when its session ends
        self.cluster.loop.call_later(seconds * self.random.uniform(0.8, 1.2), self.cluster.start_bookie, host)

    def _kill_node(self) -> None:
        self.cluster.machines[self._node()].kill()

    def _stop_node(self) -> None:
        machine = self.cluster.machines[self._node()]
        machine.stop()
        self._later(25.0, machine.go_on)

    def _cut_off_node(self) -> None:
        self.cluster.fabric.part(self._node(), self.random.choice((HOST, HOST, self._bookie())))
        self._later(25.0, self.cluster.fabric.heal)

    def _expire_node(self) -> None:
        host = self._node()
        for store in [s for s in self.cluster.metadata.sessions if s.host == host and s.process.alive]:
            store.expire()

    def _switch_off(self) -> None:
        self._do(self.scenario.queue.disable())
        self._later(16.0, lambda: self._do(self.scenario.queue.enable()))

    def _change_delay(self) -> None:
        self._do(self.scenario.queue.set_delay(self.random.choice((0, 1, 5))))

    def _trigger_audit(self) -> None:
        async def again() -> None:
            await self.scenario.queue.set_delay(await self.scenario.queue.delay_s() or 0)

        self._do(again())

    def _conflicts(self) -> None:
        self.cluster.metadata.conflict_chance = self.random.choice((0.1, 0.5))
        self._later(10.0, lambda: setattr(self.cluster.metadata, "conflict_chance", 0.0))


def simulate_repairs(seed: int, show: Callable[[str], None] | None = None) -> Outcome:
    """One whole run."""
    shape = repair_shape_of(seed)
    outcome = Outcome(seed, shape, "autorecovery")

    async def main(loop: SimLoop) -> None:
        trace = Trace(loop.time, show)
        random = Random(seed ^ 0xA0D17)
        cluster = Cluster(loop, random, trace)
        cluster.history = History(repairs=True)
        cluster.fabric.latency_s, cluster.sync_factor = shape.base.latency_s, shape.base.sync_factor
        scenario: RepairScenario | None = None
        try:
            await cluster.create(shape.base.bookies)
            scenario = RepairScenario(cluster, shape, random)
            await _whole(scenario, random)
            cluster.check()
        except Exception as e:  # noqa: BLE001 - whatever ends a run is its outcome
            outcome.broken = f"{type(e).__name__}: {e}"
            trace.add("broken", outcome.broken)
        outcome.digest, outcome.events, outcome.virtual_s = trace.digest, trace.count, loop.now
        outcome.lines = list(trace.lines)
        outcome.counts = _counts(scenario) if scenario is not None else {}

    try:
        run(main)
    except (Deadlock, Livelock) as e:
        outcome.broken = f"{type(e).__name__}: {e}"
    return outcome


def _counts(scenario: RepairScenario) -> dict[str, int]:
    ledgers = scenario.history.ledgers.values()
    return {
        "ledgers": len(ledgers),
        "appended": sum(len(ledger.payloads) for ledger in ledgers),
        "acked": sum(ledger.acked + 1 for ledger in ledgers),
        "lost bookies": len(scenario.cluster.gone),
        "moved": scenario.promises.moved,
        "fenced": scenario.promises.fenced,
    }


async def _whole(scenario: RepairScenario, random: Random) -> None:
    nemesis = RepairNemesis(scenario, Random(random.getrandbits(64)))
    scenario.start_nodes()
    for _ in range(scenario.repair.rounds):
        scenario.history.peace = False
        scenario.start()
        nemesis.losses_left = scenario.repair.losses
        await nemesis.rage(scenario.repair.trouble_s)
        scenario.over = True
        await nemesis.make_peace()
        await scenario.settle()
        await scenario.wait_repaired()
