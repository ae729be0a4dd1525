"""Runs on a file system of Hadoop's (viewfs, whose only mount is a local folder): files, a whole run, its results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit import arrow_storage, results, stored
from bkinspect.audit.arrow_storage import ArrowStorage, collectors_storage
from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Outcome, Request, run
from bkinspect.audit.results import local_copy, opened
from bkinspect.audit.sources.live import LivePartition, LiveReader
from bkinspect.audit.sources.live_rows import COPIES
from bkinspect.audit.sources.shared_files import SHARED, path_of
from bkinspect.audit.storage import HadoopStorage, LocalStorage, Storage, storage_of

from bkctl.errors import NotFound, Refused, Unavailable, UsageError
from tests.command_line import bkctl
from tests.golden import FOLDER, Golden
from tests.unit.inspect.audit.test_job import CHECKS, ZK_TREE, change_a_byte

PLACE = ArrowStorage("s3a://b/x", None, "b/x")
MOUNT = "fs.viewfs.mounttable.{}.link./audits"


@pytest.fixture(scope="module")
def mounted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that viewfs://<its name>/audits is."""
    folder = tmp_path_factory.mktemp("mounted")
    spark.conf.set(MOUNT.format(folder.name), f"file://{folder}")
    return folder


@pytest.fixture
def remote(spark: Any, mounted: Path) -> Storage:
    return storage_of(spark, f"viewfs://{mounted.name}/audits")


def storages(remote: Storage, tmp_path: Path) -> tuple[Storage, ...]:
    from pyarrow.fs import LocalFileSystem

    by_arrow = ArrowStorage(f"mock:{tmp_path}/arrow", LocalFileSystem(), f"{tmp_path}/arrow")
    return LocalStorage.of(tmp_path / "plain"), remote / "files", by_arrow


def test_files_are_written_listed_read_and_deleted_on_every_file_system(remote: Storage, tmp_path: Path) -> None:
    for storage in storages(remote, tmp_path):
        (storage / "a/b").make()
        storage.write("a/one", b"1")
        storage.write("a/one", bytes(3 << 20))
        storage.write("a/b/two", b"22")
        found = storage.list("a/*")
        assert [(item.name, item.is_dir) for item in found] == [("a/b", True), ("a/one", False)]
        assert found[1].size == 3 << 20
        assert storage.list("*/*/two")[0].name == "a/b/two"
        assert storage.size() == (3 << 20) + 2
        assert storage.files() == {"a/one": 3 << 20, "a/b/two": 2}
        assert storage.files("a/b") == {"two": 2}
        assert storage.files("none") == {}
        assert storage.read("a/one") == bytes(3 << 20)
        with pytest.raises(Refused, match="more than 10 bytes"):
            storage.read("a/one", 10)
        with storage.open_input("a/b/two") as file:
            assert (file.seek(-1, os.SEEK_END), file.read(), file.tell()) == (1, b"2", 2)
        storage.fetch("a/b/two", tmp_path / "fetched")
        assert (tmp_path / "fetched").read_bytes() == b"22"
        with storage.open_output("a/three") as file:
            file.write(b"333")
            assert file.tell() == 3
        storage.delete("a/three")
        storage.delete("a")
        storage.delete("a")
        assert not storage.exists("a")
        assert storage.list("a/*") == []
        with pytest.raises(FileNotFoundError):
            storage.read("a/one")
        above = (storage / "a").parent
        assert above == storage
        assert (storage / "a").name == "a"
        assert storage / "" == storage


def test_a_file_system_whose_jars_are_missing_is_a_usage_error(spark: Any) -> None:
    for uri in ("s3a://bucket/x", "gs://bucket/x", "nowhere://x/y"):
        with pytest.raises(UsageError, match="cannot read") as error:
            storage_of(spark, uri)
        assert "spark.jars.packages" in str(error.value.hint)


class Remote:
    """A sound run and one of a damaged log, below one mount."""

    def __init__(self, spark: Any, golden: Golden, folder: Path, mounted: Path) -> None:
        self.spark, self.mounted = spark, mounted
        self.bookie = golden.unpack("bookie0", folder / "bookie0")
        self.first = self.audit("sound")
        change_a_byte(self.bookie / "ledgers/current/0.log")
        self.second = self.audit("damaged")

    def uri(self, name: str) -> str:
        return f"viewfs://{self.mounted.name}/audits/{name}"

    def audit(self, name: str) -> Outcome:
        return run(self.spark, Request(Sources(ZK_TREE, (self.bookie,)), self.uri(name), CHECKS))

    def command(self, *words: str, code: int = 0) -> list[Any]:
        mount = f"spark.hadoop.{MOUNT.format(self.mounted.name)}=file://{self.mounted}"
        answer = bkctl("audit", *words, "--spark-conf", mount, "-o", "jsonl")
        assert answer.code == code, answer.stderr
        return answer.rows()


@pytest.fixture(scope="module")
def runs(spark: Any, golden: Golden, mounted: Path, tmp_path_factory: pytest.TempPathFactory) -> Remote:
    return Remote(spark, golden, tmp_path_factory.mktemp("dirs"), mounted)


@pytest.mark.slow
def test_a_run_on_another_file_system_finds_the_same_and_reads_no_file_twice(runs: Remote) -> None:
    assert runs.first.counts == {}
    assert sum(runs.second.counts.values()) == 1
    assert (runs.first.files_read, runs.first.files_kept) == (7, 0)
    assert (runs.second.files_read, runs.second.files_kept) == (1, 6), "scans of the run beside are used"
    names = {path.name.partition("-")[0] for path in (runs.mounted / "damaged").iterdir()}
    assert {"run.json", "report.html", "facts", "findings"} <= names
    about = json.loads((runs.mounted / "damaged/run.json").read_text())
    assert all(scan.startswith("viewfs://") for scan in about["scans"])
    assert not list(runs.mounted.glob("*/facts-*/*.plan")), "given to the tasks by Spark"


@pytest.mark.slow
def test_a_run_on_another_file_system_is_shown_asked_explained_and_compared(runs: Remote) -> None:
    sound, damaged = runs.uri("sound"), runs.uri("damaged")
    assert runs.command("show", sound) == []
    (item,) = runs.command("show", damaged)
    assert item["ledger_id"] == 3
    assert runs.command("sql", "select count(*) as n from entries", "--run", damaged) == [{"n": 573}]
    assert [row["change"] for row in runs.command("diff", sound, damaged, code=1)] == ["new"]
    (explained,) = runs.command("explain", damaged)
    assert explained["findings"] == 1
    (item,) = runs.command("show", f"viewfs://{runs.mounted.name}/audits")
    assert item["ledger_id"] == 3, "the newest run of the folder"


@pytest.mark.slow
def test_tables_above_the_bound_are_not_copied_but_findings_are(
    runs: Remote, remote: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "COPY_BYTES_MAX", 20_000)
    with pytest.raises(Refused, match="at most 20000 are copied"):
        local_copy(remote / "damaged")
    with opened(local_copy(remote / "damaged", tables=False)) as one:
        assert len(list(one.findings())) == 1
    outcome = runs.audit("large")
    assert "report.html was not written" in outcome.notes[-1]
    assert "report.html was not written" in json.loads(remote.read("large/run.json"))["notes"][-1]
    remote.delete("large")


@pytest.mark.slow
def test_a_run_whose_tables_are_gone_is_named_by_its_uri(runs: Remote, remote: Storage) -> None:
    with pytest.raises(NotFound, match="no audit in viewfs:"):
        local_copy(remote / "nothing")
    (remote / "gone").make()
    remote.write("gone/run.json", remote.read("damaged/run.json"))
    with pytest.raises(NotFound, match=r"viewfs:.*findings-.*does not exist"):
        local_copy(remote / "gone")
    remote.delete("gone")


@pytest.mark.slow
def test_a_table_for_tasks_is_one_file_with_all_rows(
    spark: Any, runs: Remote, remote: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as parquet

    (facts,) = (remote / "sound").list("facts-*")
    folder = remote / "sound" / facts.name
    option = stored.given_table(spark, folder, "ledgers")
    assert option.startswith(SHARED)
    assert parquet.read_table(path_of(option)).num_rows == 35 == stored.rows_of(folder / "ledgers")
    rows = spark.range(1).rdd.map(lambda _: parquet.read_table(path_of(option)).num_rows).collect()
    assert rows == [35], "a task reads Spark's copy"
    reader = LiveReader(COPIES, {"metadata": "zk://nobody/ledgers", "ledgers_from": option})
    parts = [LivePartition("", None, True, file, start, rows) for file, start, rows, *_ in reader._slices(1)]
    assert {part.file for part in parts} == {option}, "a partition names the option, not a path of the driver"
    assert sum(part.count for part in parts) == 35
    ids = {one.ledger_id for part in parts for one in reader._wanted(part)}
    assert ids == {row.ledger_id for row in spark.read.parquet(folder.url("ledgers")).collect() if row.ensembles}
    monkeypatch.setattr(stored, "SHARED_BYTES_MAX", 10)
    with pytest.raises(Refused, match="can be sent to executors"):
        stored.given_table(spark, folder, "ledgers")


@pytest.mark.slow
def test_the_command_writes_a_run_to_another_file_system(golden: Golden, tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.unit.inspect.audit.test_two_workers import SETTINGS

    mount = {"spark.hadoop." + MOUNT.format("x"): f"file://{tmp_path}/audits"}
    settings = [word for name, value in {**SETTINGS, **mount}.items() for word in ("--spark-conf", f"{name}={value}")]
    sources = ["--offline", str(golden.bookie("bookie0")), "--metadata", str(FOLDER / "zk_tree.json")]
    kept = ("--check", "digests", "--to", "viewfs://x/audits/one", "-o", "jsonl")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bkctl",
            "audit",
            "run",
            "--master",
            "local-cluster[2,1,1024]",
            *settings,
            *sources,
            *kept,
        ],
        capture_output=True,
        timeout=600,
        env={**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads((tmp_path / "audits/one/run.json").read_text())["files_read"] == 7
    words = ("show", "viewfs://x/audits/one", *settings[-2:], "-o", "jsonl")
    shown = subprocess.run(
        [sys.executable, "-m", "bkctl", "audit", *words], capture_output=True, timeout=600, text=True, check=False
    )
    assert (shown.returncode, shown.stdout) == (0, ""), shown.stderr


def test_hadoop_storages_are_equal_by_location(remote: Storage) -> None:
    assert isinstance(remote, HadoopStorage)
    assert {remote / "a"} == {remote.at(f"{remote}/a")}


def test_a_collector_writes_to_hdfs_by_the_hadoop_of_pyspark(
    spark: Any, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match=r"cannot read viewfs://nowhere/x.*nowhere"):
        collectors_storage("--to", "viewfs://nowhere/x")
    monkeypatch.setattr(arrow_storage, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="hdfs needs the Hadoop of pyspark"):
        collectors_storage("--to", "hdfs://h/x")
