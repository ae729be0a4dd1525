"""How fast a bookie compacts, and what that costs a writer beside it: `python -m tests.bench.compaction`.

Java's bookie and ours, one after the other on directories of their own, with the same settings and no limit:

    fill      ledgers one after the other by Java's client, entries of 1 KB; two out of three are deleted
    alone     the bookie starts again and compacts: from its first word about that until all old logs are gone
    quiet     Java's client writes at a fixed rate while nothing else goes on
    beside    the same on a second filling, while the bookie compacts

Needs java and mvn; the figures mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from tests.interop.auto_recovery import wait_for
from tests.interop.java_cluster import JAVAREF, JavaCluster, why_not

LEDGERS: Final = 18
SIZE: Final = 1024
ALONE: Final = ("--e=1", "--qw=1", "--qa=1")
OFF: Final = {
    "logSizeLimit": 32 << 20,
    "flushInterval": 1000,
    "majorCompactionThreshold": 0,
    "minorCompactionThreshold": 0,
}
ON: Final = OFF | {
    "gcWaitTime": 3000,  # a writer has begun by then
    "majorCompactionThreshold": 0.8,
    "majorCompactionInterval": 3,
    "compactionRateByEntries": 100_000_000,
}
BEGUN: Final = {"java": b"Enter major compaction", "ours": b"major compaction: logs of which"}
WAIT_S: Final = 600.0


class Bench:
    """One bookie, Java's or ours."""

    def __init__(self, cluster: JavaCluster, who: str, entries: int) -> None:
        self.cluster, self.who, self.entries = cluster, who, entries
        home = cluster.java_directory(0) if who == "java" else cluster.our_directory(0)
        self.directory = home / "ledgers" / "current"
        self.log = cluster.home / "logs" / "0.log" if who == "java" else home / "out.log"

    def start(self, settings: dict[str, Any]) -> None:
        """The bookie, anew."""
        if self.who == "java":
            self.cluster.start_java(0, *(w for k, v in settings.items() for w in ("--set", f"{k}={v}")))
        else:
            self.cluster.start_ours(0, **settings)

    def stop(self) -> None:
        """The bookie."""
        if self.who == "java":
            self.cluster.stop_java(0)
        else:
            self.cluster.stop_ours(0)

    def logs(self) -> dict[str, int]:
        """Entry logs and their bytes."""
        return {path.name: path.stat().st_size for path in self.directory.glob("*.log") if path.exists()}

    def fill(self) -> dict[str, int]:
        """Ledgers of which one out of three lives on, and the closed logs that are to go; the bookie is stopped."""
        before = set(self.logs())
        self.start(OFF)
        options = (f"--ledgers={LEDGERS}", f"--entries={self.entries}", f"--size={SIZE}", *ALONE)
        rows = self.cluster.client_lines("bench-write", *options)
        ids = sorted({int(row["ledger"]) for row in rows})
        gone = [ledger for number, ledger in enumerate(ids) if number % 3]
        done = self.cluster.bkctl("ledger", "delete", *gone, "--yes")
        assert done.returncode == 0, done.stderr
        self.stop()  # flushed
        logs = self.logs()
        new = sorted((name for name in logs if name not in before), key=lambda name: int(name[:-4], 16))
        return {name: logs[name] for name in new[:-2]}

    def compact(self, old: dict[str, int], started: Callable[[], object] = lambda: None) -> float:
        """Seconds from the bookie's first word about a compaction until its old logs are gone; it runs on."""
        seen = self.log.stat().st_size
        self.start(ON)
        started()
        wait_for(lambda: BEGUN[self.who] in self.log.read_bytes()[seen:], WAIT_S, "it begins")
        start = time.monotonic()
        end = start + WAIT_S
        while old.keys() & self.logs().keys():
            assert time.monotonic() < end, "the old logs do not go"
            time.sleep(0.02)
        return time.monotonic() - start

    def writer(self, rate: int, seconds: int) -> subprocess.Popen[str]:
        """Java's client at a fixed rate."""
        command = [sys.executable, JAVAREF, "--home", self.cluster.home, "--zk-port", self.cluster.zookeeper_port]
        command += [
            "--bookie-port",
            self.cluster.bookie_port,
            "client",
            "bench-write",
            f"--rate={rate}",
            f"--size={SIZE}",
        ]
        command += [f"--entries={rate * seconds}", *ALONE]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)


def figures(writer: subprocess.Popen[str]) -> dict[str, Any]:
    """What a writer says at its end."""
    out, _ = writer.communicate(timeout=WAIT_S)
    return dict(json.loads([line for line in out.splitlines() if line.startswith("{")][-1]))


def measure(cluster: JavaCluster, who: str, entries: int, rate: int, seconds: int) -> dict[str, Any]:
    """One bookie's row."""
    bench = Bench(cluster, who, entries)
    old = bench.fill()
    size = sum(old.values())
    alone_s = bench.compact(old)
    quiet = figures(bench.writer(rate, seconds))
    bench.stop()
    old = bench.fill()
    writers: list[subprocess.Popen[str]] = []
    beside_s = bench.compact(old, lambda: writers.append(bench.writer(rate, seconds)))
    beside = figures(writers[0])
    bench.stop()
    return {
        "who": who, "mb": round(size / 1e6), "alone_s": round(alone_s, 1), "mb_s": round(size / 1e6 / alone_s, 1),
        "beside_s": round(beside_s, 1), "quiet_p99_ms": quiet["p99_ms"], "beside_p99_ms": beside["p99_ms"],
        "quiet_max_ms": quiet["max_ms"], "beside_max_ms": beside["max_ms"], "failed": beside["failed"],
    }  # fmt: skip


def main() -> None:
    """Prints a JSON line a bookie."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=20_000, help="a ledger")
    parser.add_argument("--rate", type=int, default=2_000, help="entries a second of the writer")
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--who", nargs="*", default=["java", "ours"], choices=["java", "ours"])
    arguments = parser.parse_args()
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
    for who in arguments.who:
        cluster = JavaCluster(0)
        try:
            print(json.dumps(measure(cluster, who, arguments.entries, arguments.rate, arguments.seconds)), flush=True)
        finally:
            cluster.down()


if __name__ == "__main__":
    main()
