"""`bkctl entrylog list`: states, directories and names of entry logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.golden import Golden


def test_logs_are_listed_with_their_state(logs: Path) -> None:
    items = bkctl("entrylog", "list", logs, "-o", "json").json()["items"]
    assert [item["log_id"] for item in items] == list(range(9))
    assert {item["state"] for item in items} == {"closed", "open", "empty"}
    assert all(item["modified_ms"] > 0 and item["modified"].endswith("Z") for item in items)
    names = bkctl("entrylog", "list", logs, "-o", "name").stdout.splitlines()
    assert names == [item["file"] for item in items]


def test_logs_of_several_directories_are_listed_directory_by_directory(golden: Golden) -> None:
    items = bkctl("entrylog", "list", golden.bookie("several_dirs"), "-o", "json").json()["items"]
    assert [item["log_id"] for item in items] == [0, 1] * 3


def test_a_file_without_a_header_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"hello" * 1000)
    (item,) = bkctl("entrylog", "list", path, "-o", "json").json()["items"]
    assert (item["state"], item["size"], item["ledger_count"]) == ("damaged", 5000, None)


def test_an_empty_directory_is_an_empty_list(tmp_path: Path) -> None:
    answer = bkctl("entrylog", "list", tmp_path, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])


@pytest.mark.parametrize("form", ["table", "wide", "tsv", "csv"])
def test_a_table_has_a_row_for_each_log(logs: Path, form: str) -> None:
    answer = bkctl("entrylog", "list", logs, "-o", form)
    assert (answer.code, answer.stderr) == (0, "")
    rows = [line for line in answer.stdout.splitlines() if ".log" in line]
    assert len(rows) == 9
    assert "T" in rows[0].split("current/0.log")[1], "the time of the last change is the last column"
