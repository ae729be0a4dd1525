"""Audits on S3: collectors by pyarrow, runs by Hadoop's client, over one server; errors of both in one line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
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
from tests.unit.inspect.audit.collection import finding
from tests.unit.inspect.audit.test_job import ZK_TREE, change_a_byte
from tests.unit.inspect.audit.test_session import closed_port

pytestmark = [pytest.mark.java, pytest.mark.slow]

LIMIT_S = 600
FACTS = f"s3a://{BUCKET}/facts"
RUN = f"s3a://{BUCKET}/runs/1"
CHECKS = ("--check", "digests")
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


def test_a_run_over_facts_in_s3_finds_a_changed_byte(kept: list[Any]) -> None:
    (row,) = kept
    assert (row["code"], row["ledger_id"], row["entry_id"]) == ("BKC107", 3, 2)
    assert row["file"].endswith("/ledgers/current/0.log")
    assert row["offset"] is not None


def test_a_run_in_s3_is_shown_and_queried(audits: Audits, kept: list[Any]) -> None:
    shown = audits.bkctl("show", RUN, *audits.conf())
    assert sorted(map(finding, shown), key=repr) == sorted(map(finding, kept), key=repr)
    (row,) = audits.bkctl("sql", "select count(*) as n from ledgers", "--run", RUN, *audits.conf())
    assert row == {"n": 35}


def test_a_collection_uses_the_manifest_of_the_one_before(audits: Audits, kept: list[Any]) -> None:
    (row,) = audits.bkctl("collect", "--dirs", audits.bookie, "--to", FACTS, "--metadata", ZK_TREE)
    assert row["files_kept"] > 0


NO_BUCKET = ("s3a://nowhere/x", 4)
BAD_KEYS = (f"s3a://{BUCKET}/errors", 3)
DOWN = (f"s3a://{BUCKET}/errors", 6)


@pytest.mark.parametrize(
    ("command", "case"),
    [
        *(("collect", case) for case in (NO_BUCKET, BAD_KEYS, DOWN)),
        *(("show", case) for case in (NO_BUCKET, BAD_KEYS, DOWN)),
        ("run", NO_BUCKET),
    ],
)
def test_an_error_of_s3_is_one_line_with_its_exit_code(audits: Audits, command: str, case: tuple[str, int]) -> None:
    place, code = case
    url = f"http://127.0.0.1:{closed_port()}" if case == DOWN else audits.server.url
    with audits.server.refusing() if case == BAD_KEYS else nullcontext():
        done = audits.process(*words_of(audits, command, place, url), AWS_ENDPOINT_URL=url)
    check_error(done, place, code)


def test_a_silent_server_of_s3_is_unavailable(audits: Audits) -> None:
    place, code = DOWN
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent, ThreadPoolExecutor() as pool:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        def process(command: str) -> subprocess.CompletedProcess[str]:
            return audits.process(*words_of(audits, command, place, url), AWS_ENDPOINT_URL=url)

        for done in pool.map(process, ["collect", "show"]):  # each waits for half a minute
            check_error(done, place, code)


def words_of(audits: Audits, command: str, place: str, url: str) -> tuple[object, ...]:
    """A command that uses a folder on a server."""
    return {
        "collect": ("collect", "--dirs", audits.bookie, "--to", place),
        "show": ("show", place, *audits.conf(url)),
        "run": ("run", "--offline", audits.bookie, "--metadata", "none", "--to", place, *CHECKS, *audits.conf(url)),
    }[command]


def check_error(done: subprocess.CompletedProcess[str], place: str, code: int) -> None:
    """Asserts that a command failed with one line, which names the folder."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]  # of the JVM
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(lines) == 1, done.stderr
    assert place in lines[0]
    assert lines[0].startswith("error: cannot ")
