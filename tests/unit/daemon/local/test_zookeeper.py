"""The local ZooKeeper: starts, is found again, keeps data and port, says what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bkdaemon.local.zookeeper import ZooKeeperServer, find_jars, find_java, java_version

from bkctl.errors import Conflict, Unavailable, UsageError
from tests.zookeeper_fixture import start_zookeeper


@pytest.mark.zookeeper
def test_it_starts_is_found_again_and_keeps_its_port(tmp_path: Path) -> None:
    server = start_zookeeper(tmp_path / "zk")
    try:
        assert server.answers()
        found = ZooKeeperServer.attach(tmp_path / "zk")
        assert found is not None
        assert (found.pid, found.port, found.alive()) == (server.pid, server.port, True)
        with pytest.raises(Conflict, match=str(server.pid)):
            ZooKeeperServer.start(tmp_path / "zk", environ=os.environ)
        found.stop()  # as another process does
        assert not server.alive()
        assert not found.answers()
        assert ZooKeeperServer.attach(tmp_path / "zk") is None
        again = start_zookeeper(tmp_path / "zk")
        again.kill()
        assert again.port == server.port
    finally:
        server.stop()


@pytest.mark.zookeeper
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    first = start_zookeeper(tmp_path / "a")
    try:
        with pytest.raises(Unavailable, match=r"ended at its start: .*(BindException|Address already in use)"):
            ZooKeeperServer.start(tmp_path / "b", environ=os.environ, port=first.port)
        assert ZooKeeperServer.attach(tmp_path / "b") is None
    finally:
        first.stop()


def test_a_pid_used_by_another_process_is_not_taken_for_the_server(tmp_path: Path) -> None:
    (tmp_path / "zookeeper.json").write_text(f'{{"pid": {os.getpid()}, "port": 1, "began": "0"}}')
    assert ZooKeeperServer.attach(tmp_path) is None
    (tmp_path / "zookeeper.json").write_text('{"pid": ')
    assert ZooKeeperServer.attach(tmp_path) is None
    assert ZooKeeperServer.attach(tmp_path / "none") is None


def make_java(home: Path, release: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").write_text("")
    (home / "bin/java").chmod(0o755)
    (home / "release").write_text(release)
    return home / "bin/java"


def test_java_of_java_home_then_of_path(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", 'IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    new = make_java(tmp_path / "new", 'JAVA_VERSION="21"\n')
    eight = make_java(tmp_path / "eight", 'JAVA_VERSION="1.8.0_402"\n')
    assert [java_version(java) for java in (old, new, eight)] == [11, 21, 8]
    home, path = str(tmp_path / "old"), str(new.parent)
    assert find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)}) == new
    assert find_java({"JAVA_HOME": home, "PATH": path}) == new


def test_without_java_or_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="PySpark") as jars:
        find_jars()
    with pytest.raises(UsageError, match="Java 17") as java:
        find_java({"PATH": str(tmp_path)})
    assert jars.value.hint == java.value.hint == "pip install 'bkctl[local]'"
