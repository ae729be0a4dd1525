"""The rows that look through many ledgers: the auditor's two checks, and the list of what is under-replicated."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Final

from bkctl.errors import NotFound
from bkctl.meta.connect import open_store
from bkctl.meta.underreplication import Check, Underreplication
from bkctl.meta.uri import parse_uri
from bkctl.world import SystemClock
from tests.bench.recovery_data import make_small_ledgers, mark_small_ledgers
from tests.bench.recovery_row import Row, rss_mb, tell
from tests.interop.auto_recovery import RecoveryProcess, wait_for
from tests.interop.java_cluster import JavaCluster, free_ports

BOOKIES: Final = 5
RUNS: Final = 3
LIMIT_S: Final = 120
RSS_MB_MAX: Final = 300
NEVER: Final = {"auditorPeriodicCheckInterval": 0}
_LINE: Final = re.compile(
    r"^(\S+ \S+) INFO +AuditorBookieCheckTask (Starting|Completed) (auditBookies|checkAllLedgers)", re.M
)


def measure(arguments: argparse.Namespace, rows: list[str]) -> list[Row]:
    """The rows asked for, on one cluster."""
    found: list[Row] = []
    cluster = JavaCluster(BOOKIES)
    try:
        bookies = [cluster.java_id(index) for index in range(BOOKIES)]
        count, many = arguments.small, arguments.many
        asyncio.run(make_small_ledgers(cluster.uri, bookies, count))
        if "bookie check" in rows:
            found.append(_bookie_check(cluster, count))
        if "all ledgers" in rows:
            found.append(_all_ledgers(cluster, count))
        if "bookie check" in rows and many > count:
            asyncio.run(make_small_ledgers(cluster.uri, bookies, many, start=count, entries=False))
            took_s, highest = _our_bookie_checks(cluster)
            found.append(
                Row("bookie check, memory", "ledgers/s", None, many / took_s, rss_mb=highest, rss_mb_max=RSS_MB_MAX,
                    note=f"{many} ledgers")
            )  # fmt: skip
        if "list" in rows:
            found.append(_list(cluster, bookies[0], count))
    finally:
        cluster.down()
    return found


# -- checks -----------------------------------------------------------------------------------------------------------


def _spans(log: str, task: str) -> list[float]:
    """Seconds from each `Starting` of a task to its `Completed`, in Java's log."""
    times = [
        (word, datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f")) for at, word, name in _LINE.findall(log) if name == task
    ]
    ends = zip(times[::2], times[1::2], strict=False)
    return [(end - start).total_seconds() for (_, start), (_, end) in ends]


def _metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), 0.0)


def _bookie_check(cluster: JavaCluster, count: int) -> Row:
    with RecoveryProcess(cluster, "java-audit", java=True, **NEVER) as process:
        java: list[float] = []
        for run in range(1, RUNS + 1):
            java = wait_for(_enough(lambda: _spans(process.text, "auditBookies"), run), LIMIT_S, "Java's bookie check")
            if run < RUNS:
                asyncio.run(_trigger(cluster.uri))
        process.stop()
    took_s, highest = _our_bookie_checks(cluster)
    tell(f"java  bookie check   {count} ledgers in {java} s; ours {took_s:.3f} s")
    return Row("bookie check", "ledgers/s", count / min(java), count / took_s, 2.0, rss_mb=highest)


def _enough(found: Callable[[], list[float]], count: int) -> Callable[[], list[float]]:
    return lambda: spans if len(spans := found()) >= count else []


def _ours(cluster: JavaCluster, stack: ExitStack, name: str, **settings: object) -> tuple[RecoveryProcess, int]:
    """Our auto recovery, and the port of its metrics."""
    port = free_ports()
    http = {"httpServerEnabled": "true", "httpServerPort": port, "httpServerHost": "127.0.0.1"}
    return stack.enter_context(RecoveryProcess(cluster, name, java=False, **http, **settings)), port


def _our_bookie_checks(cluster: JavaCluster) -> tuple[float, int]:
    """The fastest of a few in one process, and its highest RSS in MB."""
    with ExitStack() as stack:
        process, port = _ours(cluster, stack, "our-audit", **NEVER)
        found = []
        for run in range(1, RUNS + 1):
            _wait_metric(port, "bkctl_auditor_bookie_checks", run)
            found.append(_metric(port, "bkctl_auditor_last_bookie_check_seconds"))
            if run < RUNS:
                asyncio.run(_trigger(cluster.uri))
        highest = rss_mb(process.process.pid)
        process.stop()
    return min(found), highest


def _all_ledgers(cluster: JavaCluster, count: int) -> Row:
    java: list[float] = []
    ours: list[float] = []
    highest = 0
    for run in range(RUNS):
        java.append(_java_check(cluster, f"java-check-{run}"))
        took_s, rss = _our_check(cluster, f"our-check-{run}", count)
        ours.append(took_s)
        highest = max(highest, rss)
    tell(f"all ledgers: java {java} s; ours {ours} s")
    return Row("all ledgers", "ledgers/s", count / min(java), count / min(ours), 2.0, rss_mb=highest)


def _java_check(cluster: JavaCluster, name: str) -> float:
    asyncio.run(_forget_check(cluster.uri))
    with RecoveryProcess(cluster, name, java=True) as process:
        took_s = wait_for(_enough(lambda: _spans(process.text, "checkAllLedgers"), 1), LIMIT_S, "Java's check")[0]
        process.stop()
    return float(took_s)


def _our_check(cluster: JavaCluster, name: str, count: int) -> tuple[float, int]:
    asyncio.run(_forget_check(cluster.uri))
    with ExitStack() as stack:
        process, port = _ours(cluster, stack, name)
        _wait_metric(port, "bkctl_auditor_ledger_checks", 1)
        took_s, highest = _metric(port, "bkctl_auditor_last_ledger_check_seconds"), rss_mb(process.process.pid)
        checked = _metric(port, "auditor_NUM_LEDGERS_CHECKED")
        marked = _metric(port, "bkctl_auditor_ledgers_marked")
        process.stop()
    assert (checked, marked) == (count, 0), (checked, marked)
    return took_s, highest


def _wait_metric(port: int, name: str, value: float) -> None:
    wait_for(lambda: _metric(port, name) >= value, LIMIT_S, name)


async def _trigger(uri: str) -> None:
    """Asks the auditor, Java's or ours, for a bookie check."""
    store = await open_store(uri)
    try:
        await Underreplication(store, parse_uri(uri).root, SystemClock()).trigger_audit()
    finally:
        await store.close()


async def _forget_check(uri: str, root: str = "/ledgers") -> None:
    """The check of all ledgers never ran, so that the next auditor begins with it."""
    store = await open_store(uri)
    try:
        await store.delete_any(f"{root}/underreplication/{Check.ALL_LEDGERS.value}")
    except NotFound:
        pass
    finally:
        await store.close()


# -- the list ---------------------------------------------------------------------------------------------------------


def _list(cluster: JavaCluster, bookie: str, count: int) -> Row:
    asyncio.run(mark_small_ledgers(cluster.uri, bookie, count))
    java, java_text = _fastest(lambda: cluster.shell("listunderreplicated", timeout=LIMIT_S))
    ours, done = _fastest(lambda: cluster.bkctl("autorecovery", "queue", "list", "-o", "jsonl", timeout=LIMIT_S))
    assert done.stdout.count(b"\n") == count, done.stderr
    assert len(set(re.findall(r"\b1\d{6}\b", java_text))) == count, java_text[-500:]
    tell(f"list: java {java:.2f} s; ours {ours:.2f} s")
    return Row("list", "s", java, ours, 5.0, more_is_better=False, note=f"{count} under-replicated")


def _fastest(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest of a few runs, and what the last gave."""
    times, answer = [], None
    for _ in range(RUNS):
        begin = time.monotonic()
        answer = work()
        times.append(time.monotonic() - begin)
    return min(times), answer
