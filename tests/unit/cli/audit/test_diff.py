"""`bkctl audit diff`: new and resolved findings, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tests.command_line import bkctl
from tests.unit.cli.audit.saved_run import FINDING, made, refused


def test_runs_with_the_same_findings_have_no_difference(run: Path) -> None:
    answer = bkctl("audit", "diff", run, run, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])


def test_a_new_finding_exits_with_1_and_a_resolved_one_with_0(run: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", {**FINDING, "ledger_id": 7})
    answer = bkctl("audit", "diff", run, other, "-o", "jsonl")
    changes = {row["ledger_id"]: row["change"] for row in answer.rows()}
    assert (answer.code, changes[7], changes.keys()) == (1, "new", {5, 7})
    empty = made(tmp_path / "empty")
    answer = bkctl("audit", "diff", run, empty, "-o", "jsonl")
    assert (answer.code, [row["change"] for row in answer.rows()]) == (0, [changes[5]])
    assert bkctl("audit", "diff", empty, run).code == 1


def test_a_folder_without_a_run_is_not_found(run: Path, tmp_path: Path) -> None:
    refused(bkctl("audit", "diff", run, tmp_path / "nothing"), 4, "nothing")
    refused(bkctl("audit", "diff", tmp_path / "nothing", run), 4, "nothing")
    assert bkctl("audit", "diff", run, run).code == 0
