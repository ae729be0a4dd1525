"""Audits on S3: collectors by pyarrow, runs by Hadoop's client, over one server; errors of both in one line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from tests.golden import Golden
from tests.interop import s3_server
from tests.interop.hadoop_cluster import SMALL_JVM, s3_jars
from tests.interop.java_cluster import require_java
from tests.interop.s3_server import BUCKET, S3Server
from tests.unit.inspect.audit.test_collect import finding
from tests.unit.inspect.audit.test_run import ZK_TREE, change_a_byte
from tests.unit.inspect.audit.test_session import closed_port

pytestmark = [pytest.mark.java, pytest.mark.slow]

LIMIT_S = 600
FACTS = f"s3a://{BUCKET}/facts"
RUN = f"s3a://{BUCKET}/runs/1"
CHECKS = ("--check", "digests", "--check", "log-records", "--check", "cookies")
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


class Audits(NamedTuple):
    """A server, a damaged bookie, and the folder of local runs."""

    server: S3Server
    bookie: Path
    folder: Path

    def conf(self, url: str | None = None) -> list[str]:
        """The settings of Spark for Hadoop's client of S3."""
        settings = {
            **SETTINGS,
            "spark.jars": ",".join(map(str, s3_jars())),
            "spark.hadoop.fs.s3a.endpoint": url or self.server.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
        return [word for key, value in settings.items() for word in ("--spark-conf", f"{key}={value}")]

    def process(self, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bkctl", "audit", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**self.server.environ, "BKCTL_STATE_DIR": str(self.folder / "state"), **environ},
        )

    def bkctl(self, *words: object, code: int = 0) -> list[Any]:
        """The rows of a command."""
        done = self.process(*words, "-o", "jsonl")
        assert done.returncode == code, done.stderr
        return list(map(json.loads, done.stdout.splitlines()))


@pytest.fixture(scope="module")
def audits(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audits]:
    require_java()
    folder = tmp_path_factory.mktemp("s3")
    bookie = golden.unpack("bookie0", folder / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    with s3_server.running(folder) as server:
        yield Audits(server, bookie, folder)


@pytest.fixture(scope="module")
def kept(audits: Audits) -> list[Any]:
    """What a run over collected facts finds; both are in the bucket."""
    (row,) = audits.bkctl("collect", "--dirs", audits.bookie, "--to", FACTS, "--metadata", ZK_TREE)
    assert row["manifest"].startswith(f"{FACTS}/bookie=")
    words = ("--facts", FACTS, "--metadata", ZK_TREE, "--to", RUN, *CHECKS)
    return audits.bkctl("run", "--master", "local[2]", *audits.conf(), *words, code=1)


def test_a_run_over_facts_in_s3_has_the_findings_of_an_offline_run(audits: Audits, kept: list[Any]) -> None:
    words = ("--offline", audits.bookie, "--metadata", ZK_TREE, "--to", audits.folder / "local", *CHECKS)
    conf = [word for key, value in SETTINGS.items() for word in ("--spark-conf", f"{key}={value}")]
    offline = audits.bkctl("run", "--master", "local[2]", *conf, *words, code=1)
    assert "BKC107" in {row["code"] for row in offline}
    assert sorted(map(finding, kept), key=repr) == sorted(map(finding, offline), key=repr)
    assert audits.bkctl("diff", audits.folder / "local", RUN, *audits.conf()) == []


def test_a_run_in_s3_is_shown_and_queried(audits: Audits, kept: list[Any]) -> None:
    shown = audits.bkctl("show", RUN, *audits.conf())
    assert sorted(map(finding, shown), key=repr) == sorted(map(finding, kept), key=repr)
    (row,) = audits.bkctl("sql", "select count(*) as n from ledgers", "--run", RUN, *audits.conf())
    assert row == {"n": 35}


def test_a_collection_uses_the_manifest_of_the_one_before(audits: Audits, kept: list[Any]) -> None:
    (row,) = audits.bkctl("collect", "--dirs", audits.bookie, "--to", FACTS, "--metadata", ZK_TREE)
    assert row["files_kept"] > 0


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", ["collect", "show", "run"])
@pytest.mark.parametrize(
    ("what", "code"), [("no bucket", 4), ("keys that are not valid", 3), ("server down", 6), ("server silent", 6)]
)
def test_an_error_of_s3_is_one_line_with_its_exit_code(
    audits: Audits, silent: str, command: str, what: str, code: int
) -> None:
    place = "s3a://nowhere/x" if what == "no bucket" else f"s3a://{BUCKET}/errors"
    url = {"server down": f"http://127.0.0.1:{closed_port()}", "server silent": silent}.get(what, audits.server.url)
    words = {
        "collect": ("collect", "--dirs", audits.bookie, "--to", place),
        "show": ("show", place, *audits.conf(url)),
        "run": ("run", "--offline", audits.bookie, "--metadata", "none", "--to", place, *CHECKS, *audits.conf(url)),
    }[command]
    with ExitStack() as stack:
        if code == 3:
            stack.enter_context(audits.server.refusing())
        done = audits.process(*words, AWS_ENDPOINT_URL=url)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]  # of the JVM
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(lines) == 1, done.stderr
    assert place in lines[0]
    assert lines[0].startswith("error: cannot ")
