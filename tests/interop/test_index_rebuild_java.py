"""A lost index is rebuilt on Java's directories and on ours, and either bookie serves every entry from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.interop.java_cluster import JavaCluster, running
from tests.interop.test_directories_java import holds, is_fenced, start_ours, write

pytestmark = pytest.mark.java


@pytest.fixture
def cluster() -> Iterator[JavaCluster]:
    yield from running(1)


def rebuild(cluster: JavaCluster, tmp_path: Path, *lost: str) -> None:
    """Removes databases of the index, then rebuilds it."""
    where = cluster.java_directory(0)
    conf = tmp_path / "bk_server.conf"
    keys = {"journalDirectories": "journal", "ledgerDirectories": "ledgers", "indexDirectories": "index"}
    conf.write_text("".join(f"{key}={where / name}\n" for key, name in keys.items()))
    for name in lost:
        shutil.rmtree(where / "index/current" / name)
    assert bkctl("index", "check", "-c", conf).code == 8
    answer = bkctl("index", "rebuild", "-c", conf, "--yes", "-o", "json")
    assert (answer.code, answer.json()["items"][0]["without_key"]) == (0, 0), answer.stderr
    found = bkctl("index", "check", "-c", conf, "-o", "json")
    assert (found.code, found.json()["items"]) == (0, []), found.stderr


def test_both_bookies_serve_from_a_rebuilt_index(cluster: JavaCluster, tmp_path: Path) -> None:
    closed = write(cluster)
    left_open = write(cluster, "--end=halt", "--digest=MAC", "--password=p")
    fenced = write(cluster, "--end=halt")
    holds(cluster, fenced)
    cluster.stop_java(0, kill=True)

    rebuild(cluster, tmp_path, "locations", "ledgers")
    cluster.start_java(0)
    holds(cluster, closed)
    holds(cluster, left_open, "--digest=MAC", "--password=p")
    is_fenced(cluster, fenced)
    again = write(cluster)
    cluster.stop_java(0, kill=True)

    rebuild(cluster, tmp_path, "locations")
    start_ours(cluster)
    for ledger in (closed, again):
        holds(cluster, ledger)
    is_fenced(cluster, fenced)
    ours = write(cluster, entries=1000, size=3000)
    cluster.stop_ours(0, kill=True)

    rebuild(cluster, tmp_path, "locations", "ledgers")
    cluster.start_java(0)
    for ledger, entries in ((closed, 300), (again, 300), (ours, 1000)):
        holds(cluster, ledger, entries=entries)
    is_fenced(cluster, fenced)
    assert write(cluster) > ours
