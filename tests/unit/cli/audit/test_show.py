"""`bkctl audit show`: the fields of findings, filters, and notes of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from bkinspect.audit.schemas import KEPT_FINDINGS

from tests.command_line import bkctl
from tests.unit.cli.audit.saved_run import FINDING, made, refused


def test_a_finding_has_the_fields_of_the_contract(run: Path) -> None:
    (item,) = bkctl("audit", "show", run, "-o", "jsonl").rows()
    assert item == {**dict.fromkeys(KEPT_FINDINGS.names), **FINDING, "evidence": {"last_entry_id": 4}}
    refused(bkctl("audit", "show", run, "--ledger", "five"), 2, "five")


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A run with three findings and a note."""
    other = {**FINDING, "code": "BKC403", "ledger_id": 6, "severity": "warning"}
    return made(tmp_path / "several", FINDING, {**FINDING, "ledger_id": 7}, other, notes=["b2 did not answer"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {("BKC401", 5), ("BKC401", 7), ("BKC403", 6)}),
        (("--code", "BKC401"), {("BKC401", 5), ("BKC401", 7)}),
        (("--code", "BKC401", "--code", "BKC403", "--ledger", "6"), {("BKC403", 6)}),
        (("--ledger", "0x5", "--ledger", "6"), {("BKC401", 5), ("BKC403", 6)}),
        (("--ledger", "99"), set()),
    ],
)
def test_options_select_findings(several: Path, options: tuple[str, ...], expected: set[tuple[str, int]]) -> None:
    answer = bkctl("audit", "show", several, *options, "-o", "jsonl")
    assert (answer.code, {(row["code"], row["ledger_id"]) for row in answer.rows()}) == (0, expected)


def test_the_notes_of_the_run_are_warnings_and_its_time_is_as_of(several: Path) -> None:
    answer = bkctl("audit", "show", several, "-v", "-o", "json")
    assert (answer.json()["warnings"], answer.json()["as_of"]) == (["b2 did not answer"], "2026-11-18T11:06:40.000Z")
    assert f"report: {several}/report.html" in answer.stderr


def test_a_code_that_does_not_exist_is_not_found(run: Path) -> None:
    refused(bkctl("audit", "show", run, "--code", "BKC999"), 4, "BKC999")
    refused(bkctl("audit", "repair", run, "--code", "x", "--dry-run"), 4, "code x")


def test_a_table_has_a_row_for_each_finding(several: Path) -> None:
    answer = bkctl("audit", "show", several)
    assert (answer.code, answer.stdout.count("BKC401"), answer.stdout.count("BKC403")) == (0, 2, 1)
