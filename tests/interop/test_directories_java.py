"""Directories go from Java's bookie to ours and back, after clean stops and after kill -9: nobody loses an entry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.java_cluster import DEFAULT_VERSION, JavaCluster, running

pytestmark = pytest.mark.java

ONE = ("--e=1", "--qw=1", "--qa=1")


@pytest.fixture(
    params=[(DEFAULT_VERSION, False), ("4.18.0", True)],
    ids=["4.17.3-stopped", "4.18.0-killed"],
)
def kill_and_cluster(request: pytest.FixtureRequest) -> Iterator[tuple[bool, JavaCluster]]:
    version, kill = request.param
    for cluster in running(1, version=version):
        yield kill, cluster


def start_ours(cluster: JavaCluster) -> None:
    """Our bookie with the id and the directories of Java's bookie 0."""
    where = cluster.java_directory(0)
    cluster.start_ours(
        0,
        bookiePort=cluster.bookie_port,
        journalDirectories=where / "journal",
        ledgerDirectories=where / "ledgers",
        indexDirectories=where / "index",
        httpServerEnabled="false",
    )


def write(cluster: JavaCluster, *flags: str, entries: int = 300, size: int = 700) -> int:
    written = cluster.client("write", f"--entries={entries}", f"--size={size}", *flags, *ONE)
    return int(written["ledger"])


def holds(cluster: JavaCluster, ledger: int, *flags: str, entries: int = 300) -> None:
    read = cluster.client("read", f"--ledger={ledger}", *flags)
    assert (read["entries"], read["wrong"], read["closed"]) == (entries, 0, True), f"ledger {ledger}"


def is_fenced(cluster: JavaCluster, ledger: int) -> None:
    """A normal add by the low-level client is answered EFENCED (-101)."""
    answers = cluster.client_lines(
        "wire", f"--addr=127.0.0.1:{cluster.bookie_port}", f"--ledger={ledger}", "--ops=add:5000:-1:10:10"
    )
    assert answers[-1]["rc"] == -101, answers


def test_to_ours_and_back(kill_and_cluster: tuple[bool, JavaCluster]) -> None:
    kill, cluster = kill_and_cluster
    closed = write(cluster)
    left_open = write(cluster, "--end=halt", "--digest=MAC", "--password=p", "--v2=true")
    fenced = write(cluster, "--end=halt")
    holds(cluster, fenced)
    cluster.stop_java(0, kill=kill)

    start_ours(cluster)
    holds(cluster, closed)
    holds(cluster, left_open, "--digest=MAC", "--password=p")
    is_fenced(cluster, fenced)
    ours_closed = write(cluster, "--v2=true")
    ours_open = write(cluster, "--end=halt", entries=1000, size=3000)
    ours_fenced = write(cluster, "--end=halt", "--digest=CRC32")
    holds(cluster, ours_fenced, "--digest=CRC32")
    cluster.stop_ours(0, kill=kill)

    cluster.start_java(0)
    holds(cluster, closed)
    holds(cluster, ours_closed)
    holds(cluster, ours_open, entries=1000)
    is_fenced(cluster, ours_fenced)
    is_fenced(cluster, fenced)
    again = write(cluster)
    cluster.stop_java(0, kill=kill)

    start_ours(cluster)
    for ledger, entries in ((closed, 300), (ours_closed, 300), (ours_open, 1000), (again, 300)):
        holds(cluster, ledger, entries=entries)
    is_fenced(cluster, ours_fenced)
    assert cluster.stop_ours(0) == 0
    cluster.start_java(0)
    holds(cluster, again)
