"""How fast a live audit is beside Java, in one run on one machine: `python -m tests.bench.audit_live`.

    ours, java    100 ledgers × 10,000 entries × 1 KB, E3 Qw2, on three of our bookies, then on three of Java's: every
                  copy read and its digest checked, inside Spark; beside it Java's client, which reads each entry once
                  (one client for all ledgers, from the first open to the last entry, without the client's start), and
                  how fast it is otherwise: version 2, several ledgers at a time, the first ledger of a new process
    ends          the first and last entry of each fragment of 20,000 small ledgers on five Java bookies, beside the
                  same check of Java's auditor
    beside        a paced writer of Java's client on our bookies, alone and while all they hold is told again and again

Spark runs in a process of its own. `begin` is until it has a session, `work` what follows; `command` is all of
`bkctl audit run` with every check, start-up included. --scale 0.1 is for trials. A row takes some minutes, and is
given up after --limit-s. Journals of the rows with copies are not synced: they are only read here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.audit import process_tree
from tests.bench.recovery_checks import LIMIT_S, _enough, _forget_check, _spans
from tests.bench.recovery_data import make_small_ledgers
from tests.interop.auto_recovery import RecoveryProcess, wait_for
from tests.interop.java_cluster import JAVAREF, JavaCluster

ROWS: Final = ("ours", "java", "ends", "beside")
LEDGERS: Final = 100
ENTRIES: Final = 10_000
SIZE: Final = 1024
SMALL: Final = 20_000
BOOKIES: Final = 3
ENDS_BOOKIES: Final = 5
SCRIPT_TIMEOUT_S: Final = 600
LIMIT_OF_A_ROW_S: Final = 900
WARM: Final = {"v3": "--v2=false", "v3, 4 at a time": "--v2=false --parallel=4", "v2": "--v2=true"}
"""How Java's client reads: the first all ledgers, the others a tenth of them, after the first and in its process."""
NO_SYNC: Final = {"journalSyncData": "false"}
COLUMNS: Final = "kind string, size bigint, digest_ok boolean, content_digest bigint"
PACED: Final = "bench-write --e=3 --qw=2 --qa=2 --v2=true --size=1024 --entries=20000 --rate=1000"


def tell(text: str) -> None:
    """A line for who waits."""
    print(text, file=sys.stderr, flush=True)


def processor_s(pids: Iterable[int]) -> float:
    """Processor seconds of processes and all below them, ended children included."""
    total = 0
    for pid in pids:
        for at in process_tree(pid):
            try:
                total += sum(map(int, Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()[11:15]))
            except (OSError, ValueError):
                continue
    return total / os.sysconf("SC_CLK_TCK")


# -- in a process with Spark ------------------------------------------------------------------------------------------


@contextmanager
def _spark(answer: dict[str, Any]) -> Iterator[Any]:
    from bkinspect.audit.session import session

    started = time.perf_counter()
    spark = session()
    answer["begin_s"] = time.perf_counter() - started
    started = time.perf_counter()
    yield spark
    answer["work_s"] = time.perf_counter() - started
    answer["processor_s"] = processor_s([os.getpid()])
    print(json.dumps(answer))
    spark.stop()


def read_copies(uri: str, folder: str) -> None:
    """Metadata as a run reads it, then every copy; keeps nothing of these."""
    from bkinspect.audit.facts import Facts, Sources
    from bkinspect.audit.storage import LocalStorage

    answer: dict[str, Any] = {}
    with _spark(answer) as spark:
        facts = Facts(spark, Sources(uri), LocalStorage(folder), LocalStorage(folder) / "facts", tell)
        facts.read({"ledgers"})
        options = {"metadata": uri, "ledgers_from": str(facts.folder / "ledgers")}
        row = spark.read.format("bookkeeper.copies").options(**options).schema(COLUMNS).load().selectExpr(
            "count_if(kind = 'entry') AS n", "count_if(digest_ok) AS good", "count_if(kind <> 'entry') AS unread",
            "sum(size) AS bytes", "bit_xor(content_digest) AS x",
        ).first()  # fmt: skip
        answer |= {name: row[name] for name in ("n", "good", "unread", "bytes")}


def check_ends(uri: str, folder: str) -> None:
    """The check `ends` as the command runs it."""
    from bkinspect.audit.facts import Sources
    from bkinspect.audit.job import Request, run

    answer: dict[str, Any] = {}
    with _spark(answer) as spark:
        outcome = run(spark, Request(Sources(uri, live_copies=True), Path(folder), ("ends",)))
        answer |= {"counts": dict(outcome.counts), "notes": list(outcome.notes)}


def child(*arguments: object) -> dict[str, Any]:
    """Runs this module again; its last line, and the seconds it took."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "tests.bench.audit_live", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SCRIPT_TIMEOUT_S)
    return {**json.loads(done.stdout.splitlines()[-1]), "all_s": time.perf_counter() - started}


# -- Java's client ----------------------------------------------------------------------------------------------------


def script(cluster: JavaCluster, lines: list[str]) -> list[dict[str, Any]]:
    """Commands of Java's client in one process; a JSON line each."""
    command = [sys.executable, JAVAREF, "--home", cluster.home, "--zk-port", cluster.zookeeper_port]
    command += ["--bookie-port", cluster.bookie_port, "client", "script"]
    done = subprocess.run(
        list(map(str, command)), input="\n".join(lines) + "\n", capture_output=True, text=True,
        timeout=SCRIPT_TIMEOUT_S, env={**os.environ, "JAVAREF_BK": cluster.version}, check=False,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(lines), done.stdout[-500:] + done.stderr[-2000:]
    return rows


def written(cluster: JavaCluster, ledgers: int, entries: int) -> list[int]:
    """Closed ledgers of Java's client."""
    options = f"--e=3 --qw=2 --qa=2 --v2=true --size={SIZE} --entries={entries} --window=2000 --ledgers={ledgers}"
    rows = cluster.client_lines("bench-write", *options.split(), timeout=SCRIPT_TIMEOUT_S)
    assert len(rows) == ledgers, rows
    assert all(row["failed"] == 0 for row in rows), rows
    return [row["ledger"] for row in rows]


def java_reads(who: str, cluster: JavaCluster, ids: list[int]) -> tuple[float, str]:
    """(seconds of Java's client for each entry of these ledgers once, words about its other modes)."""
    few = ids[: max(len(ids) // 10, 1)]
    chosen = [few if number else ids for number in range(len(WARM))]
    modes = zip(WARM.values(), chosen, strict=True)
    rows = script(cluster, [f"bench-read-many {flags} --ledgers={','.join(map(str, own))}" for flags, own in modes])
    assert [row["entries"] for row in rows] == [len(own) * ENTRIES for own in chosen], rows
    first = cluster.client("bench-read", f"--ledger={ids[0]}", "--recover=false", timeout=SCRIPT_TIMEOUT_S)
    rates = [f"{name} {row['entries_s']:,.0f}/s" for name, row in zip(WARM, rows, strict=True)]
    text = f"{', '.join(rates)}, the first ledger of a new process {first['entries_s']:,.0f}/s"
    tell(f"{who}: Java's client {rows[0]['seconds']:.1f} s: {text}")
    return float(rows[0]["seconds"]), text


# -- rows -------------------------------------------------------------------------------------------------------------


def copies(who: str, scale: float, *, whole: bool) -> str:
    """Every copy of one kind of bookies; returns the line to show."""
    ledgers, entries = max(round(LEDGERS * scale), 1), ENTRIES
    cluster = _cluster(who)
    try:
        ids = written(cluster, ledgers, entries)
        tell(f"{who}: {ledgers} ledgers of {entries} entries are written")
        java_s, modes = java_reads(who, cluster, ids)
        pids = _servers(cluster)
        before = processor_s(pids)
        row = child("_copies", cluster.uri, cluster.home / "read")
        used = processor_s(pids) - before
        tell(f"{who}: {row}")
        assert row["n"] == row["good"] == 2 * ledgers * entries, row
        text = (
            f"{who} bookies, {ledgers * entries:,} entries, {row['n']:,} copies: "
            f"Java's client {java_s:.1f} s ({modes}); "
            f"ours {row['work_s']:.1f} s = {row['n'] / row['work_s']:,.0f} copies/s "
            f"({row['processor_s']:.0f} processor seconds, bookies {used:.0f}), "
            f"begin {row['begin_s']:.1f} s, process {row['all_s']:.1f} s; "
            f"ratio {row['work_s'] / java_s:.2f}, with start-up {row['all_s'] / java_s:.2f}"
        )
        if whole:
            took_s = _command(cluster, "audit", "run", "--to", cluster.home / "run")
            text += f"; command with all checks {took_s:.1f} s, ratio {took_s / java_s:.2f}"
        return text
    finally:
        cluster.down()


def _cluster(who: str) -> JavaCluster:
    """Three bookies."""
    if who == "java":
        return JavaCluster(BOOKIES, *(f"--set={name}={value}" for name, value in NO_SYNC.items()))
    cluster = JavaCluster(0)
    try:
        for index in range(BOOKIES):
            cluster.start_ours(index, **NO_SYNC)
    except BaseException:
        cluster.down()
        raise
    return cluster


def _servers(cluster: JavaCluster) -> list[int]:
    ours = [process.pid for process in cluster.ours.values()]
    return ours or [int((cluster.home / "pids" / str(index)).read_text()) for index in range(BOOKIES)]


def _command(cluster: JavaCluster, *arguments: object) -> float:
    started = time.perf_counter()
    done = cluster.bkctl(*arguments, timeout=SCRIPT_TIMEOUT_S)
    assert done.returncode == 0, (done.returncode, done.stdout[-1000:], done.stderr[-2000:])
    return time.perf_counter() - started


def ends(scale: float) -> str:
    """First and last entries, beside Java's auditor; the best of two runs each."""
    count = max(round(SMALL * scale), 1)
    cluster = JavaCluster(ENDS_BOOKIES)
    try:
        asyncio.run(make_small_ledgers(cluster.uri, [cluster.java_id(i) for i in range(ENDS_BOOKIES)], count))
        tell(f"ends: {count} ledgers are written")
        java, ours = [], []
        for run in range(2):
            java.append(_java_check(cluster, f"java-check-{run}"))
            ours.append(child("_ends", cluster.uri, cluster.home / f"ends-{run}"))
            assert not ours[-1]["counts"], ours[-1]
            tell(f"ends: Java {java[-1]:.2f} s; ours {ours[-1]}")
        best = min(ours, key=lambda row: float(row["work_s"]))
        took_s = _command(cluster, "audit", "run", "--check", "ends", "--to", cluster.home / "ends-command")
        return (
            f"ends, {count:,} ledgers: Java {count / min(java):,.0f}/s; ours {count / best['work_s']:,.0f}/s "
            f"without Spark's start ({best['work_s']:.2f} s, {best['processor_s']:.0f} processor seconds), ratio "
            f"{min(java) / best['work_s']:.2f}; with it {count / best['all_s']:,.0f}/s ({best['all_s']:.2f} s); "
            f"command {count / took_s:,.0f}/s ({took_s:.2f} s)"
        )
    finally:
        cluster.down()


def tell_again(uri: str, folder: str) -> None:
    """Copies of all ledgers again and again, until somebody ends this process."""
    import pyarrow.parquet as parquet
    from bkinspect.audit.schemas import LEDGERS as LEDGERS_TABLE
    from bkinspect.audit.schemas import arrow_schema
    from bkinspect.audit.sources.live import LiveReader
    from bkinspect.audit.sources.live_rows import COPIES
    from bkinspect.audit.sources.metadata import LedgersReader

    Path(folder).mkdir()
    reader = LedgersReader(LEDGERS_TABLE, {"metadata": uri})
    with parquet.ParquetWriter(Path(folder) / "part.parquet", arrow_schema(LEDGERS_TABLE)) as writer:
        for part in reader.partitions():
            for batch in reader.read(part):
                writer.write_batch(batch)
    copies = LiveReader(COPIES, {"metadata": uri, "ledgers_from": folder})
    while True:
        for part in copies.partitions():
            print(sum(batch.num_rows for batch in copies.read(part)), flush=True)


def beside(scale: float) -> str:
    """What a writer feels of a scan."""
    cluster = _cluster("ours")
    try:
        written(cluster, max(round(LEDGERS * scale / 5), 1), ENTRIES)
        tell("beside: ledgers are written")
        (alone,) = script(cluster, [PACED])
        tell(f"beside: alone {alone}")
        command = [sys.executable, "-m", "tests.bench.audit_live", "_again", cluster.uri, str(cluster.home / "again")]
        scan = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert scan.stdout is not None
            assert scan.stdout.readline(), "it told nothing"
            started = time.perf_counter()
            (with_scan,) = script(cluster, [PACED])
            seconds = time.perf_counter() - started
            assert scan.poll() is None, "it ended"
        finally:
            scan.kill()
            out, _ = scan.communicate()
        rows = sum(map(int, out.splitlines()))
        return (
            f"beside: p99 of adds {alone['p99_ms']:.1f} ms alone, {with_scan['p99_ms']:.1f} ms while "
            f"{rows / seconds:,.0f} copies a second were told; "
            f"p50 {alone['p50_ms']:.1f} and {with_scan['p50_ms']:.1f} ms"
        )
    finally:
        cluster.down()


def _java_check(cluster: JavaCluster, name: str) -> float:
    asyncio.run(_forget_check(cluster.uri))
    with RecoveryProcess(cluster, name, java=True) as process:
        took_s = wait_for(_enough(lambda: _spans(process.text, "checkAllLedgers"), 1), LIMIT_S, "Java's check")[0]
        process.stop()
    return float(took_s)


def _given_up(*_: object) -> None:
    raise TimeoutError("the row takes longer than --limit-s")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"rows, of {', '.join(ROWS)}; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of ledgers")
    parser.add_argument("--limit-s", type=int, default=LIMIT_OF_A_ROW_S, help="a row is given up after these seconds")
    parser.add_argument("--no-command", action="store_true", help="leave out the whole command with its checks")
    chosen = parser.parse_args()
    inner: dict[str, Callable[[str, str], None]] = {
        "_copies": read_copies,
        "_ends": check_ends,
        "_again": tell_again,
    }
    if chosen.what and chosen.what[0] in inner:
        inner[chosen.what[0]](*chosen.what[1:])
        return
    signal.signal(signal.SIGALRM, _given_up)
    for row in chosen.what or ROWS:
        signal.alarm(chosen.limit_s)
        tell(f"{row}: begins")
        if row in ("ends", "beside"):
            print(ends(chosen.scale) if row == "ends" else beside(chosen.scale), flush=True)
        else:
            print(copies(row, chosen.scale, whole=not chosen.no_command), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
