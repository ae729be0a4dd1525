"""Entry logs that one bookie has compacted, Java's or ours, are opened by the other: all that lives is there."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.auto_recovery import wait_for
from tests.interop.java_cluster import JAVAREF, JavaCluster, running

pytestmark = pytest.mark.java

LEDGERS, ENTRIES, SIZE = 9, 150, 900
KEPT = 3
"""Every third ledger."""
LOG_BYTES = 300_000  # about two ledgers
GONE_MIN = 2
"""Of the new logs: into others what lives of earlier ones may have moved meanwhile."""
SETTINGS = {
    "logSizeLimit": LOG_BYTES,
    "flushInterval": 200,
    "gcWaitTime": 1000,
    "minorCompactionThreshold": 0,
    "majorCompactionThreshold": 0.8,
    "majorCompactionInterval": 2,
    "compactionRateByEntries": 1_000_000,
}
WAIT_S = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(0)


class Client:
    """Java's client, one process for all commands: its start is what takes long."""

    def __init__(self, cluster: JavaCluster) -> None:
        self._log = cluster.home / "client.log"
        command = [sys.executable, JAVAREF, "--home", cluster.home, "--zk-port", cluster.zookeeper_port]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [*map(str, command), "client", "script"], stdin=subprocess.PIPE, stdout=out
            )

    def __call__(self, *words: object, answers: int = 1) -> list[dict[str, Any]]:
        """One command; its answers, those that tell of entries."""
        before = len(self._rows())
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(map(str, words))}\n".encode())
        self._process.stdin.flush()
        wait_for(lambda: len(self._rows()) >= before + answers, WAIT_S, f"answers to {words}")
        return self._rows()[before:]

    def _rows(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().split("\n")[:-1]
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        assert not [row for row in rows if "error" in row], rows
        return [row for row in rows if "entries" in row]

    def close(self) -> None:
        """The end of its input is its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)


class Place:
    """The directories of Java's bookie 0, whoever serves them; and the ledgers that are to be there."""

    def __init__(self, cluster: JavaCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.kept: dict[str, list[int]] = {}

    def start_java(self, **more: object) -> None:
        """Java's bookie."""
        settings = [word for pair in (SETTINGS | more).items() for word in ("--set", "=".join(map(str, pair)))]
        self.cluster.start_java(0, *settings)

    def start_ours(self) -> None:
        """Ours, on the same directories and with the same id."""
        where = self.cluster.java_directory(0)
        self.cluster.start_ours(
            0,
            bookiePort=self.cluster.bookie_port,
            journalDirectories=where / "journal",
            ledgerDirectories=where / "ledgers",
            indexDirectories=where / "index",
            **SETTINGS,
        )

    @property
    def directory(self) -> Path:
        """Where the entry logs are."""
        return self.cluster.java_directory(0) / "ledgers" / "current"

    def logs(self) -> set[int]:
        """The ids of the entry logs, finished or not."""
        return {int(path.name.split(".")[0], 16) for path in self.directory.glob("*.log*")}

    def compacted(self, digest: str) -> None:
        """New ledgers, two out of three deleted: returns when logs that they were written to are gone."""
        options = (f"--entries={ENTRIES}", f"--size={SIZE}", f"--digest={digest}", "--password=pw")
        before = self.logs()
        ones = ("--e=1", "--qw=1", "--qa=1")
        made = self.client("write", f"--ledgers={LEDGERS}", *options, *ones, answers=LEDGERS)
        ids = sorted({int(row["ledger"]) for row in made})
        assert len(ids) == LEDGERS
        old = wait_for(lambda: self._closed(before), WAIT_S, "most of it is in closed logs")
        self.kept[digest] = ids[::KEPT]
        dead = [ledger for ledger in ids if ledger not in self.kept[digest]]
        assert self.cluster.bkctl("ledger", "delete", *dead, "--yes").returncode == 0
        wait_for(lambda: len(old - self.logs()) >= GONE_MIN, WAIT_S, f"logs {sorted(old)} are compacted")
        self.read()

    def _closed(self, before: set[int]) -> set[int]:
        """New logs that are written no more, once most of what was written is in them.

        Not the last one, which is written, nor the one before: Java makes the next one in advance.
        """
        closed = sorted(self.logs() - before)[:-2]
        size = sum((self.directory / f"{log:x}.log").stat().st_size for log in closed)
        return set(closed) if size > LEDGERS * ENTRIES * SIZE - 2 * LOG_BYTES else set()

    def read(self) -> None:
        """Java's client reads every entry, checks its digest, and compares it with what was written."""
        for digest, ledgers in self.kept.items():
            names = ",".join(map(str, ledgers))
            options = (f"--ledgers={names}", f"--digest={digest}", "--password=pw", "--verify=true")
            (found,) = self.client("bench-read-many", *options)
            assert (found.get("entries"), found.get("wrong")) == (len(ledgers) * ENTRIES, 0), found


def moved_bytes(cluster: JavaCluster) -> float:
    """What our bookie says that it has moved."""
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.bookie_port + 110}/metrics", timeout=30) as page:
        rows = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if not line.startswith("#"))
    return float(rows["bkctl_bookie_compaction_moved_bytes_total"])


def test_what_one_bookie_has_compacted_the_other_reads(cluster: JavaCluster) -> None:
    client = Client(cluster)
    try:
        there_and_back(Place(cluster, client))
    finally:
        client.close()


def there_and_back(place: Place) -> None:
    """Ours compacts, Java's reads and compacts, ours reads, Java's compacts by its other way, ours reads."""
    cluster = place.cluster
    place.start_ours()
    place.compacted("CRC32C")
    assert moved_bytes(cluster) >= ENTRIES * SIZE / 2
    assert cluster.stop_ours(0) == 0

    place.start_java()
    place.read()
    place.compacted("MAC")
    cluster.stop_java(0)

    place.start_ours()
    place.read()
    cluster.stop_ours(0, kill=True)

    place.start_java(useTransactionalCompaction="true")
    place.read()
    place.compacted("CRC32")
    cluster.stop_java(0, kill=True)

    place.start_ours()
    place.read()
    assert cluster.stop_ours(0) == 0
    assert not list(place.directory.glob("*.compact*"))
