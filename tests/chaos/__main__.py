"""python -m tests.chaos: kill -9 at random among Java's and our processes while writers go on; then the verdict.

One ZooKeeper, Java bookies and ours, Java's auto recovery and ours (both stand for election, both replicate), two
writers of ours, and now and then one of Java's. Killed at random: bookies (one or two down at a time, for shorter and
longer than a session lasts), both auto recoveries, the writers. At the end: everything is started again, open ledgers
are closed, and auto recovery gets its time. Exit code 0: no confirmed entry is lost, every entry is on each bookie of
its write set, the queue is empty and nothing is locked.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from random import Random

from tests.chaos.processes import SESSION_MS, Theatre
from tests.chaos.verdict import Verdict, judge
from tests.interop.java_cluster import JavaCluster

STROKE_S = (1.0, 5.0)
DOWN_S = (0.5, 3.0, 12.0)
"""How long a bookie stays away at most: sessions last SESSION_MS, the third is missed for sure."""
DOWN_MAX = 2
PATIENCE_S = 300.0


def main() -> int:
    """0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--java-bookies", type=int, default=3)
    parser.add_argument("--our-bookies", type=int, default=3)
    parser.add_argument("--broker", action="store_true", help="brokers under official clients; see broker.py")
    parser.add_argument("--brokers", type=int, default=3, help="how many, with --broker")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else Random().randrange(1 << 16)
    if arguments.broker:
        from tests.chaos.broker import broker_chaos  # needs pulsar-client

        found = broker_chaos(arguments.minutes * 60, seed, min(arguments.java_bookies, 1), 3, arguments.brokers)
        return 0 if found.good else 1
    verdict = chaos(arguments.minutes * 60, seed, arguments.java_bookies, arguments.our_bookies)
    return 0 if verdict.good else 1


def chaos(seconds: float, seed: int, java_bookies: int, our_bookies: int) -> Verdict:
    """One run, told on standard output."""
    random = Random(seed)
    print(f"chaos for {seconds:.0f} s, seed {seed}: {java_bookies} Java bookies, {our_bookies} of ours", flush=True)
    cluster = JavaCluster(java_bookies, "--set", f"zkTimeout={SESSION_MS}")
    theatre = Theatre(cluster, java_bookies, our_bookies, random)
    try:
        for name in [*theatre.bookies[java_bookies:], *theatre.recoveries, *theatre.writers]:
            theatre.start(name)
        theatre.wait_started()
        _rage(theatre, random, seconds)
        return _peace(theatre)
    finally:
        theatre.close()
        cluster.down()


def _rage(theatre: Theatre, random: Random, seconds: float) -> None:
    end = time.monotonic() + seconds
    back: dict[str, float] = {}
    next_java = time.monotonic()
    while time.monotonic() < end:
        time.sleep(min(random.uniform(*STROKE_S), max(end - time.monotonic(), 0.0)))
        now = time.monotonic()
        for name in [n for n, at in back.items() if at <= now]:
            del back[name]
            theatre.start(name)
        _revive(theatre, back)
        if now >= next_java and not theatre.starting("java writer"):
            theatre.write_with_java()
            next_java = now + 10.0
        name = random.choice([*theatre.bookies, *theatre.recoveries * 2, *theatre.writers])
        down = [n for n in theatre.bookies if n in back or theatre.starting(n)]
        if name in back or theatre.starting(name) or (name in theatre.bookies and len(down) >= DOWN_MAX):
            continue
        if theatre.kill(name):
            back[name] = now + random.random() * random.choice(DOWN_S)
            print(f"{now - end + seconds:6.1f} s  kill -9 {name}", flush=True)


def _revive(theatre: Theatre, back: dict[str, float]) -> None:
    """Starts what has ended by itself, as Java's auto recovery does when its session ends; it is told."""
    for name in [*theatre.bookies, *theatre.recoveries, *theatre.writers]:
        if name not in back and not theatre.starting(name) and theatre.process_id(name) is None:
            theatre.alone[name] = theatre.alone.get(name, 0) + 1
            theatre.start(name)


def _peace(theatre: Theatre) -> Verdict:
    began = time.monotonic()
    theatre.wait_started()
    theatre.stop_writers()
    for name in [*theatre.bookies, *theatre.recoveries]:
        if theatre.process_id(name) is None:
            theatre.start(name)
    theatre.wait_started()
    confirmed = theatre.confirmed
    verdict = asyncio.run(judge(theatre.cluster.uri, dict(confirmed.acked), PATIENCE_S))
    print(f"killed: {_table(theatre.killed)}; ended by themselves: {_table(theatre.alone) or 'none'}")
    print(f"ledgers: {_table(confirmed.ends)}, killed with their writer or at the end: the others of {verdict.ledgers}")
    print(f"{verdict.ledgers} ledgers, {verdict.recovered} of them closed by recovery at the end")
    print(f"{verdict.acked} entries confirmed, {verdict.entries} read back")
    print(f"peace took {time.monotonic() - began:.0f} s")
    for line in (*verdict.lost[:20], *verdict.unfinished[:20]):
        print(f"BROKEN: {line}")
    print(f"verdict: {'every promise is kept: 0 confirmed entries lost' if verdict.good else 'BROKEN'}", flush=True)
    return verdict


def _table(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
