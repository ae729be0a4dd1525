"""Runs as Iceberg tables in a catalog of a local folder, on the Spark that Iceberg has a runtime for; killed runs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bkinspect.audit
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.iceberg import (
    EXTENSIONS,
    FILE_BYTES,
    STORED,
    TASK_BYTES,
    Iceberg,
    Target,
    order,
    partitions,
    tasks,
)
from bkinspect.audit.schemas import TABLES

from bkctl.errors import UsageError
from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.inspect.audit.iceberg_process import REPLY
from tests.unit.inspect.audit.test_job import ZK_TREE, change_a_byte
from tests.unit.inspect.audit.test_two_workers import SETTINGS

ROOT = Path(__file__).resolve().parents[4]
README = Path(bkinspect.audit.__file__).with_name("README.md")
LIBRARY = Path(os.environ.get("BKCTL_ICEBERG_LIB", Path.home() / ".cache/bkctl/iceberg"))
RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
JARS = [LIBRARY / "{1}-{2}.jar".format(*one.split(":")) for one in (RUNTIME, SQLITE)]
LIMIT_S = 900
POLL_S = 0.005
slow = pytest.mark.slow


def requirement() -> str:
    """PySpark of the extra `iceberg`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (found,) = (one for one in extras["iceberg"] if one.startswith("pyspark"))
    return str(found)


@pytest.fixture(scope="module")
def library() -> Path:
    """The folder of Iceberg's runtime and of the PySpark that it fits; fetched once a machine."""
    LIBRARY.mkdir(parents=True, exist_ok=True)
    spark = LIBRARY / re.sub(r"\W+", "-", requirement())
    with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        for jar, artifact in zip(JARS, (RUNTIME, SQLITE), strict=True):
            if not jar.exists():
                fetch = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={LIBRARY}"]
                subprocess.run(fetch, check=True, timeout=LIMIT_S)
        if not spark.exists():
            part = spark.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(part), requirement()]
            subprocess.run(install, check=True, timeout=LIMIT_S)
            part.rename(spark)
    return spark


def catalog(warehouse: Path) -> dict[str, str]:
    """Settings of two catalogs: `lake` of a folder, `sql` of a database."""
    lake, sql = "spark.sql.catalog.lake", "spark.sql.catalog.sql"
    own = dict.fromkeys((lake, sql), "org.apache.iceberg.spark.SparkCatalog")
    own |= {f"{lake}.type": "hadoop", f"{lake}.warehouse": str(warehouse)}
    own |= {f"{sql}.type": "jdbc", f"{sql}.warehouse": f"{warehouse}-sql", f"{sql}.uri": f"jdbc:sqlite:{warehouse}.db"}
    return {**SETTINGS, **own, "spark.jars": ",".join(map(str, JARS)), "spark.sql.extensions": EXTENSIONS}


class Process:
    """A Spark session with a catalog, in a process of its own."""

    def __init__(self, library: Path, warehouse: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.inspect.audit.iceberg_process", json.dumps(catalog(warehouse))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(library)},
            start_new_session=True,
        )

    def begin(self, **asked: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def ask(self, **asked: object) -> Any:
        self.begin(**asked)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(REPLY):
                return json.loads(line.removeprefix(REPLY))
        raise AssertionError(f"the process ended with {self._process.wait(60)}")

    def sql(self, query: str) -> list[dict[str, Any]]:
        rows = self.ask(sql=query)
        assert isinstance(rows, list), rows
        return rows

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)


class Lake(NamedTuple):
    """A warehouse after runs of which two were killed, and a session over it.

    offline: the directories that runs read. first, third, last: replies of the complete runs. killed, staged_before:
    rows of each table, and invisible snapshots, after the second was killed. queried: the current run after the fourth
    was killed while it published its tables. fourth: its id.
    """

    process: Process
    warehouse: Path
    runs: Path
    offline: Path
    first: dict[str, Any]
    third: dict[str, Any]
    last: dict[str, Any]
    killed: dict[str, int]
    staged_before: int
    queried: list[int]
    fourth: int


def versions(warehouse: Path, table: str) -> int:
    """How many commits a table of a Hadoop catalog has had."""
    return len(list((warehouse / "bookkeeper" / table / "metadata").glob("v*.metadata.json")))


def wait_for_commit(warehouse: Path, table: str, before: int) -> None:
    """Waits until a table has more commits than before; the next ones follow within milliseconds."""
    end = time.monotonic() + LIMIT_S
    while versions(warehouse, table) <= before:
        assert time.monotonic() < end, f"{table}: no commit within {LIMIT_S} s"
        time.sleep(POLL_S)


def change_the_instance(bookie: Path) -> None:
    """Of the cookies on disk: the metadata store has another one."""
    for path in bookie.rglob("VERSION"):
        path.write_text(re.sub(r'instanceId: "[^"]*"', 'instanceId: "another"', path.read_text()))


def started(run: Path) -> int:
    (facts,) = run.glob("facts-*")
    return int(facts.name.removeprefix("facts-"))


def rows(process: Process) -> dict[str, int]:
    return {name: process.sql(f"SELECT count(*) AS n FROM lake.bookkeeper.`{name}`")[0]["n"] for name in STORED}


def staged(process: Process) -> int:
    """Snapshots that are not visible."""
    current = "SELECT snapshot_id FROM lake.bookkeeper.ledgers.history"
    query = f"SELECT count(*) AS n FROM lake.bookkeeper.ledgers.snapshots WHERE snapshot_id NOT IN ({current})"
    return int(process.sql(query)[0]["n"])


def documented(first_words: str) -> str:
    """A query of the README."""
    text = README.read_text().split("## Iceberg tables")[1].split("\n## ")[0]
    queries = [re.sub(r"\s+", " ", one).strip() for one in re.findall(r"(?:^    .*\n)+", text, re.M)]
    (query,) = (one for one in queries if one.startswith(first_words))
    return query


CURRENT = documented("SELECT f.* FROM lake.bookkeeper.findings f")


@pytest.fixture(scope="module")
def lake(library: Path, golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    base = tmp_path_factory.mktemp("lake")
    warehouse = base / "warehouse"
    bookie = golden.unpack("bookie0", base / "dirs/bookie0")
    change_the_instance(bookie)
    change_a_byte(bookie / "ledgers/current/0.log")
    more = {"metadata": ZK_TREE, "offline": str(bookie), "checks": ["cookies"], "catalog": "lake"}
    process = Process(library, warehouse)
    try:
        first = process.ask(**more, to=str(base / "runs/first"))
        before = {name: versions(warehouse, name) for name in ("ledgers", "runs")}
        process.begin(**more, to=str(base / "runs/second"))
        wait_for_commit(warehouse, "ledgers", before["ledgers"])
        process.kill()
        assert versions(warehouse, "runs") == before["runs"], "it was killed while it wrote"
        process = Process(library, warehouse)
        killed, staged_before = rows(process), staged(process)
        third = process.ask(**more, to=str(base / "runs/third"))
        before = {"runs": versions(warehouse, "runs")}
        process.begin(**more, to=str(base / "runs/fourth"))
        wait_for_commit(warehouse, "runs", before["runs"])
        process.kill()
        process = Process(library, warehouse)
        queried = [row["run_id"] for row in process.sql(CURRENT)]
        last = process.ask(**{**more, "checks": ["cookies", "digests"]}, to=str(base / "runs/last"))
        fourth = started(base / "runs/fourth")
        yield Lake(
            process, warehouse, base / "runs", bookie, first, third, last, killed, staged_before, queried, fourth
        )
    finally:
        process.kill()


@slow
def test_a_run_killed_while_it_writes_is_not_visible(lake: Lake) -> None:
    (only,) = lake.process.sql(f"SELECT * FROM lake.bookkeeper.runs WHERE run_id = {lake.first['run_id']}")
    expected = {name: only["rows"].get(name, 0) for name in STORED} | {"runs": 1}
    assert lake.killed == expected
    assert lake.killed["ledgers"] == 35
    assert lake.killed["findings"] == 1
    assert lake.staged_before == 1
    assert not (lake.runs / "second/run.json").exists()


@slow
def test_the_next_run_removes_what_a_killed_run_staged(lake: Lake) -> None:
    assert [note for note in lake.third["notes"] if "removed the staged tables" in note]
    second = started(lake.runs / "second")
    wap = "SELECT summary['wap.id'] AS id FROM lake.bookkeeper.ledgers.snapshots"
    ids = {row["id"] for row in lake.process.sql(wap)}
    assert f"bkctl-{second}" not in ids
    assert f"bkctl-{lake.first['run_id']}" in ids, "the snapshots of complete runs stay"
    assert staged(lake.process) == 0


@slow
def test_a_run_killed_while_it_publishes_is_published_by_the_next_run(lake: Lake) -> None:
    assert lake.queried == [lake.third["run_id"]], "the last complete run is current"
    assert [note for note in lake.last["notes"] if "published the remaining tables" in note]
    known = {row["run_id"]: row["rows"] for row in lake.process.sql("SELECT run_id, rows FROM lake.bookkeeper.runs")}
    assert set(known) == {one["run_id"] for one in (lake.first, lake.third, lake.last)} | {lake.fourth}
    for name in (name for name in STORED if name != "runs"):
        found = lake.process.sql(f"SELECT run_id, count(*) AS n FROM lake.bookkeeper.`{name}` GROUP BY run_id")
        assert {row["run_id"]: row["n"] for row in found} == {
            run_id: counts[name] for run_id, counts in known.items() if counts.get(name)
        }, name


@slow
def test_the_documented_queries_answer_of_one_run(lake: Lake) -> None:
    current = {(row["run_id"], row["code"]) for row in lake.process.sql(CURRENT)}
    assert current == {(lake.last["run_id"], "BKC107"), (lake.last["run_id"], "BKC473")}
    (copies,) = lake.process.sql(documented("SELECT r.run_date"))
    assert 0 < copies["copies"] <= 573
    (at,) = lake.process.sql(
        "SELECT CAST(made_current_at AS string) AS at FROM lake.bookkeeper.runs.history JOIN "
        f"lake.bookkeeper.runs.snapshots USING (snapshot_id) WHERE summary['wap.id'] = 'bkctl-{lake.third['run_id']}'"
    )
    travel = re.sub(
        r"TIMESTAMP AS OF '[^']*'",
        f"TIMESTAMP AS OF '{at['at']}'",
        documented("SELECT f.* FROM lake.bookkeeper.findings TIMESTAMP"),
    )
    known = {row["run_id"] for row in lake.process.sql(travel)}
    assert known == {lake.first["run_id"], lake.third["run_id"]}


@slow
def test_columns_comments_partitions_and_order_are_those_of_the_schemas(lake: Lake) -> None:
    for name, table in STORED.items():
        described = lake.process.sql(f"DESCRIBE TABLE lake.bookkeeper.`{name}`")
        columns = {
            row["col_name"]: row["comment"] for row in described if row["comment"] and "#" not in row["col_name"]
        }
        assert columns == {one.name: one.text for one in table.columns if one.text}, name
        (found,) = lake.process.sql(f"SHOW CREATE TABLE lake.bookkeeper.`{name}`")
        assert f"PARTITIONED BY ({', '.join(partitions(table))})" in found["createtab_stmt"]
        keys = ", ".join(f"{key} ASC NULLS FIRST" for key in order(table))
        properties = lake.process.sql(f"SHOW TBLPROPERTIES lake.bookkeeper.`{name}`")
        declared = {row["key"]: row["value"] for row in properties}.get("sort-order", "")
        assert declared == keys, name
    assert "password" not in STORED["ledgers"].names


@slow
def test_files_are_sorted_by_ledger(lake: Lake) -> None:
    import pyarrow.parquet as parquet

    paths = list((lake.warehouse / "bookkeeper/entries/data").rglob("*.parquet"))
    assert paths
    assert all(re.search(r"/run_date=[\d-]+/bookie_id=[^/]+/", str(path)) for path in paths)
    for path in paths:
        read = parquet.ParquetFile(path).read(columns=["ledger_id", "entry_id"]).to_pylist()
        keys = [(row["ledger_id"], row["entry_id"]) for row in read]
        assert keys == sorted(keys)


@slow
def test_a_catalog_in_a_database_holds_the_same(lake: Lake) -> None:
    more = {"metadata": ZK_TREE, "offline": str(lake.offline), "checks": ["cookies"], "catalog": "sql"}
    answer = lake.process.ask(**more, to=str(lake.runs / "sql"))
    assert answer["counts"] == lake.first["counts"] == {"BKC473": 1}
    for name in ("ledgers", "fragments", "findings"):
        (found,) = lake.process.sql(f"SELECT count(*) AS n, max(run_id) AS run_id FROM sql.bookkeeper.{name}")
        assert found == {"n": lake.killed[name], "run_id": answer["run_id"]}


@slow
def test_a_table_of_another_program_is_refused_before_the_scan(lake: Lake, tmp_path: Path) -> None:
    lake.process.sql("CREATE TABLE lake.other.entries (run_id string) USING iceberg")
    more = {"metadata": ZK_TREE, "offline": str(tmp_path), "checks": ["digests"], "catalog": "lake"}
    answer = lake.process.ask(**more, namespace="other", to=str(tmp_path / "run"))
    assert answer["kind"] == "UsageError"
    assert "column run_id is string, expected bigint" in answer["error"]
    assert not (tmp_path / "run").exists()


@slow
def test_a_runtime_that_does_not_fit_spark_is_exit_2_before_the_scan(library: Path, tmp_path: Path) -> None:
    settings = [
        word for name, value in catalog(tmp_path / "lake").items() for word in ("--spark-conf", f"{name}={value}")
    ]
    command = [sys.executable, "-m", "bkctl", "audit", "run", "--offline", str(tmp_path), "--metadata", ZK_TREE]
    done = subprocess.run(
        [*command, "--table-format", "iceberg", "--catalog", "lake", *settings, "--to", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]
    assert said[0].startswith("error: cannot use catalog lake: ")
    assert "iceberg-spark-runtime-4.1_2.13" in "".join(said)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@slow
def test_a_catalog_that_is_not_configured_is_refused(spark: Any) -> None:
    with pytest.raises(UsageError, match=r"catalog nowhere is not configured: spark\.sql\.catalog\.nowhere is not set"):
        Iceberg(spark, Target("nowhere")).prepare()


@slow
def test_a_catalog_without_its_runtime_is_refused_in_one_line(spark: Any) -> None:
    spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    try:
        with pytest.raises(UsageError, match="cannot use catalog lake: ") as error:
            Iceberg(spark, Target("lake")).prepare()
    finally:
        spark.conf.unset("spark.sql.catalog.lake")
    assert "\n" not in error.value.message
    assert "iceberg-spark-runtime" in str(error.value.hint)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--table-format", "iceberg"), "--table-format iceberg requires --catalog NAME"),
        (("--table-format", "delta"), "--table-format delta"),
        (("--catalog", "lake"), "--catalog requires --table-format iceberg"),
        (("--namespace", "a"), "--namespace requires --table-format iceberg"),
        (("--table-format", "iceberg", "--catalog", "a.b"), "--catalog a.b is not a valid name"),
        (
            ("--table-format", "iceberg", "--catalog", "a", "--namespace", "b..c"),
            "--namespace b..c is not a valid name",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    answer = bkctl("audit", "run", "--offline", tmp_path, "--to", tmp_path / "run", *words)
    assert answer.code == 2
    assert message in answer.stderr
    assert not (tmp_path / "run").exists()


def test_every_fact_is_a_table_and_runs_is_the_last() -> None:
    assert set(STORED) == (set(TABLES) - {"records"}) | {"findings", "runs"}
    assert list(STORED)[-1] == "runs"
    assert [name for name, table in STORED.items() if len(set(table.names)) != len(table.names)] == []


def test_large_tables_are_written_by_many_tasks() -> None:
    assert tasks(0, 8) == 1
    assert tasks(TASK_BYTES, 8) == 1
    assert tasks(3 * TASK_BYTES, 8) == 3
    assert tasks(FILE_BYTES, 8) == 8
    assert tasks(100 * FILE_BYTES, 8) == 100
