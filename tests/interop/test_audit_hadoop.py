"""Audits on a real HDFS and a real YARN: as the command over what collectors wrote there, and by spark-submit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import bkinspect.audit
import pyspark

from tests.audit_truth.verdict import broken
from tests.interop import hadoop_cluster
from tests.interop.hadoop_cluster import SMALL_JVM, SPARK_JARS, HadoopCluster
from tests.unit.inspect.audit.collection import finding
from tests.unit.inspect.audit.test_session import closed_port

pytestmark = [pytest.mark.java, pytest.mark.slow]

LIMIT_S = 600
CHECKS = ("--check", "digests", "--check", "missing-ledgers")
"""One that reads entries and one that joins tables: more would only take longer."""
FACTS = "hdfs:///facts"
RUN = "hdfs:///audits/yarn"
SEED = 20261125
SCRIPT = Path(bkinspect.audit.__file__).parent / "__main__.py"
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
YARN = {
    **SETTINGS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.instances": "1",
    "spark.executor.cores": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.yarn.am.memory": "256m",
    "spark.yarn.am.extraJavaOptions": SMALL_JVM,
    "spark.yarn.jars": f"local:{SPARK_JARS}/*",  # the machine has them: nothing is uploaded
}


def options(settings: dict[str, str], name: str = "--spark-conf") -> list[str]:
    return [word for key, value in settings.items() for word in (name, f"{key}={value}")]


class Audits(NamedTuple):
    """A damaged cluster's directories and metadata, and where its audits go."""

    hadoop: HadoopCluster
    folder: Path
    export: Path

    @property
    def sources(self) -> list[str]:
        """The options of an offline run."""
        dirs = [word for bookie in self.bookies for word in ("--offline", str(bookie))]
        return [*dirs, "--metadata", str(self.export)]

    @property
    def bookies(self) -> list[Path]:
        return sorted(self.folder.glob("cluster/b?"))

    def process(self, command: Sequence[object], **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**self.hadoop.environ, **environ},
            cwd=self.folder,
        )

    def bkctl(self, *words: object, code: int = 0) -> list[Any]:
        """The rows of a command."""
        done = self.process((sys.executable, "-m", "bkctl", "audit", *words, "-o", "jsonl"))
        assert done.returncode == code, done.stderr
        return list(map(json.loads, done.stdout.splitlines()))


def findings(rows: Sequence[Any]) -> list[tuple[object, ...]]:
    """What two audits of the same directories agree on."""
    return sorted(map(finding, rows), key=repr)


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audits]:
    folder = tmp_path_factory.mktemp("hadoop")
    export = broken(SEED, 1, folder / "cluster").export
    with hadoop_cluster.running() as hadoop:
        yield Audits(hadoop, folder, export)


@pytest.fixture(scope="module")
def local(audits: Audits) -> list[Any]:
    """The findings of a run on this machine alone."""
    words = ("--master", "local[2]", *options(SETTINGS), *audits.sources, "--to", audits.folder / "local", *CHECKS)
    rows = audits.bkctl("run", *words, code=1)
    assert len({row["code"] for row in rows}) > 2, "findings of both checks"
    return rows


def test_a_collection_in_hdfs_uses_the_manifest_of_the_one_before(audits: Audits) -> None:
    words = ("collect", "--dirs", audits.bookies[0], "--to", "hdfs:///again")
    (first,) = audits.bkctl(*words)
    assert first["manifest"].startswith(f"{audits.hadoop.uri}/again/bookie=")
    assert first["files_kept"] == 0
    (second,) = audits.bkctl(*words)
    assert second["files_kept"] > 0


def test_an_audit_on_yarn_over_facts_in_hdfs_has_the_findings_of_a_local_run(audits: Audits, local: list[Any]) -> None:
    for bookie in audits.bookies:
        audits.bkctl("collect", "--dirs", bookie, "--to", FACTS, "--metadata", audits.export)
    words = ("--facts", FACTS, "--metadata", audits.export, "--to", RUN, *CHECKS)
    rows = audits.bkctl("run", "--master", "yarn", *options(YARN), *words, code=1)
    assert findings(rows) == findings(local)
    assert findings(audits.bkctl("show", RUN)) == findings(local)
    query = "select count(*) as n from ledgers"
    (count,) = audits.bkctl("sql", query, "--run", f"{audits.hadoop.uri}/audits/yarn")
    (expected,) = audits.bkctl("sql", query, "--run", audits.folder / "local")
    assert count == expected
    assert audits.bkctl("diff", audits.folder / "local", RUN) == []


def test_spark_submit_runs_an_audit_on_yarn(audits: Audits, local: list[Any]) -> None:
    command = (SPARK_SUBMIT, "--master", "yarn", "--deploy-mode", "client", *options(YARN, "--conf"), SCRIPT)
    words = (*audits.sources, "--check", "digests", "--to", "hdfs:///audits/submitted", "-o", "jsonl")
    done = audits.process((*command, *words), PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    assert done.returncode == 1, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # and its stderr
    codes = {row["code"] for row in rows}
    assert codes
    assert findings(rows) == findings([row for row in local if row["code"] in codes])


@pytest.mark.parametrize(
    ("words", "user", "code", "text"),
    [
        (("show", "hdfs:///nothing"), None, 4, "error: no audit in hdfs://"),
        (("show", "hdfs://127.0.0.1:{port}/x"), None, 6, "cannot read hdfs://127.0.0.1"),
        (("collect", "--dirs", "{bookie}", "--to", "hdfs:///of-root"), "nobody", 3, "Permission denied"),
    ],
)
def test_an_error_of_hdfs_is_one_line_with_its_exit_code(
    audits: Audits, words: tuple[str, ...], user: str | None, code: int, text: str
) -> None:
    values = {"port": str(closed_port()), "bookie": str(audits.bookies[0])}
    command = (sys.executable, "-m", "bkctl", "audit", *(word.format(**values) for word in words))
    done = audits.process(command, **({} if user is None else {"HADOOP_USER_NAME": user}))
    lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]  # of the JVM
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(lines) == 1, done.stderr
    assert text in lines[0]


def test_a_resource_manager_that_does_not_answer_is_unavailable(audits: Audits, tmp_path: Path) -> None:
    place = f"127.0.0.1:{closed_port()}"
    setting = f"<property><name>yarn.resourcemanager.address</name><value>{place}</value></property>"
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{setting}</configuration>")
    words = ("run", "--master", "yarn", *options(YARN), *audits.sources, "--to", tmp_path / "run")
    done = audits.process((sys.executable, "-m", "bkctl", "audit", *words), HADOOP_CONF_DIR=str(tmp_path))
    lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]  # of the JVM
    assert (done.returncode, done.stdout) == (6, ""), done.stderr
    assert len(lines) == 1, done.stderr
    assert f"ResourceManager {place} does not answer" in lines[0]
