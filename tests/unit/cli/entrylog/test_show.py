"""`bkctl entrylog show`: headers and the bytes of each ledger, against Java's readlogmetadata."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli import shell_output


def test_show_agrees_with_readlogmetadata(golden: Golden, logs: Path) -> None:
    answer = bkctl("entrylog", "show", logs, "0", "-o", "json")
    assert answer.code == 0
    (item,) = answer.json()["items"]
    assert {s["ledger_id"]: s["size"] for s in item["ledgers"]} == shell_output.shares(golden, "readlogmetadata_0")
    assert (item["total_size"], item["counted_by"], item["state"]) == (102996, "map", "closed")


def test_a_preallocated_log_has_no_ledgers(logs: Path) -> None:
    (last,) = bkctl("entrylog", "show", logs, "8.log", "-o", "json").json()["items"]
    assert (last["ledgers"], last["state"], last["total_size"]) == ([], "empty", 0)


def test_ledgers_are_rows_with_the_same_bytes(golden: Golden, logs: Path) -> None:
    rows = bkctl("entrylog", "show", logs, "0", "--ledgers", "-o", "jsonl").rows()
    assert {row["ledger_id"]: row["size"] for row in rows} == shell_output.shares(golden, "readlogmetadata_0")
    assert {row["log_id"] for row in rows} == {0}


def test_a_table_omits_the_ledgers(logs: Path) -> None:
    answer = bkctl("entrylog", "show", logs, "0")
    assert (answer.code, answer.stderr) == (0, "")
    assert "102996" in answer.stdout
    assert "ledger_id" not in answer.stdout


def test_a_log_that_was_never_closed_is_scanned(logs: Path) -> None:
    items = bkctl("entrylog", "list", logs, "-o", "json").json()["items"]
    path = next(item["file"] for item in items if item["state"] == "open")
    (item,) = bkctl("entrylog", "show", path, "-o", "json").json()["items"]
    assert (item["state"], item["counted_by"]) == ("open", "scan")
    sizes: dict[int, int] = {}
    for row in bkctl("entrylog", "scan", path, "-o", "jsonl").rows():
        sizes[row["ledger_id"]] = sizes.get(row["ledger_id"], 0) + 4 + row["size"]
    assert sizes
    assert {s["ledger_id"]: s["size"] for s in item["ledgers"]} == sizes


def test_a_log_whose_map_is_truncated_is_one_error(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes((golden.bookie("bookie1") / "ledgers/current/0.log").read_bytes()[:-10])
    answer = bkctl("entrylog", "show", path, "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["details"]["source"]) == (8, "", str(path))


def test_a_file_without_a_header_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"hello" * 1000)
    answer = bkctl("entrylog", "show", path, "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["details"]["source"]) == (8, "", str(path))
    assert bkctl("entrylog", "show", tmp_path / "none").code == 4
