"""Decisions and files of a local cluster, without starting a process; the real thing is in tests/e2e."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from bkdaemon.local import cluster
from bkdaemon.local.cluster import STATE_FILE, LocalCluster, Service, bookie_configuration, free_ports
from bkdaemon.local.process import Process, birth_of

from bkctl.errors import Corrupt, NotFound, Refused, UsageError
from tests.interop.java_cluster import PORT_RANGE, PORT_RANGES, PORTS_FROM


def test_ports_are_free_and_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", ports[0]))


def test_no_port_is_handed_out_again_soon() -> None:
    ports = [port for _ in range(40) for port in free_ports(20)]
    assert len(set(ports)) == len(ports)


def test_processes_that_search_at_the_same_time_find_different_ports() -> None:
    look = "from bkdaemon.local.cluster import free_ports; print(*free_ports(18))"
    processes = [subprocess.Popen([sys.executable, "-c", look], stdout=subprocess.PIPE) for _ in range(8)]
    ports = [port for process in processes for port in process.communicate()[0].split()]
    assert (len(ports), len(set(ports))) == (8 * 18, 8 * 18)


def test_the_ports_are_neither_the_tests_nor_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = map(int, cluster.OUTGOING_PORTS.read_text().split())
    tests = range(PORTS_FROM, PORTS_FROM + PORT_RANGE * PORT_RANGES)
    for others in (tests, range(first, last + 1)):
        assert not set(cluster.PORTS) & set(others)
    told = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(cluster, "OUTGOING_PORTS", told)
    told.write_text(f"10000\t{cluster.PORTS.stop - 101}\n")
    monkeypatch.setattr(cluster, "_turn", itertools.count(cluster.PORTS.stop - 150 - cluster.PORTS.start))
    assert min(free_ports(20)) >= cluster.PORTS.stop - 100
    told.write_text("1024\t65535\n")  # no port is left then: any will do
    assert len(free_ports(3)) == 3


def test_a_plan_and_a_bigger_one(tmp_path: Path) -> None:
    first = LocalCluster.plan(tmp_path, 2, {})
    assert [s.name for s in first.services] == ["zookeeper", "bookie 1", "bookie 2"]
    first._keep(first.bookies[0], Process(os.getpid(), "never"))
    again = LocalCluster.plan(tmp_path, 3, {})
    assert [s.port for s in again.services[:3]] == [s.port for s in first.services]
    assert [s.name for s in again.services] == ["zookeeper", "bookie 1", "bookie 2", "bookie 3"]
    assert again.metadata_uri == f"zk+hierarchical://127.0.0.1:{first.zookeeper.port}/ledgers"
    assert not again.bookies[0].running
    for count in (0, 51):
        with pytest.raises(UsageError):
            LocalCluster.plan(tmp_path, count, {})


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        LocalCluster.load(tmp_path, {})
    (tmp_path / STATE_FILE).write_text('{"services": [1]}')
    with pytest.raises(Corrupt):
        LocalCluster.load(tmp_path, {})
    with pytest.raises(NotFound):
        LocalCluster.plan(tmp_path / "new", 1, {}).find("bookie", 2)


def test_a_recycled_process_id_is_neither_stopped_nor_killed(tmp_path: Path) -> None:
    cluster = LocalCluster.plan(tmp_path, 1, {})
    cluster._keep(cluster.bookies[0], Process(os.getpid(), "never"))
    assert asyncio.run(cluster.kill("bookie", 1)) is False
    assert asyncio.run(cluster.stop("bookie", 1)) is True


def test_delete_removes_only_directories_of_the_cluster(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    (home / "bookie-1").mkdir(parents=True)
    (home / "mine").mkdir()
    cluster = LocalCluster.plan(home, 1, {})
    birth = birth_of(os.getpid())
    assert birth is not None
    cluster._keep(cluster.bookies[0], Process(os.getpid(), birth))
    with pytest.raises(Refused):
        cluster.delete()
    cluster._keep(cluster.bookies[0], Process(os.getpid(), "never"))
    state = json.loads((home / STATE_FILE).read_text())
    state["services"][1]["directory"] = str(home / "mine")
    (home / STATE_FILE).write_text(json.dumps(state))
    LocalCluster.load(home, {}).delete()
    assert [p.name for p in home.iterdir()] == ["mine"]


def test_the_configuration_of_a_bookie_has_its_ports_and_directories() -> None:
    text = bookie_configuration(Service("bookie", 1, 3181, 3182, 3183, "/d"), "zk://h/l")
    keys = dict(line.split("=", 1) for line in text.splitlines())
    assert keys["bookiePort"] == "3181"
    assert keys["ledgerStorageClass"] == "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
    assert keys["metadataServiceUri"] == "zk://h/l"
    assert keys["journalDirectories"] == "/d/journal"
