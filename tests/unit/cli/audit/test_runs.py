"""`audit show`, `diff`, `explain` and `sql` with what people give them: one clear error, and its exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import FINDINGS, KEPT_FINDINGS, LEDGERS, arrow_schema
from bkinspect.audit.sources.scan import SCAN

from tests.command_line import Answer, bkctl

FINDING = {
    "code": "BKC401",
    "severity": "error",
    "subject": "entry 3 of ledger 5",
    "message": "b1:3181 has no copy; 1 sound elsewhere",
    "evidence": '{"last_entry_id": 4}',
    "next": "bkctl audit repair",
    "ledger_id": 5,
    "entry_id": 3,
    "bookie_id": "b1:3181",
}
ABOUT: dict[str, Any] = {
    "format": 1,
    "as_of_ms": 1_795_000_000_000,
    "seconds": 1.5,
    "metadata": "export.jsonl",
    "offline": [],
    "selection": {},
    "checks": ["missing-copies"],
    "counts": {"BKC401": 1},
    "severities": {"error": 1},
    "notes": [],
    "files_read": 0,
    "files_kept": 0,
    "facts": "facts-1",
    "findings": "findings-1",
    "scans": {},
}


def made(folder: Path, *findings: dict[str, Any], **about: Any) -> Path:
    """A run as `audit run` leaves it."""
    for name in ("facts-1/ledgers", "findings-1"):
        (folder / name).mkdir(parents=True)
    rows = [{name: row.get(name) for name in FINDINGS.names} for row in findings]
    parquet.write_table(pa.Table.from_pylist(rows, arrow_schema(FINDINGS)), folder / "findings-1/part.parquet")
    ledger = {**dict.fromkeys(LEDGERS.names), "ledger_id": 5, "state": "OPEN"}
    parquet.write_table(pa.Table.from_pylist([ledger], arrow_schema(LEDGERS)), folder / "facts-1/ledgers/part.parquet")
    (folder / "run.json").write_text(json.dumps({**ABOUT, **about}))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made(tmp_path / "run", FINDING)


def refused(answer: Answer, code: int, *words: str) -> None:
    """It ended with this code, one error, and nothing on stdout."""
    assert answer.code == code, answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    errors = [line for line in answer.stderr.splitlines() if line.startswith("error")]
    assert len(errors) == 1, answer.stderr
    for word in words:
        assert word in answer.stderr


VERBS = (("show",), ("explain",), ("repair", "--dry-run"), ("sql", "select 1", "--run"))


def asked(verb: tuple[str, ...], folder: Path) -> Answer:
    """A verb of `audit` about a run; the folder stands where it belongs."""
    if verb[-1] == "--run":
        return bkctl("audit", *verb, folder)
    return bkctl("audit", verb[0], folder, *verb[1:])


@pytest.mark.parametrize("verb", VERBS)
def test_no_such_run(verb: tuple[str, ...], tmp_path: Path) -> None:
    refused(asked(verb, tmp_path / "nothing"), 4, "no audit in")
    (tmp_path / "file").write_text("")
    refused(asked(verb, tmp_path / "file"), 4, "no audit in")


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_that_was_killed_says_so(verb: tuple[str, ...], run: Path) -> None:
    (run / "run.json").unlink()
    refused(asked(verb, run), 4, "is not complete")


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_of_another_version(verb: tuple[str, ...], tmp_path: Path) -> None:
    run = made(tmp_path / "run", FINDING, format=2)
    refused(asked(verb, run), 8, "expected format 1, found format 2", "another version")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"format": 1}', "\udcff"])
def test_a_run_whose_description_was_changed(verb: tuple[str, ...], text: str, run: Path) -> None:
    (run / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(asked(verb, run), 8, "run.json", "description of an audit")


@pytest.mark.parametrize("gone", ["facts-1", "findings-1"])
def test_a_run_without_its_tables_is_not_a_run_without_findings(gone: str, run: Path) -> None:
    shutil.rmtree(run / gone)
    refused(bkctl("audit", "show", run), 4, gone, "does not exist")
    refused(bkctl("audit", "sql", "select * from findings", "--run", run), 4, gone)
    refused(bkctl("audit", "diff", run, run), 4, gone)


def test_a_scan_that_a_run_beside_removed_is_named(tmp_path: Path) -> None:
    run = made(tmp_path / "run", FINDING, scans={"/nowhere/other/facts-0/scan": None})
    refused(bkctl("audit", "show", run), 4, "/nowhere/other/facts-0/scan", "does not exist")


def test_a_scan_is_found_where_the_runs_were_moved(tmp_path: Path) -> None:
    run = made(tmp_path / "moved/run", FINDING, scans={"/old/place/run/facts-1/scan": None})
    (run / "facts-1/scan").mkdir()
    parquet.write_table(pa.Table.from_pylist([], arrow_schema(SCAN)), run / "facts-1/scan/part.parquet")
    asked = bkctl("audit", "sql", "select count(*) as n from entries", "--run", run, "-o", "jsonl")
    assert asked.rows() == [{"n": 0}], asked.stderr


@pytest.mark.parametrize(
    "sql",
    [
        *("", "selekt 1", "select * from nowhere", "select nothing from ledgers", "select 1; select 2"),
        *("drop view ledgers", "create table t (i int)", "copy ledgers to 'made'", "attach 'made'"),
        *("install httpfs", "set threads = 1", "select 'a' + 1 + ledger_id from ledgers", "delete from ledgers"),
        *("load httpfs", "pragma version", "call pragma_version()", "export database 'made'", "reset threads"),
        *("explain copy ledgers to 'made'", "explain analyze copy (select 42) to 'made'", "prepare a as select 1"),
        *("explain (analyze) copy (select 42) to 'made'", "explain/**/analyze copy (select 42) to 'made'"),
        *("explain analyze explain analyze copy (select 42) to 'made'", "explain create table t (i int)"),
    ],
)
@pytest.mark.parametrize("style", ["table", "json"])
def test_sql_that_makes_no_sense_or_changes_something(
    style: str, sql: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    answer = bkctl("audit", "sql", sql, "--run", run, "-o", style)
    assert (answer.code, answer.stdout) == (2, "")
    assert "SQL: " in answer.stderr
    assert not (run / "made").exists()


@pytest.mark.parametrize(
    "sql",
    [
        "select content from read_text('/etc/passwd')",
        "select content from read_text('{run}/../secret.csv')",
        "select content from read_text('{run}/link.csv')",
        "select * from '{run}/../secret.csv'",
        "select * from read_csv('{run}/../secret.csv')",
        "select * from glob('/etc/*')",
        "select * from sniff_csv('{run}/../secret.csv')",
        "select * from read_csv('http://127.0.0.1:1/x')",
        "select * from query('select content from read_text(''/etc/passwd'')')",
        "select * from folder",
        "select getenv('HOME')",
    ],
)
def test_sql_reads_no_file_outside_of_the_run(sql: str, run: Path) -> None:
    (run.parent / "secret.csv").write_text("a\nsecret\n")
    (run / "link.csv").symlink_to(run.parent / "secret.csv")
    answer = bkctl("audit", "sql", sql.format(run=run), "--run", run)
    assert (answer.code, answer.stdout) == (2, ""), "no output"
    assert "secret\n" not in answer.stderr


def test_a_run_that_names_scans_elsewhere_opens_no_other_files_there(run: Path, tmp_path: Path) -> None:
    (tmp_path / "scan").mkdir()
    parquet.write_table(pa.Table.from_pylist([], arrow_schema(SCAN)), tmp_path / "scan/part.parquet")
    (tmp_path / "scan/secret.csv").write_text("a\nsecret\n")
    (run / "run.json").write_text(json.dumps({**ABOUT, "scans": {str(tmp_path / "scan"): None}}))
    assert bkctl("audit", "sql", "select * from entries", "--run", run).code == 0
    answer = bkctl("audit", "sql", f"select * from read_text('{tmp_path}/scan/secret.csv')", "--run", run)
    assert (answer.code, answer.stdout) == (2, "")


def test_times_and_other_values_have_a_form_in_json(run: Path) -> None:
    sql = (
        "select timestamptz '2026-11-22 22:25:14.5+02' as zoned, timestamp '2026-11-22 22:25:14' as plain, "
        "date '2026-11-22' as day, time '10:00' as clock, 1.5::decimal(5, 2) as number, "
        "[timestamptz '2026-01-01 00:00:00+00'] as l, {'t': timestamptz '2026-01-01 00:00:00+00'} as s, "
        "'NaN'::double as nan, 'a'::blob as b, 2::hugeint ** 2 as h, null as n"
    )
    answer = bkctl("audit", "sql", sql, "--run", run, "-o", "json")
    assert answer.code == 0, answer.stderr
    assert answer.json()["items"] == [
        {
            "zoned": "2026-11-22T20:25:14.500000Z",
            "plain": "2026-11-22T22:25:14",
            "day": "2026-11-22",
            "clock": "10:00:00",
            "number": 1.5,
            "l": ["2026-01-01T00:00:00Z"],
            "s": {"t": "2026-01-01T00:00:00Z"},
            "nan": "nan",
            "b": "YQ==",
            "h": 4,
            "n": None,
        }
    ]
    (now,) = bkctl("audit", "sql", "select now() as t", "--run", run, "-o", "jsonl").rows()
    assert now["t"].endswith("Z")


@pytest.mark.parametrize(
    "sql",
    ["describe entries", "show tables", "explain select 1", " EXPLAIN analyze select 1", "with a as (select 1) from a"],
)
def test_sql_that_looks(sql: str, run: Path) -> None:
    answer = bkctl("audit", "sql", sql, "--run", run, "-o", "json")
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.json()["items"]


def test_codes(run: Path) -> None:
    refused(bkctl("audit", "show", run, "--code", "BKC999"), 4, "BKC999")
    refused(bkctl("audit", "repair", run, "--code", "x", "--dry-run"), 4, "code x")
    refused(bkctl("audit", "explain", "BKC999"), 4, "BKC999")
    (one,) = bkctl("audit", "explain", "bkc401", "-o", "jsonl").rows()
    assert (one["code"], one["findings"]) == ("BKC401", None)
    (one,) = bkctl("audit", "explain", run, "-o", "jsonl").rows()
    assert (one["code"], one["findings"]) == ("BKC401", 1)


def test_a_run_is_compared_with_what_is_not_one(run: Path, tmp_path: Path) -> None:
    refused(bkctl("audit", "diff", run, tmp_path / "nothing"), 4, "nothing")
    refused(bkctl("audit", "diff", tmp_path / "nothing", run), 4, "nothing")
    assert bkctl("audit", "diff", run, run).code == 0


def test_fields_of_a_finding(run: Path) -> None:
    (item,) = bkctl("audit", "show", run, "-o", "jsonl").rows()
    assert item == {**dict.fromkeys(KEPT_FINDINGS.names), **FINDING, "evidence": {"last_entry_id": 4}}
    refused(bkctl("audit", "show", run, "--ledger", "five"), 2, "five")
