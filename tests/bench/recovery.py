"""How fast a lost bookie's data is copied, ours beside Java's: `python -m tests.bench.recovery`.

Each of the two gets a fresh cluster of five Java bookies with the same ledgers, 1 KB entries, E/Qw/Qa 3/2/2, and does

    auto recovery    a bookie is killed; from the first mark in the queue until that is empty, one process, defaults
    by hand          another is killed; `shell recover -f` or `bkctl bookie recover`, its start-up included

What counts is the payload that the lost bookie stored, by the time. Afterwards nothing may name the bookie and every
entry must be readable. Needs java and mvn; the figures mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bkctl.meta.connect import open_store
from bkctl.meta.underreplication import Underreplication
from bkctl.world import SystemClock
from tests.interop.auto_recovery import RecoveryProcess, metadata_of, naming
from tests.interop.java_cluster import JavaCluster, why_not

ENTRY_SIZE: Final = 1024
BOOKIES: Final = 5
LIMIT_S: Final = 1800
LOOK_S: Final = 0.05
BARS: Final = {"auto recovery": 20.0, "by hand": 4.0}
SIDES: Final = ("java", "ours")


def stored_on(ledgers: list[dict[str, Any]], bookie: str) -> int:
    """Entries that the bookie is to store."""
    count = 0
    for ledger in ledgers:
        size, width = ledger["ensemble_size"], ledger["write_quorum_size"]
        ensembles = ledger["ensembles"]
        for at, ensemble in enumerate(ensembles):
            end = ensembles[at + 1]["first_entry_id"] if at + 1 < len(ensembles) else ledger["last_entry_id"] + 1
            for index, member in enumerate(ensemble["bookies"]):
                if member == bookie:
                    first = ensemble["first_entry_id"]
                    count += sum((index - entry_id) % size < width for entry_id in range(first, end))
    return count


async def time_queue(uri: str, root: str = "/ledgers") -> float:
    """Seconds from the first mark until there is none."""
    store = await open_store(uri)
    try:
        queue = Underreplication(store, root, SystemClock())
        begin = 0.0
        async with asyncio.timeout(LIMIT_S):
            while True:
                marked = [ledger_id async for ledger_ids in queue.markers() for ledger_id in ledger_ids]
                if marked and not begin:
                    begin = time.monotonic()
                if begin and not marked:
                    return time.monotonic() - begin
                await asyncio.sleep(LOOK_S)
    finally:
        await store.close()


def by_queue(cluster: JavaCluster, side: str, bookie: int) -> float:
    """Kills a bookie under auto recovery; returns the seconds."""
    with RecoveryProcess(cluster, f"{side}-recovery", java=side == "java") as process:
        time.sleep(10 if side == "java" else 1)  # Java's has no line that says it is ready
        cluster.stop_java(bookie, kill=True)
        took_s = asyncio.run(time_queue(cluster.uri))
        process.stop()
    return took_s


def by_hand(cluster: JavaCluster, side: str, bookie: int) -> float:
    """Kills a bookie and recovers it by a command; returns the command's seconds."""
    cluster.stop_java(bookie, kill=True)
    name = cluster.java_id(bookie)
    while _registered(cluster, name):
        time.sleep(0.5)
    begin = time.monotonic()
    if side == "java":
        cluster.javaref("shell", "--conf", BOOKIES - 1, "--plain", "recover", "-f", name, timeout=LIMIT_S)
    else:
        done = cluster.bkctl("bookie", "recover", name, "--yes", "-o", "jsonl", timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr.decode()
    return time.monotonic() - begin


def _registered(cluster: JavaCluster, name: str) -> bool:
    rows = cluster.bkctl_json("bookie", "list")["items"]
    return any(row["bookie_id"] == name and row["state"] != "down" for row in rows)


@contextmanager
def filled(ledgers: int, entries: int) -> Iterator[JavaCluster]:
    """A cluster with the ledgers in it."""
    cluster = JavaCluster(BOOKIES)
    try:
        for _ in range(ledgers):
            cluster.client(
                "bench-write", f"--entries={entries}", f"--size={ENTRY_SIZE}", "--e=3", "--qw=2", "--qa=2", "--v2=true"
            )
        yield cluster
    finally:
        cluster.down()


def measure(side: str, ledgers: int, entries: int, rows: list[str]) -> dict[str, float]:
    """MB/s of each row."""
    found: dict[str, float] = {}
    with filled(ledgers, entries) as cluster:
        for bookie, row in enumerate(rows):
            name = cluster.java_id(bookie)
            size = stored_on(metadata_of(cluster), name) * ENTRY_SIZE
            took_s = (by_queue if row == "auto recovery" else by_hand)(cluster, side, bookie)
            found[row] = size / took_s / 1e6
            print(
                f"{side:5} {row:14} {size / 1e6:6.0f} MB in {took_s:6.1f} s = {found[row]:6.1f} MB/s", file=sys.stderr
            )
            assert naming(cluster, name) == [], "the lost bookie is still named"
        for ledger in metadata_of(cluster):
            answer = cluster.client("bench-read", f"--ledger={ledger['ledger_id']}", "--recover=false", "--v2=true")
            assert answer["entries"] == entries, answer
    return found


def main() -> int:
    """Measures and prints; exit 1 if a ratio is below its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=int, default=7)
    parser.add_argument("--entries", type=int, default=60_000, help="of each ledger")
    parser.add_argument("--rows", nargs="*", choices=list(BARS), default=list(BARS))
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
    speeds = {side: measure(side, arguments.ledgers, arguments.entries, arguments.rows) for side in SIDES}
    items = [
        {
            "work": row,
            "java_mb_s": round(speeds["java"][row], 1),
            "ours_mb_s": round(speeds["ours"][row], 1),
            "ratio": round(speeds["ours"][row] / speeds["java"][row], 1),
            "bar": BARS[row],
        }
        for row in arguments.rows
    ]
    if arguments.output == "json":
        print(json.dumps(items))
    else:
        for item in items:
            print(
                "{work:14} java {java_mb_s:7} MB/s   ours {ours_mb_s:7} MB/s   {ratio} × (bar {bar} ×)".format(**item)
            )
    return 0 if all(speeds["ours"][row] >= BARS[row] * speeds["java"][row] for row in arguments.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
