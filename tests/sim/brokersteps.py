"""Every step of a broker that owns a topic: it is killed there, deposed there, frozen there, contradicted there.

A broker opens a topic, takes messages over several ledgers, delivers them and stores acknowledgements; its run has a
few hundred steps between two waits. The run is carried out once to count them; then once more for each:

    kill        its process dies before step k; clients go to another broker
    second      clients go to another broker at step k; the first goes on, with who does not notice, and is not told
    freeze      it is frozen before step k until the other has taken the topic, and then goes on
    conflict    somebody writes the node just before its k-th compare-and-set

and every rule of brokerlog.py must hold, as in runs from a seed. Of steps between which the process has sent nothing,
only the first is tried: from outside the others look the same. `python -m tests.sim.brokersteps` runs all of that.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from bkctl.codec.pulsar import SubscriptionType
from tests.sim import steps
from tests.sim.broker import BrokerScenario, BrokerShape, begin
from tests.sim.brokerlog import LogHistory
from tests.sim.cluster import Cluster
from tests.sim.history import Violation
from tests.sim.loop import Deadlock, Livelock, Process, SimLoop, run
from tests.sim.trace import Trace

HOWS: Final = ("kill", "second", "freeze", "conflict")
MESSAGES: Final = 12
WORK_S_MAX: Final = 60.0
FROZEN_S: Final = 1.5
SHAPES: Final = {
    "exclusive, once": ((SubscriptionType.EXCLUSIVE,), True),
    "key-shared and failover": ((SubscriptionType.KEY_SHARED, SubscriptionType.FAILOVER), False),
    "shared, once": ((SubscriptionType.SHARED,), True),
}
"""Subscriptions, and whether there is deduplication."""


@dataclass(frozen=True)
class Played:
    """How it went; moments are the steps in front of which the broker has sent something since the one before."""

    moments: tuple[int, ...]
    compare_and_sets: int
    takeovers: int
    broken: str


def play(case: str, how: str = "", at: int = -1, show: Callable[[str], None] | None = None) -> Played:
    """One run; how and at as in the module's words, without them undisturbed."""
    played = Played((), 0, 0, "")

    async def main(loop: SimLoop) -> None:
        nonlocal played
        cluster = Cluster(loop, Random(case), Trace(loop.time, show))
        cluster.history = LogHistory(repairs=True)
        work = _Work(BrokerScenario(cluster, _shape(case), Random(case)), how, at)
        broken = ""
        try:
            await work.whole()
            cluster.check()
        except Exception as e:  # noqa: BLE001 - whatever ends a run is its outcome
            broken = f"{type(e).__name__}: {e}"
        played = Played(work.moments, work.compare_and_sets, work.scenario.log.takeovers, broken)

    try:
        run(main)
    except (Deadlock, Livelock) as e:
        return Played(played.moments, played.compare_and_sets, 0, f"{type(e).__name__}: {e}")
    return played


def _shape(case: str) -> BrokerShape:
    kinds, once = SHAPES[case]
    return BrokerShape(
        seed=0,
        bookies=3,
        brokers=2,
        quorums=(2, 2, 2),
        leases=False,
        once=once,
        snapshot_entries=3,
        groups=tuple((f"s{n}", kind, 1 if kind == SubscriptionType.EXCLUSIVE else 2) for n, kind in enumerate(kinds)),
        producers=1,
        messages=MESSAGES,
        keys=2,
        entries_max=4,
        mark_delete_rate=0.0,
        cache_small=False,
        kinds=(),
        latency_s=0.0005,
        sync_factor=1.0,
    )


class _Work:
    """One run: k0 serves, k1 is there to take over."""

    def __init__(self, scenario: BrokerScenario, how: str, at: int) -> None:
        self.scenario = scenario
        self.how = how
        self.at = at
        self.moments: tuple[int, ...] = ()
        self.compare_and_sets = 0

    async def whole(self) -> None:
        """Disturbed work, then peace and the promises."""
        scenario, cluster = self.scenario, self.scenario.cluster
        cluster.metadata.before_cas = lambda host, _path: self._conflicts(host)
        await begin(scenario, before_clients=self._watch)
        first = self._first
        producer = scenario.clients["p0"]
        await cluster.until(lambda: producer.done and not scenario.log.undelivered(), WORK_S_MAX, 0.02)
        first.strike_at = -1
        self.moments = tuple(first.moments)
        machine = cluster.machine("k0")
        machine.go_on()
        await cluster.sleep(FROZEN_S)
        if not producer.done:
            raise Violation(f"alive: {producer.confirmed} of {MESSAGES} confirmed after {WORK_S_MAX:.0f} s")  # type: ignore[attr-defined]
        cluster.fabric.heal()
        await scenario.settle()

    def _watch(self) -> None:
        """The brokers are there, and nobody uses the topic yet: from here on steps are counted."""
        process = self.scenario.cluster.machine("k0").process
        assert process is not None
        self._first: Process = process
        process.moments.clear()
        if self.how in ("kill", "second", "freeze"):
            process.strike_at = self.at
            process.strike = self._strike

    def _strike(self) -> None:
        scenario, cluster = self.scenario, self.scenario.cluster
        cluster.trace.add("strike", self.how, self._first.steps)
        scenario.home = "k1"
        if self.how == "kill":
            self._first.kill()
            return
        for number, client in enumerate(scenario.clients.values()):
            if client.link is not None and (self.how == "freeze" or number % 2 == self.at % 2):
                client.link.cut()
        if self.how == "freeze":
            cluster.machine("k0").stop()
            cluster.loop.call_later(FROZEN_S, cluster.machine("k0").go_on)

    def _conflicts(self, host: str) -> bool:
        if host != "k0":
            return False
        self.compare_and_sets += 1
        return self.how == "conflict" and self.compare_and_sets == self.at


def runs_of(case: str, hows: tuple[str, ...] = HOWS) -> list[tuple[str, str, int]]:
    """(case, how, at) for everything that can be done to an undisturbed run."""
    calm = play(case)
    assert not calm.broken, f"{case}: {calm.broken}"
    return [
        (case, how, at)
        for how in hows
        for at in (range(1, calm.compare_and_sets + 1) if how == "conflict" else calm.moments)
    ]


def play_run(run_: tuple[str, str, int]) -> tuple[tuple[str, str, int], str]:
    """One of them, and what it broke."""
    case, how, at = run_
    return run_, play(case, how, at).broken


def broken_runs(runs: list[tuple[str, str, int]], jobs: int) -> Iterator[tuple[tuple[str, str, int], str]]:
    """Those of the runs that break a promise."""
    return steps.broken_runs(runs, jobs, play_run)


def main() -> int:
    """1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.brokersteps", description=__doc__)
    parser.add_argument("--case", choices=sorted(SHAPES), action="append")
    parser.add_argument("--how", choices=HOWS, action="append")
    parser.add_argument("--at", type=int, help="this step alone, told in full (with one --case and one --how)")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.at is not None:
        logging.basicConfig(level=logging.DEBUG, format="        %(name)s %(message)s", stream=sys.stdout)
        played = play(arguments.case[0], (arguments.how or [""])[0], arguments.at, print)
        print(f"BROKEN: {played.broken}" if played.broken else "no promise is broken")
        return int(bool(played.broken))
    logging.disable(logging.CRITICAL)
    bad = 0
    for case in arguments.case or SHAPES:
        began = time.monotonic()
        runs = runs_of(case, tuple(arguments.how or HOWS))
        failed = list(broken_runs(runs, arguments.jobs))
        for (_, how, at), broken in failed:
            print(f"{how} {at}: {broken}\n    python -m tests.sim.brokersteps --case '{case}' --how {how} --at {at}")
        counts = ", ".join(f"{sum(run_[1] == how for run_ in runs)} × {how}" for how in HOWS)
        print(f"{case}: {counts}: {len(failed)} broken, {time.monotonic() - began:.0f} s", flush=True)
        bad += len(failed)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
