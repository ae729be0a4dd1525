"""How the verbs of `bkctl audit` find a run, and runs that they reject."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import io

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import arrow_schema
from bkinspect.audit.sources.scan import SCAN

from bkctl.cli.audit import _runs
from bkctl.cli.env import Env
from bkctl.errors import UsageError
from tests.command_line import Answer, bkctl
from tests.unit.cli.audit.saved_run import ABOUT as ABOUT
from tests.unit.cli.audit.saved_run import FINDING as FINDING
from tests.unit.cli.audit.saved_run import made as made
from tests.unit.cli.audit.saved_run import refused

VERBS = (("show",), ("explain",), ("repair", "--dry-run"), ("sql", "select 1", "--run"))


def asked(verb: tuple[str, ...], folder: Path) -> Answer:
    """The answer of a verb that is given a run, at its place in the command line."""
    if verb[-1] == "--run":
        return bkctl("audit", *verb, folder)
    return bkctl("audit", verb[0], folder, *verb[1:])


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_without_a_run_is_not_found(verb: tuple[str, ...], tmp_path: Path) -> None:
    refused(asked(verb, tmp_path / "nothing"), 4, "no audit in")
    (tmp_path / "file").write_text("")
    refused(asked(verb, tmp_path / "file"), 4, "no audit in")


@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupted_run_is_not_complete(verb: tuple[str, ...], run: Path) -> None:
    (run / "run.json").unlink()
    refused(asked(verb, run), 4, "is not complete")


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_of_another_version_is_bad_bytes(verb: tuple[str, ...], tmp_path: Path) -> None:
    run = made(tmp_path / "run", FINDING, format=2)
    refused(asked(verb, run), 8, "expected format 1, found format 2", "another version")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"format": 1}', "\udcff"])
def test_a_run_with_a_damaged_description_is_bad_bytes(verb: tuple[str, ...], text: str, run: Path) -> None:
    (run / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(asked(verb, run), 8, "run.json", "description of an audit")


@pytest.mark.parametrize("gone", ["facts-1", "findings-1"])
def test_a_run_without_its_tables_is_not_found(gone: str, run: Path) -> None:
    shutil.rmtree(run / gone)
    refused(bkctl("audit", "show", run), 4, gone, "does not exist")
    refused(bkctl("audit", "sql", "select * from findings", "--run", run), 4, gone)
    refused(bkctl("audit", "diff", run, run), 4, gone)


def test_a_scan_that_does_not_exist_is_named(tmp_path: Path) -> None:
    run = made(tmp_path / "run", FINDING, scans={"/nowhere/other/facts-0/scan": None})
    refused(bkctl("audit", "show", run), 4, "/nowhere/other/facts-0/scan", "does not exist")


def test_a_scan_is_found_after_the_runs_were_moved(tmp_path: Path) -> None:
    run = made(tmp_path / "moved/run", FINDING, scans={"/old/place/run/facts-1/scan": None})
    (run / "facts-1/scan").mkdir()
    parquet.write_table(pa.Table.from_pylist([], arrow_schema(SCAN)), run / "facts-1/scan/part.parquet")
    asked = bkctl("audit", "sql", "select count(*) as n from entries", "--run", run, "-o", "jsonl")
    assert asked.rows() == [{"n": 0}], asked.stderr


def test_settings_of_spark_for_a_run_of_this_machine_are_a_usage_error(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", FINDING)
    for words in (("show", folder), ("diff", folder, folder), ("sql", "select 1", "--run", folder)):
        answer = bkctl("audit", *words, "--spark-conf", "spark.hadoop.a=b")
        assert answer.code == 2
        assert "another file system" in answer.stderr


def test_a_run_is_found_by_a_file_uri(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", FINDING)
    assert len(bkctl("audit", "show", f"file://{folder}", "-o", "jsonl").rows()) == 1
    asked = bkctl("audit", "sql", "select count(*) as n from findings", "--run", f"file://{folder}", "-o", "jsonl")
    assert asked.rows() == [{"n": 1}]


def test_a_run_is_found_by_its_name_below_the_state_directory(tmp_path: Path) -> None:
    made(tmp_path / "state/audits/monday", FINDING)
    newest = made(tmp_path / "state/audits/tuesday")
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state")}
    assert len(bkctl("audit", "show", "monday", "-o", "jsonl", environ=environ).rows()) == 1
    answer = bkctl("audit", "show", "-v", "-o", "json", environ=environ)
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert str(newest) in answer.stderr, "without a name the newest run is shown"


@pytest.mark.parametrize(
    ("text", "size"),
    [("52428800", 52_428_800), ("50MB", 50_000_000), ("1.5MiB", 1_572_864), ("2k", 2000), ("1G", 10**9)],
)
def test_a_size_is_parsed_to_bytes(text: str, size: int) -> None:
    assert _runs.size_of("--part-size", text) == size


@pytest.mark.parametrize("text", ["", "0", "many", "-1MB", "5XB", "0.1"])
def test_a_text_that_is_not_a_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--part-size"):
        _runs.size_of("--part-size", text)


def test_settings_are_split_at_their_first_equals_sign() -> None:
    assert _runs.settings_of(["spark.a=b=c", "d="]) == {"spark.a": "b=c", "d": ""}
    with pytest.raises(UsageError, match="--spark-conf spark"):
        _runs.settings_of(["spark"])


def test_a_metadata_uri_may_come_from_any_setting() -> None:
    def env(**environ: str) -> Env:
        out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
        return Env(io.BytesIO(), out, err, {"HOME": "/nonexistent", **environ})

    assert _runs.has_metadata_uri(env(BKCTL_METADATA_URI="zk://h/l"))
    assert not _runs.has_metadata_uri(env())
