"""`bkctl audit sql`: queries that only read, values in JSON, and files that a query must not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import arrow_schema
from bkinspect.audit.sources.scan import SCAN

from tests.command_line import bkctl
from tests.unit.cli.audit.saved_run import ABOUT


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
def test_a_statement_that_is_not_valid_or_changes_something_is_a_usage_error(
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
def test_a_query_reads_no_file_outside_of_the_run(sql: str, run: Path) -> None:
    (run.parent / "secret.csv").write_text("a\nsecret\n")
    (run / "link.csv").symlink_to(run.parent / "secret.csv")
    answer = bkctl("audit", "sql", sql.format(run=run), "--run", run)
    assert (answer.code, answer.stdout) == (2, ""), "no output"
    assert "secret\n" not in answer.stderr


def test_a_scan_elsewhere_opens_no_other_files_there(run: Path, tmp_path: Path) -> None:
    (tmp_path / "scan").mkdir()
    parquet.write_table(pa.Table.from_pylist([], arrow_schema(SCAN)), tmp_path / "scan/part.parquet")
    (tmp_path / "scan/secret.csv").write_text("a\nsecret\n")
    (run / "run.json").write_text(json.dumps({**ABOUT, "scans": {str(tmp_path / "scan"): None}}))
    assert bkctl("audit", "sql", "select * from entries", "--run", run).code == 0
    answer = bkctl("audit", "sql", f"select * from read_text('{tmp_path}/scan/secret.csv')", "--run", run)
    assert (answer.code, answer.stdout) == (2, "")


def test_every_type_of_value_has_a_form_in_json(run: Path) -> None:
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
def test_statements_that_describe_are_permitted(sql: str, run: Path) -> None:
    answer = bkctl("audit", "sql", sql, "--run", run, "-o", "json")
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.json()["items"]


def test_rows_have_the_columns_of_the_query_in_every_format(run: Path) -> None:
    sql = ("audit", "sql", "select ledger_id, state from ledgers", "--run", run)
    assert bkctl(*sql, "-o", "csv").stdout == "ledger_id,state\n5,OPEN\n"
    assert bkctl(*sql, "-o", "name").stdout == "5\n"
    table = bkctl(*sql)
    assert (table.code, table.stderr) == (0, "")
    assert [line.split() for line in table.stdout.splitlines() if "OPEN" in line] == [["5", "OPEN"]]
    answer = bkctl(*sql, "-o", "json").json()
    assert (answer["items"], answer["partial"]) == ([{"ledger_id": 5, "state": "OPEN"}], False)
    assert answer["as_of"].startswith("2026-")


def test_a_query_without_rows_is_an_empty_list(run: Path) -> None:
    answer = bkctl("audit", "sql", "select * from ledgers where ledger_id = 6", "--run", run, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
