"""Whole audits on Spark's masters: a standalone cluster, a server of Spark Connect, an application of spark-submit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import bkinspect.audit
import pyspark
from bkinspect.java import find_java

from tests.golden import Golden
from tests.interop.auto_recovery import wait_for
from tests.unit.inspect.audit.test_job import ZK_TREE, change_a_byte
from tests.unit.inspect.audit.test_session import closed_port, needs_connect
from tests.unit.inspect.audit.test_two_workers import SETTINGS

LIMIT_S = 600
PROGRAMS = Path(pyspark.__file__).parent / "bin"
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
pytestmark = pytest.mark.slow


def environ(tmp_path: Path) -> dict[str, str]:
    home = find_java(os.environ).resolve().parent.parent
    here = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **here, "JAVA_HOME": str(home), "BKCTL_STATE_DIR": str(tmp_path)}


@contextmanager
def program(tmp_path: Path, name: str, *words: str) -> Iterator[Path]:
    """A program of Spark's; yields the file of its output."""
    log = tmp_path / f"{words[-1].rpartition('.')[2].replace('/', '')[:20]}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(PROGRAMS / name), *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environ(tmp_path),
            cwd=tmp_path,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


def said(log: Path, pattern: str) -> str:
    """Waits until a program has printed a pattern."""
    wait_for(lambda: re.search(pattern, log.read_text(errors="replace")), LIMIT_S / 2, pattern)
    match = re.search(pattern, log.read_text(errors="replace"))
    assert match is not None
    return match[0]


def options(settings: dict[str, str], name: str = "--spark-conf") -> list[str]:
    return [word for key, value in settings.items() for word in (name, f"{key}={value}")]


@pytest.fixture
def damaged(golden: Golden, tmp_path: Path) -> Path:
    """A bookie's directories with one changed byte."""
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    return bookie


def audit(tmp_path: Path, damaged: Path, command: Sequence[str], *words: str) -> None:
    """Runs an audit and finds the changed byte."""
    sources = ("--offline", str(damaged), "--metadata", ZK_TREE, "--check", "digests")
    done = subprocess.run(
        [*command, *sources, "--to", str(tmp_path / "run"), "-o", "jsonl", *words],
        capture_output=True,
        timeout=LIMIT_S,
        env=environ(tmp_path),
        text=True,
    )
    assert done.returncode == 1, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]  # spark-submit adds stderr to stdout
    (item,) = map(json.loads, rows)
    assert (item["code"], item["ledger_id"]) == ("BKC107", 3)
    about = json.loads((tmp_path / "run/run.json").read_text())
    assert about["files_read"] == 7


RUN = (sys.executable, "-m", "bkctl", "audit", "run")


def test_an_audit_on_a_standalone_cluster(damaged: Path, tmp_path: Path) -> None:
    master = "org.apache.spark.deploy.master.Master"
    local = ("--host", "127.0.0.1", "--webui-port", "0")
    worker = ("org.apache.spark.deploy.worker.Worker", *local, "--cores", "2", "--memory", "1g", "-d", str(tmp_path))
    with program(tmp_path, "spark-class", master, *local, "--port", str(closed_port())) as log:
        url = said(log, r"spark://127\.0\.0\.1:\d+")
        said(log, "New state: ALIVE")
        with program(tmp_path, "spark-class", *worker, url):
            audit(tmp_path, damaged, RUN, "--master", url, *options({**SETTINGS, **LOOPBACK}))


def test_an_audit_on_a_connect_server(damaged: Path, tmp_path: Path) -> None:
    needs_connect()
    port = closed_port()
    settings = {
        **{name: value for name, value in SETTINGS.items() if "extraJava" not in name},
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.artifact.isolation.enabled": "true",
    }
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]")
    with program(tmp_path, "spark-submit", *server, *options(settings, "--conf"), "spark-internal") as log:
        said(log, "Spark Connect server started")
        audit(tmp_path, damaged, RUN, "--master", f"sc://127.0.0.1:{port}")
        mount = {"spark.hadoop.fs.viewfs.mounttable.x.link./audits": f"file://{tmp_path}"}
        words = ("--master", f"sc://127.0.0.1:{port}", *options(mount), "--full")
        audit(tmp_path, damaged, RUN, *words, "--to", "viewfs://x/audits/run")


def test_an_audit_as_an_application_of_spark_submit(damaged: Path, tmp_path: Path) -> None:
    script = Path(bkinspect.audit.__file__).parent / "__main__.py"
    command = (str(PROGRAMS / "spark-submit"), "--master", "local[2]", *options({**SETTINGS, **LOOPBACK}, "--conf"))
    audit(tmp_path, damaged, (*command, str(script)))
