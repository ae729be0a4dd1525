"""`bkctl dev down`: a cluster that is stopped already, and --delete with its plan."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.local.cluster import LocalCluster

from bkctl.cli.config import LOCAL_CLUSTER_FILE
from bkctl.cli.dev import _local
from tests.command_line import bkctl
from tests.unit.cli.test_run import env


def test_a_stopped_cluster_keeps_its_data_and_its_record_is_removed(cluster: Path, tmp_path: Path) -> None:
    own = env()
    own.environ = {"BKCTL_STATE_DIR": str(tmp_path / "state")}
    _local.announce(own, LocalCluster.load(cluster, {}))
    answer = bkctl("dev", "down", "-o", "json", environ=own.environ)
    assert (answer.code, answer.stderr) == (0, "")
    assert [item["state"] for item in answer.json()["items"]] == ["stopped", "stopped"]
    assert (cluster / "bookie-1").is_dir()
    assert not (tmp_path / "state" / LOCAL_CLUSTER_FILE).exists()


def test_delete_needs_confirmation(cluster: Path) -> None:
    delete = ("dev", "down", "--delete", "--dir", cluster)
    refused = bkctl(*delete)
    assert (refused.code, refused.stdout) == (3, "")
    plan = bkctl(*delete, "--dry-run", "-o", "json").json()["plan"]
    assert plan["subject"] == "grapes"
    assert f"remove {cluster / 'bookie-1'}" in plan["steps"]
    assert not any(step.startswith("stop ") for step in plan["steps"]), "no service is running"
    assert (cluster / "bookie-1").is_dir()


def test_delete_removes_the_services_and_no_other_file(cluster: Path) -> None:
    answer = bkctl("dev", "down", "--delete", "--dir", cluster, "--yes", "-o", "name")
    assert (answer.code, answer.stdout.splitlines()) == (0, ["zookeeper", "bookie 1"])
    assert [path.name for path in cluster.iterdir()] == ["mine"]


def test_a_directory_without_a_cluster_is_not_found(tmp_path: Path) -> None:
    answer = bkctl("dev", "down", "--dir", tmp_path / "none", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "not_found")
