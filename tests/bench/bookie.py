"""How fast our bookie is beside Java's, under Java's own client: `python -m tests.bench.bookie`.

Both run one after the other against one ZooKeeper, with an ensemble of one, as often as --repetitions says; the best of
each counts, and the ratio of the two. Reads go over the ledgers that the 1 KB rows wrote. Needs java and mvn; the
figures mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from tests.interop.java_cluster import JavaCluster, why_not


class Row(NamedTuple):
    """One line of the table; ledger_of names the row whose ledger is read."""

    v2: bool
    size: int = 0
    entries: int = 0
    ledger_of: str = ""
    bar: float = 0.0


ROWS: Final = {
    "add v2 100 B": Row(True, 100, 500_000, bar=0.7),
    "add v2 1 KB": Row(True, 1024, 300_000, bar=0.9),
    "add v2 10 KB": Row(True, 10_240, 40_000, bar=0.7),
    "add v3 100 B": Row(False, 100, 400_000, bar=0.7),
    "add v3 1 KB": Row(False, 1024, 200_000, bar=0.9),
    "add v3 10 KB": Row(False, 10_240, 40_000, bar=0.7),
    "read v2 1 KB": Row(True, ledger_of="add v2 1 KB", bar=1.5),
    "read v3 1 KB": Row(False, ledger_of="add v3 1 KB", bar=1.0),
}
BOOKIES: Final = ("java", "ours")


@contextmanager
def one_bookie(cluster: JavaCluster, who: str) -> Iterator[None]:
    """A single bookie is up: Java's, or ours."""
    if who == "java":
        cluster.start_java(0)
    else:
        cluster.start_ours(0)
    try:
        yield
    finally:
        if who == "java":
            cluster.stop_java(0)
        else:
            cluster.stop_ours(0)


def measure(cluster: JavaCluster, names: list[str], window: int) -> dict[str, float]:
    """Entries a second of each row on the bookie that is up; 0 where an entry failed or is missing."""
    found: dict[str, float] = {}
    ledgers: dict[str, int] = {}
    for name in names:
        row = ROWS[name]
        v2 = f"--v2={str(row.v2).lower()}"
        if row.ledger_of:
            wanted = ROWS[row.ledger_of].entries
            answer = cluster.client("bench-read", f"--ledger={ledgers[row.ledger_of]}", v2)
            sound = answer.get("entries") == wanted
        else:
            options = (f"--size={row.size}", f"--entries={row.entries}", f"--window={window}")
            answer = cluster.client("bench-write", "--e=1", "--qw=1", "--qa=1", v2, *options)
            sound = answer.get("failed") == 0
            ledgers[name] = int(answer.get("ledger", -1))
        found[name] = float(answer["entries_s"]) if sound else 0.0
        print(f"    {name}: {found[name]:,.0f}/s {shown(answer)}", file=sys.stderr, flush=True)
    return found


def shown(answer: dict[str, Any]) -> str:
    """Latencies of a write, or what went wrong."""
    keys = ("p50_ms", "p99_ms", "error", "message")
    return " ".join(f"{key} {answer[key]}" for key in keys if key in answer)


def main() -> int:
    """Measures and prints the table; 1 where a ratio is below its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated, default all: %(default)s")
    parser.add_argument("--repetitions", type=int, default=2, help="of the whole sequence, Java's and ours in turn")
    parser.add_argument("--window", type=int, default=2000, help="adds in flight")
    parser.add_argument("--only", choices=BOOKIES, help="measure one of the two")
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")
    chosen = parser.parse_args()
    names = [name.strip() for name in chosen.rows.split(",")]
    unknown = [name for name in names if name not in ROWS]
    if unknown or why_not():
        parser.error(f"no such row: {', '.join(unknown)}" if unknown else str(why_not()))
    needed = {ROWS[name].ledger_of for name in names} - {"", *names}
    names = [name for name in ROWS if name in needed or name in names]
    best: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(BOOKIES, 0.0))
    cluster = JavaCluster(0)
    try:
        for repetition in range(chosen.repetitions):
            for who in (chosen.only,) if chosen.only else BOOKIES:
                print(f"  {who}, {repetition + 1} of {chosen.repetitions}", file=sys.stderr, flush=True)
                with one_bookie(cluster, who):
                    for name, figure in measure(cluster, names, chosen.window).items():
                        best[name][who] = max(best[name][who], figure)
    finally:
        cluster.down()
    return report(best, as_json=chosen.json, compare=chosen.only is None)


def report(best: dict[str, dict[str, float]], *, as_json: bool, compare: bool) -> int:
    """Prints the figures; 1 where one is below its bar."""
    if as_json:
        print(json.dumps(best))
    low = 0
    if not as_json:
        print(f"{'entries a second':<16} {'ours':>10} {'java':>10} {'ratio':>6}  bar")
    for name, figures in best.items():
        ratio = figures["ours"] / figures["java"] if figures["java"] else 0.0
        below = compare and ratio < ROWS[name].bar
        low += below
        if not as_json:
            mark = f"{ROWS[name].bar}{'  below' if below else ''}"
            print(f"{name:<16} {figures['ours']:>10,.0f} {figures['java']:>10,.0f} {ratio:>6.2f}  {mark}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
