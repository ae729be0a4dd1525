"""An audit on a Spark master with two workers, each a process of its own: what is sent to them can be sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from tests.golden import FOLDER, Golden

TIMEOUT_S = 600
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
pytestmark = pytest.mark.slow


def test_two_workers(golden: Golden, tmp_path: Path) -> None:
    settings = [word for name, value in SETTINGS.items() for word in ("--spark-conf", f"{name}={value}")]
    command = [sys.executable, "-m", "bkctl", "audit", "run", "--master", "local-cluster[2,1,1024]", *settings]
    sources = ["--offline", str(golden.bookie("bookie0")), "--metadata", str(FOLDER / "zk_tree.json")]
    done = subprocess.run(
        [*command, *sources, "--check", "digests", "--to", str(tmp_path / "run"), "-o", "jsonl"],
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "nothing is wrong with these digests"
    about = json.loads((tmp_path / "run/run.json").read_text())
    assert about["files_read"] == 7
    assert about["counts"] == {}
