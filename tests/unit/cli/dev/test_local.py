"""What the verbs of `bkctl dev` share: the directory, the recorded URI, kinds of services, the form of a service."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bkdaemon.local.cluster import LocalCluster

from bkctl.cli.config import LOCAL_CLUSTER_FILE, local_cluster_uri
from bkctl.cli.dev import _local
from bkctl.cli.env import Env
from bkctl.errors import UsageError
from tests.command_line import bkctl
from tests.unit.cli.dev.conftest import register
from tests.unit.cli.test_run import env


@pytest.fixture
def own(tmp_path: Path) -> Env:
    found = env()
    found.environ = {"BKCTL_STATE_DIR": str(tmp_path / "state")}
    return found


def test_the_directory_is_that_of_the_option_the_last_cluster_or_the_default(
    own: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _local.directory_of(own, Path("here")) == tmp_path / "here"
    assert _local.directory_of(own, None) == tmp_path / "state/cluster"
    _local.announce(own, LocalCluster.plan(tmp_path / "grapes", 1, {}))
    assert _local.directory_of(own, None) == tmp_path / "grapes"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"directory": 5}'])
def test_a_record_that_is_not_valid_is_ignored(own: Env, text: str) -> None:
    own.state_dir.mkdir()
    (own.state_dir / LOCAL_CLUSTER_FILE).write_text(text)
    assert _local.directory_of(own, None) == own.state_dir / "cluster"


def test_the_uri_is_recorded_until_its_own_cluster_is_stopped(own: Env, tmp_path: Path) -> None:
    cluster, other = (LocalCluster.plan(tmp_path / name, 1, {}) for name in ("grapes", "other"))
    _local.announce(own, cluster)
    assert local_cluster_uri(own.environ) == cluster.metadata_uri
    assert (own.state_dir / LOCAL_CLUSTER_FILE).stat().st_mode & 0o077 == 0
    _local.withdraw(own, other)
    assert local_cluster_uri(own.environ) == cluster.metadata_uri
    _local.withdraw(own, cluster)
    assert local_cluster_uri(own.environ) is None


def test_a_kind_that_does_not_exist_is_a_usage_error(cluster: Path) -> None:
    assert [_local.check_kind(kind) for kind in _local.KINDS] == list(_local.KINDS)
    with pytest.raises(UsageError, match="'proxy' is not a kind of service"):
        _local.check_kind("proxy")
    for verb in ("kill", "stop", "start"):
        answer = bkctl("dev", verb, "proxy", "1", "--dir", cluster)
        assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
        assert bkctl("dev", verb, "bookie", "9", "--dir", cluster).code == 4


def test_a_service_has_the_ports_of_its_kind(tmp_path: Path) -> None:
    planned = LocalCluster.plan(tmp_path, 1, {}, broker_count=1)
    rows = {str(item["kind"]): item for item in map(_local.row, planned.services)}
    assert {kind: item["http_port"] is None for kind, item in rows.items()} == {
        "zookeeper": True, "bookie": False, "broker": False,
    }  # fmt: skip
    assert [kind for kind, item in rows.items() if item["grpc_port"] is not None] == ["bookie"]
    assert rows["broker"]["service_url"] == f"pulsar://127.0.0.1:{rows['broker']['port']}"
    assert {item["state"] for item in rows.values()} == {"stopped"}
    assert {item["pid"] for item in rows.values()} == {None}
    register(planned)
    bookie = _local.row(planned.bookies[0])
    assert (bookie["state"], bookie["pid"]) == ("running", os.getpid())


def test_status_exits_with_1_if_a_service_is_not_running(cluster: Path) -> None:
    answer = bkctl("dev", "status", "--dir", cluster, "-o", "json")
    assert (answer.code, [item["state"] for item in answer.json()["items"]]) == (1, ["stopped", "stopped"])
    register(LocalCluster.load(cluster, {}))
    assert bkctl("dev", "status", "--dir", cluster).code == 0
    assert json.loads((cluster / "cluster.json").read_text())["services"]
