"""`bkctl entrylog verify`: findings in damaged logs, none in Java's."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli.golden_tree import golden_tree


def test_logs_of_java_have_no_findings(golden: Golden) -> None:
    answer = bkctl("entrylog", "verify", golden.bookie("bookie0"), "-v", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert "logs" in answer.stderr


def test_a_damaged_entry_is_a_finding_with_its_place(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    shutil.copy(golden.bookie("bookie0") / "ledgers/current/0.log", path)
    with path.open("r+b") as file:
        file.seek(1400)
        file.write(b"\xff" * 100)
    answer = bkctl("entrylog", "verify", path, "-o", "json")
    assert answer.code == 1
    finding = answer.json()["items"][0]
    assert (finding["code"], finding["ledger_id"], finding["entry_id"]) == ("BKC107", 2, 3)
    assert (finding["file"], finding["offset"]) == (str(path), 1117)
    assert bkctl("explain", finding["code"], "-o", "json").json()["code"] == "BKC107"
    table = bkctl("entrylog", "verify", path)
    assert (table.code, "BKC107" in table.stdout) == (1, True)


def test_a_damaged_entry_with_a_mac_is_found_with_metadata(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    shutil.copy(golden.bookie("bookie1") / "ledgers/current/0.log", path)
    rows = bkctl("entrylog", "scan", path, "--ledger", "1", "-o", "jsonl").rows()
    with path.open("r+b") as file:
        file.seek(rows[3]["offset"] + rows[3]["size"] - 1)
        file.write(b"?")
    assert bkctl("entrylog", "verify", path).code == 0
    answer = bkctl("entrylog", "verify", path, "--with-metadata", "-o", "json", tree=golden_tree())
    assert answer.code == 1
    found = [(item["code"], item["ledger_id"], item["entry_id"]) for item in answer.json()["items"]]
    assert found == [("BKC107", 1, rows[3]["entry_id"])]


def test_a_file_without_a_header_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"hello" * 1000)
    answer = bkctl("entrylog", "verify", path, "-o", "json")
    assert (answer.code, [item["code"] for item in answer.json()["items"]]) == (1, ["BKC101"])


def test_a_directory_without_logs_is_not_found(tmp_path: Path) -> None:
    answer = bkctl("entrylog", "verify", tmp_path, "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "not_found")
