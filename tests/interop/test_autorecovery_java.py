"""Our auto recovery among Java bookies: alone, under Java's auditor, over Java's worker; and kill -9 of each."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.interop.auto_recovery import RecoveryProcess, busiest, naming, queue, repaired, votes, wait_for
from tests.interop.java_cluster import JavaCluster, running

pytestmark = pytest.mark.java
REPAIR_TIMEOUT_S = 300
ENTRIES = 2000


@pytest.fixture
def cluster() -> Iterator[JavaCluster]:
    yield from running(5)


def write(cluster: JavaCluster, entries: int, *options: str) -> int:
    return int(cluster.client("write", f"--entries={entries}", "--size=500", *options)["ledger"])


def open_ledger_on(cluster: JavaCluster, bookie: str) -> int | None:
    """A ledger whose writer was killed, if the bookie is in its ensemble."""
    ledger = write(cluster, 700, "--e=3", "--qw=3", "--qa=2", "--end=halt")
    return ledger if ledger in naming(cluster, bookie) else None


def assert_readable(cluster: JavaCluster, ledger: int, digest: str, entries: int = ENTRIES) -> None:
    answer = cluster.client("read", f"--ledger={ledger}", f"--digest={digest}", "--recover=false")
    assert (answer["wrong"], answer["entries"]) == (0, entries), answer


def test_repairs_a_java_cluster(cluster: JavaCluster) -> None:
    digests = ("MAC", "CRC32", "CRC32C", "DUMMY")
    written = [(d, write(cluster, ENTRIES, "--e=3", "--qw=2", "--qa=2", f"--digest={d}")) for d in digests]
    written.append(("CRC32C", write(cluster, ENTRIES, "--e=3", "--qw=3", "--qa=2", "--digest=CRC32C")))
    dead = cluster.java_id(0)
    left_open = wait_for(lambda: open_ledger_on(cluster, dead), REPAIR_TIMEOUT_S, "an open ledger on it")
    with RecoveryProcess(cluster, "ours", java=False) as ours:
        cluster.stop_java(0, kill=True)
        wait_for(lambda: repaired(cluster, dead), REPAIR_TIMEOUT_S, "the repair")
        assert ours.stop() == 0, ours.text
    cluster.stop_java(1, kill=True)
    for digest, ledger in written:
        assert_readable(cluster, ledger, digest)
    answer = cluster.client("read", f"--ledger={left_open}", "--recover=false")
    assert (answer["closed"], answer["entries"]) == (True, 700)


def test_java_audits_we_replicate_and_take_over_when_java_is_killed(cluster: JavaCluster) -> None:
    ledgers = [write(cluster, ENTRIES, "--e=3", "--qw=2", "--qa=2", "--digest=CRC32") for _ in range(6)]
    # Java's own worker is so slow that it cannot take all the ledgers before ours has one
    with RecoveryProcess(cluster, "javas", java=True, replicationRateByBytes=400_000) as javas:
        wait_for(lambda: javas.bookie_id in cluster.shell("whoisauditor"), REPAIR_TIMEOUT_S, "Java's auditor")
        with RecoveryProcess(cluster, "ours", java=False) as ours:
            first = busiest(
                cluster
            )  # 18 places on 5 bookies: it has 4 ledgers at least, and Java's takes one at a time
            dead = cluster.java_id(first)
            cluster.stop_java(first, kill=True)
            wait_for(lambda: repaired(cluster, dead), REPAIR_TIMEOUT_S, "the repair")
            assert "is the auditor" not in ours.text  # Java's marked them
            # the line is written before the mark goes
            wait_for(lambda: "bkrecovery.worker ledger " in ours.text, REPAIR_TIMEOUT_S, "our share of the repair")
            javas.kill()
            wait_for(lambda: "is the auditor" in ours.text, REPAIR_TIMEOUT_S, "our turn to audit")
            second = (first + 1) % 5
            cluster.stop_java(second, kill=True)
            wait_for(lambda: repaired(cluster, cluster.java_id(second)), REPAIR_TIMEOUT_S, "the second repair")
            assert ours.stop() == 0, ours.text
    for ledger in ledgers:
        assert_readable(cluster, ledger, "CRC32")


def test_we_audit_java_replicates_and_takes_over_when_we_are_killed(cluster: JavaCluster) -> None:
    ledgers = [write(cluster, ENTRIES, "--e=3", "--qw=3", "--qa=2", "--digest=CRC32C") for _ in range(8)]
    first = busiest(cluster)
    dead = cluster.java_id(first)
    assert naming(cluster, dead)
    # so slow that it never ends: it holds the locks of what it copies until it is killed
    with RecoveryProcess(cluster, "ours", java=False, replicationRateByBytes=1000) as ours:
        wait_for(lambda: "is the auditor" in ours.text, REPAIR_TIMEOUT_S, "our auditor")
        with RecoveryProcess(cluster, "javas", java=True) as javas:
            cluster.stop_java(first, kill=True)
            wait_for(lambda: queue(cluster), REPAIR_TIMEOUT_S, "our marks")
            # the first mark is seen before the last is made; how many ledgers it tells depends on how many the check
            # of all ledgers, which every new auditor makes, has marked and Java has repaired by then
            wait_for(
                lambda: "ledgers are on them" in ours.text.partition("bookies: lost")[2], REPAIR_TIMEOUT_S, "marks"
            )
            ours.kill()
            wait_for(lambda: repaired(cluster, dead), REPAIR_TIMEOUT_S, "Java's repair")
            wait_for(lambda: javas.bookie_id in cluster.shell("whoisauditor"), REPAIR_TIMEOUT_S, "Java's turn")
    cluster.stop_java((first + 1) % 5, kill=True)
    for ledger in ledgers:
        assert_readable(cluster, ledger, "CRC32C")


@pytest.fixture
def only_ours() -> Iterator[JavaCluster]:
    yield from running(0)


def test_inside_our_bookies_and_decommission(only_ours: JavaCluster) -> None:
    cluster = only_ours
    for index in range(4):
        cluster.start_ours(index, autoRecoveryDaemonEnabled="true", openLedgerRereplicationGracePeriod=1000)
    ledger = write(cluster, ENTRIES, "--e=3", "--qw=3", "--qa=2", "--digest=CRC32C")
    url = f"http://127.0.0.1:{cluster.bookie_port + 50 + 60}/metrics"  # of the first bookie
    with urllib.request.urlopen(url, timeout=REPAIR_TIMEOUT_S) as answer:
        names = {line.partition(" ")[0].partition("{")[0] for line in answer.read().decode().splitlines()}
    assert {"replication_auditor_NUM_LEDGERS_CHECKED", "replication_replication_worker_NUM_ENTRIES_READ"} < names
    wait_for(lambda: len(votes(cluster)) == 4, REPAIR_TIMEOUT_S, "four votes")  # they are cast after `ready`
    index = next(i for i in range(4) if naming(cluster, cluster.our_id(i)))
    dead = cluster.our_id(index)
    assert cluster.bkctl("bookie", "decommission", dead, "--yes").returncode == 3  # it is running
    cluster.stop_ours(index, kill=True)
    wait_for(lambda: repaired(cluster, dead), REPAIR_TIMEOUT_S, "the repair")
    assert_readable(cluster, ledger, "CRC32C")
    assert cluster.bkctl_json("bookie", "decommission", dead, "--yes")["items"] == []
    assert dead not in [row["bookie_id"] for row in cluster.bkctl_json("bookie", "list")["items"]]
    assert cluster.bkctl_json("ledger", "check", ledger, "--percentage", 100)["items"] == []
    assert [cluster.stop_ours(i) for i in list(cluster.ours)] == [0, 0, 0]
