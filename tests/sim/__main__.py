"""python -m tests.sim: runs seeds, and tells which broke a rule and how to run it again."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from tests.sim.autorecovery import simulate_repairs
from tests.sim.broker import simulate_brokers
from tests.sim.brokerfeaturemutations import FEATURE_MUTATIONS
from tests.sim.brokerfeatures import FEATURES
from tests.sim.brokermutations import BROKER_MUTATIONS
from tests.sim.children import in_children
from tests.sim.mutations import MUTATIONS as OTHER_MUTATIONS
from tests.sim.scenario import Outcome, simulate

Run: TypeAlias = tuple[str, int]
SCENARIOS: Final[dict[str, Callable[..., Outcome]]] = {
    "clients": simulate,
    "autorecovery": simulate_repairs,
    "broker": simulate_brokers,
    **{f"broker-{feature}": functools.partial(simulate_brokers, feature=feature) for feature in FEATURES},
}

LINES_SHOWN = 60
MUTATIONS: Final = OTHER_MUTATIONS | BROKER_MUTATIONS | FEATURE_MUTATIONS
EACH_SCENARIO: Final = {"all": tuple(SCENARIOS)} | {name: (name,) for name in SCENARIOS}


def main() -> int:
    """1 if a seed broke a rule (with --mutation: if none did)."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--scenario", choices=sorted(EACH_SCENARIO), help="default: all; with --seed: clients")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="every event, and the log of the code under test")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="break the code first; stop at the first catch")
    arguments = parser.parse_args()
    if not arguments.verbose:
        logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        scenario = arguments.scenario or "clients"
        return _one(scenario, arguments.seed, arguments.mutation, verbose=arguments.verbose)
    runs = runs_of(range(arguments.first, arguments.first + arguments.seeds), arguments.scenario or "all")
    return _caught(runs, arguments.mutation) if arguments.mutation else _many(runs, arguments.jobs)


def runs_of(seeds: Iterable[int], scenario: str = "clients") -> list[Run]:
    """(scenario, seed) for each seed, and for "all" of each scenario."""
    return [(name, seed) for seed in seeds for name in EACH_SCENARIO[scenario]]


def run_one(run: Run) -> Outcome:
    """One run."""
    return SCENARIOS[run[0]](run[1])


def _one(scenario: str, seed: int, mutation: str | None, *, verbose: bool) -> int:
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="        %(name)s %(message)s", stream=sys.stdout)
    with _broken(mutation):
        outcome = SCENARIOS[scenario](seed, print if verbose else None)
    if outcome.broken and not verbose:
        print(*outcome.lines[-LINES_SHOWN:], sep="\n")
    print(outcome.shape)
    print(f"seed {seed}: {outcome.events} events in {outcome.virtual_s:.1f} virtual s, trace {outcome.digest}")
    print(f"BROKEN: {outcome.broken}" if outcome.broken else f"no rule is broken: {outcome.counts}")
    return int(bool(outcome.broken))


def _many(runs: list[Run], jobs: int) -> int:
    began, failed, events, count = time.monotonic(), 0, 0, 0
    totals: Counter[str] = Counter()
    for outcome in run_seeds(runs, jobs):
        count += 1
        events += outcome.events
        totals.update(outcome.counts)
        if outcome.broken:
            failed += 1
            print(f"seed {outcome.seed}: {outcome.broken}\n    {replay(outcome)}", flush=True)
        if count % 500 == 0:
            print(f"{count} runs, {failed} broken, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    spent = time.monotonic() - began
    done = ", ".join(f"{totals[name]:,} {name}" for name in totals)
    print(f"{count} runs, {events:,} events, {done}; {spent:.0f} s: {failed} broken")
    return int(bool(failed))


def _caught(runs: Iterable[Run], mutation: str) -> int:
    outcome = first_caught(mutation, runs)
    if outcome is None:
        print(f"{mutation} was not caught")
        return 1
    print(f"{mutation} is caught by seed {outcome.seed}: {outcome.broken}\n    {replay(outcome, mutation)}")
    return 0


def first_caught(mutation: str, runs: Iterable[Run]) -> Outcome | None:
    """The first run that shows the break."""
    with _broken(mutation):
        return next((outcome for outcome in map(run_one, runs) if outcome.broken), None)


def run_seeds(runs: Iterable[Run], jobs: int) -> Iterator[Outcome]:
    """Carries runs out in `jobs` processes; outcomes come in their order."""
    return in_children(run_one, runs, jobs, 4)


def replay(outcome: Outcome, mutation: str | None = None) -> str:
    """The command that shows a run again."""
    command = f"python -m tests.sim --scenario {outcome.scenario} --seed {outcome.seed} --verbose"
    return command + (f" --mutation {mutation}" if mutation else "")


def _broken(mutation: str | None) -> contextlib.AbstractContextManager[None]:
    return MUTATIONS[mutation]() if mutation else contextlib.nullcontext()


if __name__ == "__main__":
    sys.exit(main())
