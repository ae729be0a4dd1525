"""The rows that copy: auto recovery of a lost bookie, recovery by hand, decommission of one with many small ledgers."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bkctl.meta.connect import open_store
from bkctl.meta.store import MetadataStore
from tests.bench.recovery_data import ENTRIES, FIRST_ID, make_small_ledgers
from tests.bench.recovery_row import Row, rss_mb, tell
from tests.interop.auto_recovery import RecoveryProcess, metadata_of, naming
from tests.interop.java_cluster import JavaCluster

ENTRY_SIZE: Final = 1024
BOOKIES: Final = 5
LIMIT_S: Final = 1800
LOOK_S: Final = 0.05
READ_AGAIN: Final = 5
"""Small ledgers that are read after a decommission."""
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
        begin = 0.0
        async with asyncio.timeout(LIMIT_S):
            while True:
                marked = await _any_mark(store, f"{root}/underreplication/ledgers")
                if marked and not begin:
                    begin = time.monotonic()
                if begin and not marked:
                    return time.monotonic() - begin
                await asyncio.sleep(LOOK_S)
    finally:
        await store.close()


async def _any_mark(store: MetadataStore, path: str) -> bool:
    """True if there is a marker below: workers leave no empty directories behind."""
    stat = await store.exists(path)
    return stat is not None and stat.num_children > 0


def by_queue(cluster: JavaCluster, side: str, bookie: int) -> tuple[float, int]:
    """Kills a bookie under auto recovery; returns the seconds, and the process's highest RSS in MB."""
    with RecoveryProcess(cluster, f"{side}-recovery", java=side == "java") as process:
        time.sleep(10 if side == "java" else 1)  # Java's has no line that says it is ready
        cluster.stop_java(bookie, kill=True)
        took_s = asyncio.run(time_queue(cluster.uri))
        highest = rss_mb(process.process.pid)
        process.stop()
    return took_s, highest


def by_hand(cluster: JavaCluster, side: str, bookie: int) -> tuple[float, int]:
    """Kills a bookie and recovers it by a command; returns the command's seconds, and the highest RSS in MB."""
    name = _stopped(cluster, bookie)
    begin = time.monotonic()
    if side == "java":
        cluster.javaref("shell", "--conf", BOOKIES - 1, "--plain", "recover", "-f", name, timeout=LIMIT_S)
        return time.monotonic() - begin, 0
    highest = _command(cluster, "recover", name)
    return time.monotonic() - begin, highest


def decommission(cluster: JavaCluster, side: str, bookie: int) -> tuple[float, int]:
    """The same, and the cookie goes too."""
    name = _stopped(cluster, bookie)
    begin = time.monotonic()
    if side == "java":
        cluster.javaref("shell", "--conf", BOOKIES - 1, "--plain", "recover", "-f", "-d", name, timeout=LIMIT_S)
        return time.monotonic() - begin, 0
    highest = _command(cluster, "decommission", name)
    return time.monotonic() - begin, highest


def _command(cluster: JavaCluster, verb: str, name: str) -> int:
    """Runs `bkctl bookie VERB`; its highest RSS in MB."""
    state = cluster.home / f"{verb}.job"
    command = [sys.executable, "-m", "bkctl", "-m", cluster.uri, "bookie", verb, name, "--yes", "--state", state]
    with (cluster.home / f"{verb}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, (cluster.home / f"{verb}.log").read_text(errors="replace")[-2000:]
    return usage.ru_maxrss // 1024


def _stopped(cluster: JavaCluster, bookie: int) -> str:
    """Kills a bookie; its name, once its registration is gone."""
    cluster.stop_java(bookie, kill=True)
    name = cluster.java_id(bookie)
    while _registered(cluster, name):
        time.sleep(0.5)
    return name


def _registered(cluster: JavaCluster, name: str) -> bool:
    rows = cluster.bkctl_json("bookie", "list")["items"]
    return any(row["bookie_id"] == name and row["state"] != "down" for row in rows)


@contextmanager
def filled(ledgers: int, entries: int, *, cold: bool = False) -> Iterator[JavaCluster]:
    """A cluster with large ledgers in it, each of which was read once unless it is to be cold.

    A bookie that has served nothing yet spends more on compiling itself than on copies, whoever asks for them: half
    the processor time of half a gigabyte. Those of a cluster in use have that behind them.
    """
    cluster = JavaCluster(BOOKIES)
    try:
        for _ in range(ledgers):
            cluster.client(
                "bench-write", f"--entries={entries}", f"--size={ENTRY_SIZE}", "--e=3", "--qw=2", "--qa=2", "--v2=true"
            )
        if not cold:
            _read_all(cluster, entries)
        yield cluster
    finally:
        cluster.down()


def _read_all(cluster: JavaCluster, entries: int) -> None:
    for ledger in metadata_of(cluster):
        answer = cluster.client("bench-read", f"--ledger={ledger['ledger_id']}", "--recover=false", "--v2=false")
        assert answer["entries"] == entries, answer


def _side(side: str, arguments: argparse.Namespace, rows: list[str]) -> dict[str, tuple[float, int]]:
    """MB/s and RSS of each row; each loses the bookie that stores most."""
    found: dict[str, tuple[float, int]] = {}
    with filled(arguments.ledgers, arguments.entries, cold=arguments.cold) as cluster:
        left = set(range(BOOKIES))
        for row in rows:
            ledgers = metadata_of(cluster)
            stored = {i: stored_on(ledgers, cluster.java_id(i)) for i in left}
            bookie = max(left, key=stored.__getitem__)
            left.remove(bookie)
            name, size = cluster.java_id(bookie), stored[bookie] * ENTRY_SIZE
            took_s, highest = (by_queue if row == "auto recovery" else by_hand)(cluster, side, bookie)
            found[row] = size / took_s / 1e6, highest
            tell(f"{side:5} {row:14} {size / 1e6:6.0f} MB in {took_s:6.1f} s = {found[row][0]:6.1f} MB/s")
            assert naming(cluster, name) == [], "the lost bookie is still named"
        _read_all(cluster, arguments.entries)
    return found


def measure(arguments: argparse.Namespace, rows: list[str]) -> list[Row]:
    """Auto recovery and recovery by hand."""
    speeds = {side: _side(side, arguments, rows) for side in SIDES}
    return [
        Row(row, "MB/s", speeds["java"][row][0], speeds["ours"][row][0], BARS[row], rss_mb=speeds["ours"][row][1])
        for row in rows
    ]


def measure_decommission(arguments: argparse.Namespace, _: list[str]) -> list[Row]:
    """A bookie with many small ledgers."""
    speeds: dict[str, tuple[float, int]] = {}
    for side in SIDES:
        cluster = JavaCluster(BOOKIES)
        try:
            asyncio.run(make_small_ledgers(cluster.uri, [cluster.java_id(i) for i in range(BOOKIES)], arguments.small))
            took_s, highest = decommission(cluster, side, 0)
            speeds[side] = arguments.small / took_s, highest
            tell(f"{side:5} decommission   {arguments.small} ledgers in {took_s:6.1f} s")
            name = cluster.java_id(0)
            assert not cluster.bkctl("ledger", "list", "--bookie", name, "-o", "name").stdout.strip(), "still named"
            for ledger_id in range(FIRST_ID, FIRST_ID + arguments.small, max(1, arguments.small // READ_AGAIN)):
                rows = cluster.bkctl("ledger", "read", ledger_id, "-o", "jsonl").stdout.splitlines()
                assert len(rows) == ENTRIES, f"ledger {ledger_id} has {len(rows)} entries"
        finally:
            cluster.down()
    (java, _), (ours, highest) = speeds["java"], speeds["ours"]
    return [Row("decommission", "ledgers/s", java, ours, rss_mb=highest, note=f"{arguments.small} small ledgers")]
