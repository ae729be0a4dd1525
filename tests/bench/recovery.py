"""How fast recovery is, ours beside Java's, row by row: `python -m tests.bench.recovery [--rows …]`.

    auto recovery    a bookie is killed; its payload by the time from the first mark in the queue until that is empty;
                     one process with default settings
    by hand          another is killed; its payload by the time of `shell recover -f` or `bkctl bookie recover`
    bookie check     many small ledgers, all bookies there: the auditor reads all metadata. Java's time is that between
                     the two lines of its log, ours that of its metric; the start-up check and two more that are
                     asked for, the fastest counts for each. With --many also ours over so many ledgers, for its memory
    all ledgers      the same ledgers: the check of first and last entries that a fresh auditor makes
    list             the same ledgers, all marked: `shell listunderreplicated`, `bkctl autorecovery queue list`
    foreground       p99 of adds at a steady pace, ours alone: without, and beside `bookie recover --rate`
    decommission     a stopped bookie that is in every one of the small ledgers: `shell recover -f -d`, which deletes
                     the cookie too, and `bkctl bookie decommission`; commands, start-up included. (Java's
                     `decommissionbookie` sleeps 30 s and waits for workers, one ledger after another)

Everything runs on this machine against real Java bookies and a real ZooKeeper; each side of a row that copies gets a
cluster of its own with the same ledgers (1 KB entries, E/Qw/Qa 3/2/2), each of which is read once before (not with
--cold); the bookie that stores most is lost; nothing may name it afterwards, and every entry must be readable. Small
ledgers have four entries and lie three ways on five bookies. RSS is the highest of our process. Needs java
and mvn; the figures mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from tests.bench import recovery_checks, recovery_copy, recovery_foreground
from tests.bench.recovery_row import Row
from tests.interop.java_cluster import why_not

BENCHES: dict[str, Callable[[argparse.Namespace, list[str]], list[Row]]] = {
    "auto recovery": recovery_copy.measure,
    "by hand": recovery_copy.measure,
    "decommission": recovery_copy.measure_decommission,
    "bookie check": recovery_checks.measure,
    "all ledgers": recovery_checks.measure,
    "list": recovery_checks.measure,
    "foreground": recovery_foreground.measure,
}


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", choices=list(BENCHES), default=list(BENCHES))
    parser.add_argument("--ledgers", type=int, default=12, help="large ledgers")
    parser.add_argument("--entries", type=int, default=100_000, help="of each large ledger")
    parser.add_argument("--cold", action="store_true", help="copy from bookies that have served no read yet")
    parser.add_argument("--small", type=int, default=20_000, help="small ledgers")
    parser.add_argument("--many", type=int, default=100_000, help="small ledgers for the memory of the bookie check")
    parser.add_argument("--rate", type=int, default=10_000_000, help="bytes/s of copying beside the foreground")
    parser.add_argument("--pace", type=int, default=500, help="adds/s of the foreground")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the foreground, each time")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(words)


def main() -> int:
    """Measures and prints; exit 1 if a row is below its bar."""
    arguments = arguments_of()
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
    rows: list[Row] = []
    for bench in dict.fromkeys(BENCHES[name] for name in arguments.rows):
        rows += bench(arguments, [name for name in arguments.rows if BENCHES[name] is bench])
    items: list[dict[str, Any]] = [row.item() for row in rows]
    if arguments.output == "json":
        print(json.dumps(items))
    else:
        for row in rows:
            print(row)
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
