"""python -m tests.sim: runs seeds, and tells which broke a rule and how to run it again."""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator

from tests.sim.mutations import MUTATIONS
from tests.sim.scenario import Outcome, simulate

LINES_SHOWN = 60


def main() -> int:
    """1 if a seed broke a rule (with --mutation: if none did)."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="every event, and the log of the code under test")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="break the code first; stop at the first catch")
    arguments = parser.parse_args()
    if not arguments.verbose:
        logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.mutation, verbose=arguments.verbose)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return _caught(seeds, arguments.mutation) if arguments.mutation else _many(seeds, arguments.jobs)


def _one(seed: int, mutation: str | None, *, verbose: bool) -> int:
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="        %(name)s %(message)s", stream=sys.stdout)
    with _broken(mutation):
        outcome = simulate(seed, print if verbose else None)
    if outcome.broken and not verbose:
        print(*outcome.lines[-LINES_SHOWN:], sep="\n")
    print(outcome.shape)
    print(f"seed {seed}: {outcome.events} events in {outcome.virtual_s:.1f} virtual s, trace {outcome.digest}")
    print(f"BROKEN: {outcome.broken}" if outcome.broken else f"no rule is broken: {outcome.counts}")
    return int(bool(outcome.broken))


def _many(seeds: Iterable[int], jobs: int) -> int:
    began, failed, events, acked, count = time.monotonic(), [], 0, 0, 0
    for outcome in run_seeds(seeds, jobs):
        count += 1
        events += outcome.events
        acked += outcome.counts.get("acked", 0)
        if outcome.broken:
            failed.append(outcome.seed)
            print(f"seed {outcome.seed}: {outcome.broken}\n    {replay(outcome.seed)}", flush=True)
        if count % 500 == 0:
            print(f"{count} seeds, {len(failed)} broken, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    spent = time.monotonic() - began
    print(f"{count} seeds, {events:,} events, {acked:,} entries confirmed, {spent:.0f} s: {len(failed)} broken")
    return int(bool(failed))


def _caught(seeds: Iterable[int], mutation: str) -> int:
    outcome = first_caught(mutation, seeds)
    if outcome is None:
        print(f"{mutation} was not caught")
        return 1
    print(f"{mutation} is caught by seed {outcome.seed}: {outcome.broken}\n    {replay(outcome.seed, mutation)}")
    return 0


def first_caught(mutation: str, seeds: Iterable[int]) -> Outcome | None:
    """The first seed that shows the break."""
    with _broken(mutation):
        return next((outcome for outcome in map(simulate, seeds) if outcome.broken), None)


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Runs seeds in `jobs` processes; outcomes come in the order of the seeds."""
    if jobs <= 1:
        yield from map(simulate, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(simulate, seeds, chunksize=2)


def replay(seed: int, mutation: str | None = None) -> str:
    """The command that shows a run again."""
    return f"python -m tests.sim --seed {seed} --verbose" + (f" --mutation {mutation}" if mutation else "")


def _broken(mutation: str | None) -> contextlib.AbstractContextManager[None]:
    return MUTATIONS[mutation]() if mutation else contextlib.nullcontext()


if __name__ == "__main__":
    sys.exit(main())
