"""Sessions: which Python runs the workers, which settings win, and one clear error for a master that is not valid."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.session import interpreters

from tests.command_line import bkctl
from tests.golden import FOLDER

ZK_TREE = str(FOLDER / "zk_tree.json")
LIMIT_S = 300
JVM_WARNING = "WARNING: Using incubator modules"
"""Of a module that Spark itself adds."""
READS_LEDGERS = """
import sys
from bkinspect.audit.session import session
spark = session("local[1]", dict(word.split("=", 1) for word in sys.argv[2:]))
print(spark.read.format("bookkeeper.ledgers").option("metadata", sys.argv[1]).load().count())
spark.stop()
"""


def test_the_python_of_settings_wins_over_the_environment_and_that_over_ours() -> None:
    user = {"PYSPARK_PYTHON": "/u/python", "PYSPARK_DRIVER_PYTHON": "/d/python"}
    conf = {"spark.pyspark.python": "/c/python", "spark.pyspark.driver.python": "/e/python"}
    ours = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert interpreters({}, {}) == ours
    assert interpreters(user, {}) == user
    assert interpreters({}, {"spark.pyspark.python": "/c/python"}) == {**ours, "PYSPARK_PYTHON": "/c/python"}
    assert list(interpreters(user, conf).values()) == ["/c/python", "/e/python"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["environment", "setting"])
def test_workers_run_on_the_python_that_the_user_names(way: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho used >> {tmp_path}/used\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environ = {**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if way == "environment":
        environ["PYSPARK_PYTHON"] = str(python)
    words = [f"spark.pyspark.python={python}"] if way == "setting" else []
    done = subprocess.run(
        [sys.executable, "-c", READS_LEDGERS, ZK_TREE, *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environ,
    )
    assert (done.returncode, done.stdout) == (0, "35\n"), done.stderr
    assert (tmp_path / "used").exists()


def needs_connect() -> None:
    """Skips a test where packages of Spark Connect are missing."""
    for name in ("pandas", "grpc_status", "zstandard"):
        pytest.importorskip(name)


def audit(tmp_path: Path, *words: str) -> tuple[int, str]:
    """An audit of nothing but an export, with these words: (exit code, stderr)."""
    answer = bkctl("audit", "run", "--metadata", ZK_TREE, "--offline", tmp_path, "--to", tmp_path / "run", *words)
    assert answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1, answer.stderr
    assert not (tmp_path / "run").exists()
    return answer.code, answer.stderr


@pytest.mark.parametrize(
    "master", ["nothing", "local[x]", "local[2", "spark://host", "spark://", "mesos://h:1", "sc://", "http://h:1", ""]
)
def test_a_master_that_is_not_valid_is_a_usage_error(master: str, tmp_path: Path) -> None:
    code, error = audit(tmp_path, "--master", master)
    assert code == 2
    assert "is not a valid master" in error


def test_yarn_without_the_settings_of_hadoop_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    code, error = audit(tmp_path, "--master", "yarn")
    assert code == 2
    assert "HADOOP_CONF_DIR" in error


def test_a_connect_url_that_is_not_valid_is_a_usage_error(tmp_path: Path) -> None:
    needs_connect()
    code, _ = audit(tmp_path, "--master", "sc://127.0.0.1:1/;token")
    assert code == 2


@pytest.mark.parametrize("setting", ["spark.driver.memory=much", "no-value"])
def test_a_setting_that_is_not_valid_is_a_usage_error(setting: str, tmp_path: Path) -> None:
    code, error = audit(tmp_path, "--master", "local[1]", "--spark-conf", setting)
    assert code == 2
    assert setting in error


def test_connect_without_its_packages_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    code, error = audit(tmp_path, "--master", "sc://127.0.0.1:1")
    assert code == 2
    assert "Spark Connect needs pandas, " in error
    assert "zstandard" in error


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_master_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    code, error = audit(tmp_path, "--timeout", "5", "--master", f"spark://127.0.0.1:{closed_port()}")
    assert code == 6
    assert "does not answer" in error


def test_a_connect_server_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    needs_connect()
    code, error = audit(tmp_path, "--timeout", "2", "--master", f"sc://127.0.0.1:{closed_port()}")
    assert code == 6
    assert "does not answer within 1.5 s" in error


@pytest.mark.slow
def test_a_setting_that_spark_refuses_is_a_usage_error_of_one_line(tmp_path: Path) -> None:
    words = ("--metadata", ZK_TREE, "--offline", str(tmp_path), "--to", str(tmp_path / "run"))
    done = subprocess.run(
        [sys.executable, "-m", "bkctl", "audit", "run", *words, "--spark-conf", "spark.task.cpus=many"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith(JVM_WARNING)]
    assert "spark.task.cpus" in line


@pytest.mark.slow
def test_a_master_that_never_accepts_the_audit_is_unavailable_within_the_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ("--metadata", ZK_TREE, "--offline", str(tmp_path), "--to", str(tmp_path / "run"))
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "bkctl", "audit", "run", *words, "--master", master, "--timeout", "12"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    assert done.returncode == 6, done.stderr
    assert "no answer in time" in done.stderr
    assert "Traceback" not in done.stderr
