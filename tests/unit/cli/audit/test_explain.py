"""`bkctl audit explain`: codes of a run with their counts, or one code."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tests.command_line import bkctl
from tests.unit.cli.audit.saved_run import FINDING, made, refused


def test_the_codes_of_a_run_have_counts_and_a_next_step(tmp_path: Path) -> None:
    run = made(tmp_path / "run", counts={"BKC403": 2, "BKC401": 1})
    rows = bkctl("audit", "explain", run, "-o", "jsonl").rows()
    assert [(row["code"], row["findings"]) for row in rows] == [("BKC401", 1), ("BKC403", 2)]
    assert all(row["title"] and row["text"] and row["next"] and row["severity"] for row in rows)


@pytest.mark.parametrize("name", ["bkc401", "BKC401"])
def test_a_code_is_explained_without_a_run(name: str) -> None:
    (row,) = bkctl("audit", "explain", name, "-o", "jsonl").rows()
    assert (row["code"], row["findings"]) == ("BKC401", None)
    assert bkctl("explain", "BKC401", "-o", "json").json()["title"] == row["title"]


def test_a_folder_named_like_a_code_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "bkc401", FINDING, counts={"BKC403": 1})
    (row,) = bkctl("audit", "explain", "bkc401", "-o", "jsonl").rows()
    assert (row["code"], row["findings"]) == ("BKC403", 1)


def test_a_code_that_does_not_exist_is_not_found() -> None:
    refused(bkctl("audit", "explain", "BKC999"), 4, "BKC999")
