"""Every step of an operation, one run each: it is killed there, or another begins there, or meets a conflict there.

A step is whatever a process does between two waits: each callback, each piece of a task between two awaits. The
operation is run once to count its steps; then once more for each of them, from the same beginning:

    kill        its process dies before step k (SIGKILL), and another one does the work from the start
    second      another one begins the same work before step k, and both go on
    conflict    somebody writes the node just before its k-th compare-and-set

Afterwards every promise must be kept: what was confirmed is there, and so are all copies; nothing is in the queue,
nothing is locked. Of steps between which the process has sent nothing, only the first is tried: from outside the others
look the same. `python -m tests.sim.steps` runs all of that, and with --every-step really every step.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from bkrecovery.job import MoveJob
from bkrecovery.ledger import recover_ledger
from bkrecovery.rereplicate import Replicator
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.errors import BkctlError
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType
from tests.sim.autorecovery import RepairScenario, calm_shape
from tests.sim.children import in_children
from tests.sim.cluster import Cluster
from tests.sim.history import History, LedgerHistory, Violation
from tests.sim.loop import OUTSIDE, Deadlock, Livelock, Process, SimLoop, run
from tests.sim.promises import bookie_id, host_of
from tests.sim.scenario import PASSWORD
from tests.sim.trace import Trace

BOOKIES: Final = 5
WORK_S_MAX: Final = 60.0
RETRY_S: Final = 0.5
SETTINGS: Final = RecoverySettings(
    verify_percentage=100, open_grace_s=0.5, failure_pause_s=8.0, ledger_check_s=3.0, password=PASSWORD
)
HOWS: Final = ("kill", "second", "conflict")


@dataclass(frozen=True)
class Case:
    """What is prepared, and who works.

    Attributes:
        lost: the bookie of this place in the ledger's last ensemble burns down before the work begins.
        closed: the ledger is closed; otherwise its last entries are on one bookie, and its writer is gone.
        ensembles: how many the ledger has.
        node: the work is done by an auto recovery process, not by a client.
    """

    name: str
    work: Callable[[RepairScenario, BookKeeper], Awaitable[None]] | None
    quorums: tuple[int, int, int] = (3, 3, 2)
    lost: int | None = None
    closed: bool = False
    ensembles: int = 1
    node: bool = False


@dataclass(frozen=True)
class Played:
    """How it went: steps and compare-and-sets of the first worker; broken is empty where every promise is kept.

    moments are the steps in front of which the worker has sent something since the one before.
    """

    steps: int
    moments: tuple[int, ...]
    compare_and_sets: int
    broken: str
    lines: tuple[str, ...] = ()


async def recover(scenario: RepairScenario, bookkeeper: BookKeeper) -> None:
    """Recovers the ledger."""
    await recover_ledger(bookkeeper, 0, PASSWORD)


async def move(scenario: RepairScenario, bookkeeper: BookKeeper) -> None:
    """Moves everything off the bookies that are lost."""
    bookies = frozenset(BookieId(bookie_id(host)) for host in scenario.cluster.gone)
    job = MoveJob(bookkeeper, bookies, Replicator(bookkeeper.context))
    results = await job.apply(await job.plan())
    errors = [result.error for result in results if result.error]
    if errors:
        raise BkctlError(errors[0])


CASES: Final = {
    case.name: case
    for case in (
        Case("recovery", recover),
        Case("recovery, wide", recover, quorums=(4, 3, 2), ensembles=2),
        Case("recovery without a bookie", recover, lost=1),
        Case("replication", None, lost=0, closed=True, ensembles=2, node=True),
        Case("replication, open ledger", None, lost=2, ensembles=2, node=True),
        Case("move", move, lost=0, closed=True, ensembles=2),
        Case("move, open ledger", move, lost=2),
    )
}


def play(case: Case, how: str = "", at: int = -1, show: Callable[[str], None] | None = None) -> Played:
    """One run; how and at as in the module's words, without them undisturbed."""
    played = Played(0, (), 0, "")

    async def main(loop: SimLoop) -> None:
        nonlocal played
        trace = Trace(loop.time, show)
        cluster = Cluster(loop, Random(case.name), trace)
        cluster.history = History(repairs=True)
        stage = Stage(cluster, case)
        broken = ""
        try:
            await stage.prepare()
            await stage.work(how, at)
            await stage.check()
        except Exception as e:  # noqa: BLE001 - whatever ends a run is its outcome
            broken = f"{type(e).__name__}: {e}"
        played = Played(stage.steps, stage.moments, stage.compare_and_sets, broken, tuple(trace.lines))

    try:
        run(main)
    except (Deadlock, Livelock) as e:
        return Played(played.steps, played.moments, played.compare_and_sets, f"{type(e).__name__}: {e}")
    return played


class Stage:
    """One cluster with one ledger, number 0."""

    def __init__(self, cluster: Cluster, case: Case) -> None:
        self.cluster = cluster
        self.case = case
        self.shape = calm_shape(BOOKIES, case.quorums, SETTINGS)
        self.steps = self.compare_and_sets = 0
        self.moments: tuple[int, ...] = ()
        self.scenario: RepairScenario

    async def prepare(self) -> None:
        """Writes the ledger; loses the writer and the bookie."""
        cluster = self.cluster
        await cluster.create(BOOKIES)
        self.scenario = RepairScenario(cluster, self.shape, Random(1))
        if self.case.node:  # everything an auditor does for the first time is behind us
            self.scenario.start_node("a9")
            await cluster.sleep(1.0)
            self.scenario.retired.add("a9")
            cluster.machines["a9"].kill()
            await cluster.until(lambda: not [s for s in cluster.metadata.sessions if s.host == "a9"])
        done: list[bool] = []

        async def write(bookkeeper: BookKeeper) -> None:
            await self._write(bookkeeper)
            done.append(True)

        cluster.run_client("w0", write, **self.scenario.settings)
        assert await cluster.until(lambda: bool(done), WORK_S_MAX)
        cluster.machines["w0"].power_off()
        await cluster.sleep(0.1)
        cluster.fabric.heal()
        if self.case.lost is not None:
            metadata = cluster.history.ledgers[0].metadata
            assert metadata is not None
            host = host_of(metadata.last_ensemble.bookies[self.case.lost])
            cluster.lose_for_ever(host)
            if not self.case.node:
                await cluster.until(lambda: not self._registered(host))

    def _registered(self, host: str) -> bool:
        return self.cluster.is_registered(host)

    async def _write(self, bookkeeper: BookKeeper) -> None:
        cluster, case, noted = self.cluster, self.case, self.cluster.noted
        writer = await bookkeeper.create(*case.quorums, DigestType.CRC32C, PASSWORD)
        history = cluster.history
        history.ledgers.setdefault(0, LedgerHistory())
        writer.on_confirmed(lambda last: noted(history.confirmed, 0, last))

        def append(count: int) -> None:
            first = writer.last_pushed + 1
            payloads = [b"entry %d of the ledger" % (first + i) for i in range(count)]
            noted(history.appended, 0, first, payloads)
            writer.append_many(payloads)

        append(4)
        await writer.flush()
        for _ in range(case.ensembles - 1):
            host = host_of(writer.metadata.last_ensemble.bookies[0])
            cluster.machines[host].kill()
            append(3)
            await writer.flush()
            cluster.start_bookie(host)
        if case.closed:
            await writer.close()
            return
        alone = writer.metadata.last_ensemble.bookies[:]
        for bookie in alone[1:]:
            cluster.fabric.part("w0", host_of(bookie))
        append(2)
        await asyncio.sleep(0.2)

    # -- the work -------------------------------------------------------------------------------------------------

    async def work(self, how: str, at: int) -> None:
        """Until the work is done, by one or the other."""
        cluster, case = self.cluster, self.case
        cluster.metadata.before_cas = lambda host, _path: self._conflicts(host, how, at)
        first = self._start("a0" if case.node else "o0")
        if how in ("kill", "second"):
            first.strike_at = at
            first.strike = lambda: self._strike(first, how)
        name = first.name.partition("#")[0]
        await cluster.until(lambda: self._over(name), WORK_S_MAX * 2, 0.02)
        first.strike_at = -1
        self.steps, self.moments = first.steps, tuple(first.moments)
        if not self._worked():
            raise Violation(f"done: not after {WORK_S_MAX * 2:.0f} s: {self.scenario.promises.unfinished()}")

    def _strike(self, first: Process, how: str) -> None:
        self.cluster.trace.add("strike", how, first.steps)
        if how == "kill":
            self.scenario.retired.add("a0")
            first.kill()
        other = "a1" if self.case.node else "o1"
        if not self.cluster.machine(other).running:
            self.cluster.loop.call_soon(self._start, other, context=OUTSIDE)

    def _start(self, host: str) -> Process:
        if self.case.node:
            self.scenario.start_node(host)
            process = self.cluster.machines[host].process
            assert process is not None
            return process
        work = self.case.work
        assert work is not None

        async def again(bookkeeper: BookKeeper) -> None:
            while True:
                try:
                    await work(self.scenario, bookkeeper)
                except BkctlError as e:
                    self.cluster.trace.add("again", host, type(e).__name__, e)
                    await asyncio.sleep(RETRY_S)
                else:
                    return

        return self.cluster.run_client(host, again, **self.scenario.settings)

    def _conflicts(self, host: str, how: str, at: int) -> bool:
        if host not in ("a0", "o0"):
            return False
        self.compare_and_sets += 1
        return how == "conflict" and self.compare_and_sets == at

    def _over(self, first: str) -> bool:
        """True once the work is done, and whoever works by hand has ended."""
        if self.case.node:
            return self._worked()
        hosts = [h for h in ("o0", "o1") if h in self.cluster.machines]
        return not any(self.cluster.machines[h].running for h in hosts)

    def _worked(self) -> bool:
        """True when the ledger is closed and names nobody who is lost."""
        metadata = self.cluster.history.ledgers[0].metadata
        assert metadata is not None
        named = {host_of(b) for e in metadata.ensembles for b in e.bookies}
        if self.case.work is recover:
            return metadata.closed
        return metadata.closed and named.isdisjoint(self.cluster.gone) and (not self.case.node or self._tidy())

    def _tidy(self) -> bool:
        return not self.scenario.promises.unfinished()

    async def check(self) -> None:
        """Everything is closed, read back, and, after auto recovery had its time, whole."""
        self.cluster.history.peace = True
        await self.scenario.settle()
        self.scenario.start_node("a1")
        await self.scenario.wait_repaired()
        self.cluster.check()


def runs_of(case: Case, hows: tuple[str, ...] = HOWS, *, every: bool = False) -> list[tuple[str, str, int]]:
    """(case, how, at) for everything that can be done to an undisturbed run."""
    calm = play(case)
    assert not calm.broken, f"{case.name}: {calm.broken}"
    steps = range(1, calm.steps + 1) if every else calm.moments
    places = {"kill": steps, "second": steps, "conflict": range(1, calm.compare_and_sets + 1)}
    return [(case.name, how, at) for how in hows for at in places[how]]


def play_run(run_: tuple[str, str, int]) -> tuple[tuple[str, str, int], str]:
    """One of them, and what it broke."""
    name, how, at = run_
    return run_, play(CASES[name], how, at).broken


def broken_runs(
    runs: list[tuple[str, str, int]],
    jobs: int,
    play_one: Callable[[tuple[str, str, int]], tuple[tuple[str, str, int], str]] = play_run,
) -> Iterator[tuple[tuple[str, str, int], str]]:
    """Those of the runs that break a promise."""
    return (found for found in in_children(play_one, runs, jobs, 8) if found[1])


def main() -> int:
    """1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.steps", description=__doc__)
    parser.add_argument("--case", choices=sorted(CASES), action="append")
    parser.add_argument("--how", choices=HOWS, action="append")
    parser.add_argument("--at", type=int, help="this step alone, told in full (with one --case and one --how)")
    parser.add_argument("--every-step", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.at is not None:
        logging.basicConfig(level=logging.DEBUG, format="        %(name)s %(message)s", stream=sys.stdout)
        played = play(CASES[arguments.case[0]], (arguments.how or [""])[0], arguments.at, print)
        print(f"BROKEN: {played.broken}" if played.broken else f"no promise is broken ({played.steps} steps)")
        return int(bool(played.broken))
    logging.disable(logging.CRITICAL)
    bad = 0
    for name in arguments.case or CASES:
        began = time.monotonic()
        runs = runs_of(CASES[name], tuple(arguments.how or HOWS), every=arguments.every_step)
        failed = list(broken_runs(runs, arguments.jobs))
        for (_, how, at), broken in failed:
            print(
                f"{name}: {how} at {at}: {broken}\n    python -m tests.sim.steps --case '{name}' --how {how} --at {at}"
            )
        counts = ", ".join(f"{sum(run_[1] == how for run_ in runs)} × {how}" for how in HOWS)
        print(f"{name}: {counts}: {len(failed)} broken, {time.monotonic() - began:.0f} s", flush=True)
        bad += len(failed)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
