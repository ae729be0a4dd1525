"""`bkctl entrylog scan`: every frame, against Java's readlog; filters, payloads, digests and damage."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli import shell_output


def test_scan_agrees_with_readlog(golden: Golden, logs: Path) -> None:
    rows = bkctl("entrylog", "scan", logs / "current/0.log", "-o", "jsonl").rows()
    entries = [row for row in rows if row["kind"] == "entry"]
    found = [tuple(row[f] for f in shell_output.Frame._fields) for row in entries]
    assert found == shell_output.frames(golden, "readlog_0")
    assert {row["kind"] for row in rows} == {"entry", "ledgers_map"}


def test_ledger_and_entries_select_frames(golden: Golden) -> None:
    folder = golden.bookie("bookie0")
    ledger = golden.ledgers()[3]
    options = ("--ledger", "3", "--from", "4", "--to", "13", "--payload")
    rows = bkctl("entrylog", "scan", folder, *options, "-o", "jsonl").rows()
    assert rows
    assert all(4 <= row["entry_id"] <= 13 and row["ledger_id"] == 3 for row in rows)
    assert all(base64.b64decode(row["payload"]) == ledger.payload(row["entry_id"]) for row in rows)
    rest = bkctl("entrylog", "scan", folder, "--ledger", "3", "--from", "14", "-o", "jsonl").rows()
    assert min(row["entry_id"] for row in rest) >= 14


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], None),
        (["--password", "s3cret"], True),
        (["--digest", "MAC", "--password", "s3cret"], True),
        (["--digest", "MAC", "--password", "wrong"], False),
        (["--digest", "mac"], None),
        (["--digest", "CRC32C"], False),
        (["--digest", "dummy"], True),
    ],
)
def test_a_digest_is_null_if_it_needs_a_password_that_is_not_given(
    golden: Golden, options: list[str], expected: bool | None
) -> None:
    rows = bkctl("entrylog", "scan", golden.bookie("bookie1"), "--ledger", "1", *options, "-o", "jsonl").rows()
    assert {row["digest_ok"] for row in rows} == {expected}


def test_a_log_truncated_anywhere_is_one_error_and_is_read_up_to_it(golden: Golden, tmp_path: Path) -> None:
    whole = (golden.bookie("bookie0") / "ledgers/current/0.log").read_bytes()
    path = tmp_path / "0.log"
    for cut in (1, 3, 4, 20, 1023, 1026, 1030, 1060, 5000, 87_000, 87_440, len(whole) - 1):
        path.write_bytes(whole[:cut])
        answer = bkctl("entrylog", "scan", path, "-o", "json")
        assert answer.code == 8
        error = answer.error()
        assert error["exit_code"] == 8
        assert error["details"]["source"] == str(path)
        assert error["details"]["offset"] <= cut
        found = answer.json()["items"] if answer.stdout else []
        assert answer.stdout == "" or (answer.json()["partial"] and found)
        resumed = bkctl("entrylog", "scan", path, "--on-error", "resume", "-o", "json")
        assert resumed.code == 1
        assert resumed.json()["items"] == found
        assert len(resumed.json()["warnings"]) == 1
        assert "BKC10" in resumed.stderr
        assert len(bkctl("entrylog", "scan", path).stderr.splitlines()) == 1


def test_a_file_without_a_header_is_bad_bytes(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"hello" * 1000)
    answer = bkctl("entrylog", "scan", path, "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (8, "", "corrupt")


@pytest.mark.parametrize(
    "option", [("--digest", "SHA3"), ("--on-error", "explode"), ("--ledger", "five"), ("--from", "x")], ids=" ".join
)
def test_an_option_that_is_not_valid_is_a_usage_error(logs: Path, option: tuple[str, str]) -> None:
    answer = bkctl("entrylog", "scan", logs / "current/7.log", *option)
    assert (answer.code, answer.stdout) == (2, "")


@pytest.mark.parametrize("form", ["table", "wide", "json", "jsonl", "yaml", "tsv", "csv", "name"])
def test_every_format_shows_fields_and_no_objects(logs: Path, form: str) -> None:
    answer = bkctl("entrylog", "scan", logs / "current/7.log", "-o", form)
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout
    assert "LogRow(" not in answer.stdout
