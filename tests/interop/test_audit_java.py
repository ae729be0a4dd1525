"""Live audits of Java's bookies and one of ours: nothing is found on a sound cluster, also while it changes; then what
was broken on one stopped bookie is found, each by ledger, entry and bookie, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Outcome, Request, run
from bkinspect.audit.results import opened
from rocksdict import Options, Rdict

from bkctl.codec.ledger_index import decode_location_key, location_key
from tests.interop.java_cluster import JAVAREF, JavaCluster, payload, running

pytestmark = [pytest.mark.java, pytest.mark.slow]
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss2m"
ENTRIES = 120
SIZE = 700
WRITTEN = {"CRC32C": 4, "CRC32": 1, "MAC": 2}
"""Ledgers by digest; one of them goes while the audit reads."""


class Placed(NamedTuple):
    """A ledger, and its only ensemble."""

    ledger_id: int
    bookies: list[str]

    def held_by(self, bookie: str) -> list[int]:
        """The entries that belong on a bookie."""
        index = self.bookies.index(bookie)
        return [entry_id for entry_id in range(ENTRIES) if (index - entry_id) % len(self.bookies) < 2]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """The session of this process, or one that ends with this module."""
    from bkinspect.audit.session import session
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession() is not None
    conf = {
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    made = session("local[2]", conf)
    yield made
    if not there:
        made.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    for cluster in running(3):
        cluster.start_ours(0)
        yield cluster


@pytest.fixture(scope="module")
def everything(cluster: JavaCluster) -> list[Placed]:
    """Closed ledgers of Java's client, three bookies of four each, two copies of every entry."""
    ids: list[int] = []
    for digest, number in WRITTEN.items():
        options = (f"--entries={ENTRIES}", f"--size={SIZE}", f"--digest={digest}", "--password=secret")
        rows = cluster.client_lines("write", f"--ledgers={number}", "--e=3", "--qw=2", "--qa=2", *options)
        ids += dict.fromkeys(int(row["ledger"]) for row in rows)
    assert len(ids) == sum(WRITTEN.values())
    shown = cluster.bkctl_json("ledger", "show", *ids)["items"]
    assert [len(item["ensembles"]) for item in shown] == [1] * len(ids)
    return [Placed(item["ledger_id"], item["ensembles"][0]["bookies"]) for item in shown]


@pytest.fixture(scope="module")
def passing(everything: list[Placed]) -> int:
    """A ledger that is deleted while it is read."""
    return everything[0].ledger_id


@pytest.fixture(scope="module")
def ledgers(everything: list[Placed]) -> list[Placed]:
    """Those that stay."""
    return everything[1:]


def audit(
    spark: Any, cluster: JavaCluster, to: Path, *checks: str, at: Callable[[str], None] = lambda stage: None
) -> tuple[Outcome, set[tuple[Any, ...]]]:
    """A run, and its findings that are more than worth knowing; at hears what is being done."""
    request = Request(Sources(cluster.uri, live_copies=True), to, checks)
    outcome = run(spark, request, lambda stage, done, total: at(stage) if (done, total) == (0, 0) else None)
    with opened(to) as results:
        found = [item for item in results.findings() if item["severity"] != "info"]
    names = ("code", "ledger_id", "entry_id", "bookie_id")
    return outcome, {tuple(item.get(name) for name in names) for item in found}


def test_nothing_is_found_while_a_cluster_changes(
    spark: Any, cluster: JavaCluster, passing: int, tmp_path: Path
) -> None:
    done: list[str] = []
    one_at_a_time = threading.Lock()  # the thread that looks at Spark's progress tells the stage too
    options = ("--e=3", "--qw=2", "--qa=2", "--entries=1000000", "--rate=50", f"--size={SIZE}", "--window=50")
    # Between two entries it waits without sleeping: no core is to go to that.
    command = [
        "nice",
        "-n",
        "19",
        sys.executable,
        JAVAREF,
        "--home",
        cluster.home,
        "--zk-port",
        cluster.zookeeper_port,
        "client",
    ]
    writer = subprocess.Popen(
        [*map(str, command), "write", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def disturb(stage: str) -> None:
        with one_at_a_time:
            if stage == "entries of running bookies" and not done:
                done.append(stage)
                cluster.bkctl("ledger", "delete", passing, "--yes")  # metadata has been read
                cluster.stop_ours(0, kill=True)  # the writer takes another bookie, if it had this one

    try:
        assert writer.stdout is not None
        assert writer.stdout.readline().startswith(b"{"), "it has its ledger"
        outcome, found = audit(spark, cluster, tmp_path / "moving", at=disturb)
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.communicate(timeout=60)
        cluster.start_ours(0)
    assert done
    ours = cluster.our_id(0)
    assert found <= {("BKC403", None, None, ours)}, "a bookie that is gone may be told, its copies not"
    assert ours in " ".join(outcome.notes), "it was not read whole"
    assert cluster.java_id(0) not in " ".join(outcome.notes), "the others were"


def lose(index: Path, ledger_id: int) -> None:
    """Takes a ledger's entries out of the index of a stopped bookie."""
    (folder,) = index.rglob("locations")
    options = Options(raw_mode=True)
    database = Rdict(str(folder), options)
    gone = []
    for key in database.keys(from_key=location_key(ledger_id, 0)):
        if decode_location_key(key, source=str(folder))[0] != ledger_id:
            break
        gone.append(key)
    for key in gone:
        del database[key]
    database.close()
    assert gone


def rot(ledgers: Path, ledger_id: int, entry_id: int) -> None:
    """Changes a bit of an entry's payload in the logs of a stopped bookie."""
    wanted = payload(ledger_id, entry_id, SIZE)
    logs = [log for log in ledgers.rglob("*.log") if wanted in log.read_bytes()]
    assert logs, "it is flushed"
    for log in logs:
        data = bytearray(log.read_bytes())
        data[data.index(wanted) + SIZE // 2] ^= 0x10
        log.write_bytes(data)


def test_what_was_broken_is_found_and_nothing_else(
    spark: Any, cluster: JavaCluster, ledgers: list[Placed], tmp_path: Path
) -> None:
    java, ours = cluster.java_id(0), cluster.our_id(0)
    lost = next(one for one in ledgers if java in one.bookies)
    rotten = next(one for one in ledgers if java in one.bookies and one is not lost)
    cluster.stop_java(0)
    lose(cluster.java_directory(0), lost.ledger_id)
    bad_entry = rotten.held_by(java)[0]
    rot(cluster.java_directory(0), rotten.ledger_id, bad_entry)
    cluster.start_java(0)
    expected = {
        ("BKC401", lost.ledger_id, lost.held_by(java)[0], java),
        ("BKC405", rotten.ledger_id, bad_entry, java),
    }
    ends = {
        *(("BKC401", lost.ledger_id, entry_id, java) for entry_id in (lost.held_by(java)[0], lost.held_by(java)[-1])),
        ("BKC405", rotten.ledger_id, bad_entry, java),
    }
    own = next((one for one in ledgers if ours in one.bookies and one not in (lost, rotten)), None)
    if own is not None:  # chance may place all of them on Java's
        cluster.stop_ours(0)
        rot(cluster.our_directory(0), own.ledger_id, own.held_by(ours)[5])
        cluster.start_ours(0)
        expected.add(("BKC405", own.ledger_id, own.held_by(ours)[5], ours))
    _, found = audit(spark, cluster, tmp_path / "broken")
    assert found == expected
    with opened(tmp_path / "broken") as results:
        places = {item["bookie_id"]: item for item in results.findings() if item["code"] == "BKC405"}
    assert places[java].get("file") is None, "by BookKeeper's protocol nobody tells"
    if own is not None:
        log = Path(places[ours]["file"]).read_bytes()
        at = places[ours]["offset"]
        assert log[at : at + 8] == own.ledger_id.to_bytes(8, "big"), "our bookie tells the place"
    outcome, found = audit(spark, cluster, tmp_path / "ends", "ends")
    assert found == ends
    assert not (tmp_path / "ends" / f"facts-{outcome.as_of_ms}" / "ledgers").exists(), "nothing else was read"
    told = spark.read.format("bookkeeper.ends").options(metadata=cluster.uri, tasks="2").load().collect()
    assert {(row.ledger_id, row.entry_id, row.bookie_id) for row in told} == {one[1:] for one in ends}, "by tasks"
