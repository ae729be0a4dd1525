"""One run: a cluster, clients that write, read and recover, and a nemesis; all of it drawn from a seed.

    1  the shape      bookies, quorums, protocol version, digest, and which kinds of trouble there will be
    2  trouble        writers write, recoverers take ledgers from them, readers follow; the nemesis does what it may
    3  peace          everything heals, bookies come back; each ledger must be closed, and be read back whole

What the nemesis does is what the cluster promises to survive: any crash and power cut, any delay and loss, and, for
ever, no more than Qa - 1 bookies, and none that is needed for a whole ensemble. So whatever a checker finds is a bug.
A drive that lies about a sync breaks the promise for the ledgers on its bookie; then only the other ledgers are held
to the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bkrecovery.fence import fence_ledger
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.client.writer import LedgerWriter
from bkctl.errors import BkctlError
from bkctl.model.ledger import DigestType, LedgerState
from bkctl.model.placement import write_set
from tests.sim.cluster import Cluster
from tests.sim.history import History, LedgerHistory, Violation
from tests.sim.loop import Deadlock, Livelock, SimLoop, run
from tests.sim.metadata import LATE_S_MAX
from tests.sim.nemesis import KINDS, Nemesis
from tests.sim.trace import Trace

TROUBLE_S: Final = 14.0
PEACE_S_MAX: Final = 400.0
CLIENTS_END_S: Final = 30.0
QUORUMS: Final = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (3, 3, 3), (2, 2, 1), (3, 2, 1))
PASSWORD: Final = b"secret"


@dataclass(frozen=True)
class Shape:
    """What a seed decides before anything happens."""

    seed: int
    bookies: int
    quorums: tuple[int, int, int]
    version: int
    digest: DigestType
    delay_change: bool
    explicit_lac_s: float
    writers: int
    entries: int
    recoverers: int
    readers: int
    kinds: tuple[str, ...]
    latency_s: float
    sync_factor: float


@dataclass
class Outcome:
    """How a run ended."""

    seed: int
    shape: Any
    scenario: str = "clients"
    digest: str = ""
    events: int = 0
    virtual_s: float = 0.0
    broken: str = ""
    lines: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def shape_of(seed: int) -> Shape:
    """Draws the shape of a run."""
    random = Random(seed)
    ensemble_size, write_quorum_size, ack_quorum_size = random.choice(QUORUMS)
    kinds = tuple(kind for kind in KINDS if random.random() < KINDS[kind])
    return Shape(
        seed=seed,
        bookies=ensemble_size + random.choice((0, 1, 1, 2)),
        quorums=(ensemble_size, write_quorum_size, ack_quorum_size),
        version=random.choice((2, 3)),
        digest=random.choice(list(DigestType)[:3]),
        delay_change=random.random() < 0.2,
        explicit_lac_s=random.choice((0.0, 0.0, 0.5)),
        writers=random.choice((1, 2, 3)),
        entries=random.choice((5, 20, 60)),
        recoverers=random.choice((0, 1, 1, 2)),
        readers=random.choice((0, 1, 2)),
        kinds=kinds,
        latency_s=random.choice((0.0003, 0.001, 0.01)),
        sync_factor=random.choice((1.0, 1.0, 20.0, 200.0)),
    )


class Scenario:
    """The clients of a run."""

    def __init__(self, cluster: Cluster, shape: Shape, random: Random) -> None:
        self.cluster = cluster
        self.shape = shape
        self.random = random
        self.history: History = cluster.history
        self.over = False
        self.writing = cluster.writing
        self.settings = {
            "version": shape.version,
            "add_timeout_s": 2.0,
            "read_timeout_s": 2.0,
            "speculative_read_s": 0.5,
            "quarantine_s": 10.0,
            "delay_ensemble_change": shape.delay_change,
            "explicit_lac_s": shape.explicit_lac_s,
        }

    def start(self) -> None:
        """Starts all clients, each on a machine of its own."""
        shape = self.shape
        for name, count, work in (
            ("w", shape.writers, self.write),
            ("r", shape.recoverers, self.recover),
            ("x", shape.readers, self.follow),
        ):
            for number in range(count):
                host = f"{name}{number}"
                self.cluster.run_client(host, self._own(work, host), **self.settings)

    def _own(self, work: Callable[..., object], host: str) -> Callable[[BookKeeper], object]:
        random = Random(self.random.getrandbits(64))
        return lambda bookkeeper: work(bookkeeper, random, host)

    # -- writing --------------------------------------------------------------------------------------------------

    async def write(self, bookkeeper: BookKeeper, random: Random, host: str) -> None:
        """Writes one ledger after another until there is peace."""
        while not self.over:
            try:
                writer = await bookkeeper.create(*self.shape.quorums, self.shape.digest, PASSWORD)
            except BkctlError as e:
                self.cluster.trace.add("no-ledger", type(e).__name__)
                await asyncio.sleep(random.random())
                continue
            self.writing[writer.ledger_id] = host
            try:
                await self._write_one(writer, random)
            except BkctlError as e:
                self.cluster.trace.add("writer-ends", writer.ledger_id, type(e).__name__)
                writer.abandon()
            del self.writing[writer.ledger_id]
            await asyncio.sleep(random.random())

    async def _write_one(self, writer: LedgerWriter, random: Random) -> None:
        ledger_id, noted = writer.ledger_id, self.cluster.noted
        self.cluster.trace.add("created", ledger_id)
        self.history.ledgers.setdefault(ledger_id, LedgerHistory())

        def confirmed(last_confirmed: int) -> None:
            self.cluster.trace.add("confirmed", ledger_id, last_confirmed)
            before = self.history.ledgers[ledger_id].acked
            noted(self.history.confirmed, ledger_id, last_confirmed)
            for entry_id in {before + 1, last_confirmed}:
                noted(self._check_acked, ledger_id, entry_id)

        writer.on_confirmed(confirmed)
        left = random.randrange(self.shape.entries + 1)
        if random.random() < 0.15:
            await asyncio.sleep(3 * random.random())  # a ledger that is empty for a while
        while left > 0:
            await writer.ready()
            payloads = [_payload(random, ledger_id) for _ in range(min(left, random.choice((1, 1, 5, 20))))]
            first = writer.last_pushed + 1
            noted(self.history.appended, ledger_id, first, payloads)  # first: an answer may come within the call
            writer.append_many(payloads)
            left -= len(payloads)
            if random.random() < 0.3:
                await writer.flush()
            await asyncio.sleep(random.choice((0.0, 0.01, 0.3, 1.5, 4.0)) * random.random())
        end = random.random()
        if end < 0.6:
            await writer.close()
            self.cluster.trace.add("closed", ledger_id)
        elif end < 0.8:
            writer.abandon()
        else:
            await writer.flush()
            await asyncio.sleep(5 * random.random())

    # -- recovering -----------------------------------------------------------------------------------------------

    async def recover(self, bookkeeper: BookKeeper, random: Random, _host: str) -> None:
        """Recovers, or only fences, ledgers at random."""
        while not self.over:
            for _ in range(random.randrange(60)):
                await asyncio.sleep(0.05)
                if self.cluster.recover_newest:
                    break
            if not self.history.ledgers:
                continue
            newest = sorted(self.history.ledgers)[-4:]
            ledger_id = newest[-1] if self.cluster.recover_newest else random.choice(newest)
            if self.cluster.recover_newest and self.cluster.recover_next is not None:
                ledger_id = self.cluster.recover_next
            self.cluster.recover_newest, self.cluster.recover_next = False, None
            try:
                if random.random() < 0.15:
                    await fence_ledger(bookkeeper, ledger_id, PASSWORD)
                    self.cluster.trace.add("fenced", ledger_id)
                else:
                    report = await recover_ledger(bookkeeper, ledger_id, PASSWORD)
                    self.cluster.trace.add("recovered", ledger_id, report.last_entry_id, report.closed_by_us)
            except BkctlError as e:
                self.cluster.trace.add("not-recovered", ledger_id, type(e).__name__)

    # -- reading --------------------------------------------------------------------------------------------------

    async def follow(self, bookkeeper: BookKeeper, random: Random, _host: str) -> None:
        """Opens ledgers as they are and reads them, again and again."""
        while not self.over:
            await asyncio.sleep(random.random())
            if not self.history.ledgers:
                continue
            ledger_id = random.choice(sorted(self.history.ledgers)[-4:])
            try:
                if random.random() < 0.3:
                    await self._tail_one(bookkeeper, ledger_id, 0.5 + 5 * random.random())
                else:
                    await self._follow_one(bookkeeper, ledger_id, random)
            except BkctlError as e:
                self.cluster.trace.add("not-read", ledger_id, type(e).__name__)

    async def _follow_one(self, bookkeeper: BookKeeper, ledger_id: int, random: Random) -> None:
        reader = await bookkeeper.open(ledger_id, PASSWORD)
        before, next_entry = -1, 0
        for _ in range(random.randrange(1, 4)):
            self.cluster.noted(self.history.saw, ledger_id, reader.last_confirmed, before)
            before = reader.last_confirmed
            if before >= next_entry:
                async for entries in reader.read(next_entry, before):
                    for entry in entries:
                        self.cluster.noted(self.history.read, ledger_id, entry.entry_id, entry.payload)
                next_entry = before + 1
            await asyncio.sleep(random.random())
            await reader.refresh()
        self.cluster.trace.add("read", ledger_id, before)

    async def _tail_one(self, bookkeeper: BookKeeper, ledger_id: int, seconds: float) -> None:
        reader = await bookkeeper.open(ledger_id, PASSWORD)
        next_entry = 0
        try:
            async with asyncio.timeout(seconds), aclosing(reader.tail()) as tail:
                async for entries in tail:
                    for entry in entries:
                        if entry.entry_id != next_entry:
                            raise Violation(f"payload: ledger {ledger_id}: {entry.entry_id} after {next_entry - 1}")
                        self.cluster.noted(self.history.read, ledger_id, next_entry, entry.payload)
                        next_entry += 1
                    self.cluster.noted(self.history.saw, ledger_id, next_entry - 1, -1)
        except TimeoutError:
            pass
        self.cluster.trace.add("tailed", ledger_id, next_entry - 1)

    # -- peace ----------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Lets clients finish, closes whatever is open and reads everything back, on a fresh client."""
        cluster = self.cluster
        clients = [machine for name, machine in cluster.machines.items() if name[0] in "wrx"]
        if self.random.random() < 0.7:
            await cluster.until(lambda: not any(machine.running for machine in clients), CLIENTS_END_S)
        for machine in clients:
            machine.kill()
        await cluster.sleep(LATE_S_MAX)  # what they asked of the store may still arrive
        self.history.peace = True  # from here on no recovery has asked for a length while bookies could be down
        finished: list[int] = []

        async def work(bookkeeper: BookKeeper) -> None:
            for ledger_id in sorted(self.history.ledgers):
                if self.history.ledgers[ledger_id].metadata is None or self.history.ledgers[ledger_id].deleted:
                    continue
                await self._settle_one(bookkeeper, ledger_id)
                finished.append(ledger_id)

        process = cluster.run_client("z0", work, **self.settings)
        await cluster.until(lambda: not process.alive, PEACE_S_MAX, 0.5)
        there = [i for i, ledger in self.history.ledgers.items() if ledger.metadata and not ledger.deleted]
        missing = [i for i in there if i not in finished]
        if missing:
            raise Violation(
                f"states: ledgers {missing} are not closed and read back after {PEACE_S_MAX:.0f} s of peace"
            )

    async def _settle_one(self, bookkeeper: BookKeeper, ledger_id: int) -> None:
        history, cluster = self.history, self.cluster
        excused = history.excused(ledger_id)
        while True:
            try:
                await recover_ledger(bookkeeper, ledger_id, PASSWORD)
                reader = await bookkeeper.open(ledger_id, PASSWORD)
                count = 0
                async for entries in reader.read():
                    for entry in entries:
                        cluster.noted(history.read, ledger_id, entry.entry_id, entry.payload)
                        count += 1
                break
            except BkctlError as e:
                cluster.trace.add("not-settled", ledger_id, type(e).__name__)
                if excused or history.ledgers[ledger_id].deleted:
                    return
                await asyncio.sleep(1.0)
        if not excused:
            cluster.noted(history.check_closed, ledger_id)
            cluster.noted(self._check_copies, ledger_id, count)

    def _check_acked(self, ledger_id: int, entry_id: int) -> None:
        """An entry of which its writer hears now that it is confirmed is on Qa bookies, or on such as are down."""
        metadata, cluster = self.history.ledgers[ledger_id].metadata, self.cluster
        if metadata is None or metadata.state is not LedgerState.OPEN or self.history.excused(ledger_id):
            return  # recovery may be changing the ensemble
        bookies = metadata.ensemble_of(entry_id).bookies
        sizes = metadata.ensemble_size, metadata.write_quorum_size
        hosts = [bookies[index].partition(":")[0] for index in write_set(entry_id, *sizes)]
        running = [host for host in hosts if host in cluster.services and cluster.machines[host].running]
        copies = sum(cluster.copies(host, ledger_id, entry_id) is not None for host in running)
        if copies + len(hosts) - len(running) < metadata.ack_quorum_size:
            raise Violation(f"copies: ledger {ledger_id}: confirmed entry {entry_id} is on {copies} of {hosts}")

    def _check_copies(self, ledger_id: int, count: int) -> None:
        metadata = self.history.ledgers[ledger_id].metadata
        assert metadata is not None
        if count != metadata.last_entry_id + 1:
            raise Violation(f"acked: ledger {ledger_id}: {count} entries read, closed at {metadata.last_entry_id}")
        cluster = self.cluster
        for entry_id in range(metadata.last_entry_id + 1):
            hosts = [bookie.partition(":")[0] for bookie in metadata.ensemble_of(entry_id).bookies]
            maybe = sum(host in cluster.gone or host not in cluster.services for host in hosts)
            running = [host for host in hosts if host in cluster.services and cluster.machines[host].running]
            copies = sum(cluster.copies(host, ledger_id, entry_id) is not None for host in running)
            if copies + maybe < metadata.ack_quorum_size:
                raise Violation(f"copies: ledger {ledger_id}: entry {entry_id} is on {copies} of {', '.join(hosts)}")


def _payload(random: Random, ledger_id: int) -> bytes:
    size = random.choice((0, 1, 10, 100, 100, 1000, 20_000))
    return random.randbytes(8)[: size or 8] * max(1, size // 8) + b"%d" % ledger_id


def simulate(seed: int, show: Callable[[str], None] | None = None) -> Outcome:
    """One whole run."""
    shape = shape_of(seed)
    outcome = Outcome(seed, shape)

    async def main(loop: SimLoop) -> None:
        trace = Trace(loop.time, show)
        random = Random(seed ^ 0x5EED)
        cluster = Cluster(loop, random, trace)
        cluster.fabric.latency_s, cluster.sync_factor = shape.latency_s, shape.sync_factor
        try:
            await _whole(cluster, shape, random)
            cluster.check()
        except Exception as e:  # noqa: BLE001 - whatever ends a run is its outcome
            outcome.broken = f"{type(e).__name__}: {e}"
            trace.add("broken", outcome.broken)
        outcome.digest, outcome.events, outcome.virtual_s = trace.digest, trace.count, loop.now
        outcome.lines = list(trace.lines)
        ledgers = cluster.history.ledgers.values()
        outcome.counts = {
            "ledgers": len(ledgers),
            "appended": sum(len(ledger.payloads) for ledger in ledgers),
            "acked": sum(ledger.acked + 1 for ledger in ledgers),
        }

    try:
        run(main)
    except (Deadlock, Livelock) as e:
        outcome.broken = f"{type(e).__name__}: {e}"
    return outcome


async def _whole(cluster: Cluster, shape: Shape, random: Random) -> None:
    await cluster.create(shape.bookies)
    scenario = Scenario(cluster, shape, random)
    scenario.start()
    spare = shape.bookies - shape.quorums[0]  # recovery writes back to whole ensembles
    losses_max = min(shape.quorums[2] - 1, spare)
    nemesis = Nemesis(cluster, shape.kinds, Random(random.getrandbits(64)), losses_max)
    await nemesis.rage(TROUBLE_S)
    scenario.over = True
    await nemesis.make_peace()
    await scenario.settle()
