"""`bkctl journal read`: every record, against Java's readjournal; filters, payloads and damage."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli import shell_output


def test_read_agrees_with_readjournal(golden: Golden, bookie: Path) -> None:
    rows = bkctl("journal", "read", bookie / "journal", "1a1fc11b47c.txn", "-o", "jsonl").rows()
    found = [tuple(row[f] for f in shell_output.Frame._fields) for row in rows]
    assert found == shell_output.frames(golden, "readjournal")
    assert {row["kind"] for row in rows} == {"entry", "ledger_key", "fence", "explicit_lac"}


def test_options_select_records_of_a_ledger_and_from_an_offset(bookie: Path) -> None:
    path = bookie / "journal/current/1a1fc11b47d.txn"
    rows = bkctl("journal", "read", path, "--ledger", "26", "--padding", "-o", "jsonl").rows()
    assert {row["ledger_id"] for row in rows} == {26}
    every = bkctl("journal", "read", path, "--padding", "-o", "jsonl").rows()
    middle = every[len(every) // 2]
    later = bkctl("journal", "read", path, "--padding", "--start", middle["offset"] - 4, "-o", "jsonl").rows()
    assert later == every[len(every) // 2 :]
    assert {row["kind"] for row in every} == {"entry", "ledger_key", "fence", "explicit_lac", "padding"}


def test_payloads_are_those_of_the_ledger(golden: Golden, bookie: Path) -> None:
    ledger = golden.ledgers()[26]
    rows = bkctl("journal", "read", bookie, "--ledger", "26", "--payload", "-o", "jsonl").rows()
    payloads = {row["entry_id"]: row["payload"] for row in rows}
    assert payloads.pop(-0x1000) is None  # the ledger's key
    assert payloads == {e: base64.b64encode(ledger.payload(e)).decode() for e in range(40)}


def test_ledger_keys_are_not_shown(bookie: Path) -> None:
    assert "850bf1071c5e3d8c24235676f8816ae0cbe2f14f" not in bkctl("journal", "read", bookie, "-o", "json").stdout


@pytest.mark.parametrize("size", [100, 511, 530, 99_999])
def test_a_truncated_journal_is_one_error_and_is_read_up_to_it(golden: Golden, tmp_path: Path, size: int) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes((golden.bookie("bookie0") / "journal/current/1a1fc11aece.txn").read_bytes()[:size])
    answer = bkctl("journal", "read", path, "-o", "json")
    assert (answer.code, answer.error()["details"]["source"]) == (8, str(path))
    assert answer.stdout == "" or answer.json()["partial"]
    assert bkctl("journal", "read", path, "--on-error", "resume").code == 1


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(b"")
    answer = bkctl("journal", "read", path, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])


@pytest.mark.parametrize("form", ["table", "wide", "json", "jsonl", "yaml", "tsv", "csv", "name"])
def test_every_format_shows_fields_and_no_objects(bookie: Path, form: str) -> None:
    path = bookie / "journal/current/1a1fc11b47d.txn"
    answer = bkctl("journal", "read", path, "--ledger", "26", "-o", form)
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout
    assert "JournalRow(" not in answer.stdout
