"""`bkctl dev up`: requests that it rejects before it starts a process; tests/e2e start real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.local.cluster import LocalCluster

from tests.command_line import bkctl
from tests.unit.cli.dev.conftest import register


@pytest.mark.parametrize("options", [("--bookies", 0), ("--bookies", 51), ("--brokers", -1), ("--brokers", 1000)])
def test_a_number_of_services_that_is_not_possible_is_a_usage_error(tmp_path: Path, options: tuple[str, int]) -> None:
    answer = bkctl("dev", "up", *options, "--dir", tmp_path / "new")
    assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
    assert not (tmp_path / "new").exists()


def test_a_cluster_that_is_running_is_a_conflict(cluster: Path, tmp_path: Path) -> None:
    register(LocalCluster.load(cluster, {}))
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state")}
    answer = bkctl("dev", "up", "--bookies", 1, "--dir", cluster, "-o", "json", environ=environ)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (5, "", "already_exists")
    assert not (tmp_path / "state").exists(), "the record of the cluster started last is not changed"


def test_a_state_file_that_is_damaged_is_bad_bytes(cluster: Path) -> None:
    (cluster / "cluster.json").write_text('{"services": [1]}')
    answer = bkctl("dev", "up", "--dir", cluster, "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (8, "", "corrupt")
