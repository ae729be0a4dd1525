"""`bkctl journal lastmark`: marks of one journal and of several, and copies that are damaged."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import bkctl
from tests.golden import Golden


def test_lastmark_agrees_with_java(golden: Golden, bookie: Path) -> None:
    answer = bkctl("journal", "lastmark", bookie / "ledgers", "-o", "json")
    (item,) = answer.json()["items"]
    words = f"Journal Id - {item['journal_id']}({item['journal']}), Pos - {item['offset']}"
    assert words in golden.shell_output("lastmark")


def test_every_journal_has_a_mark(golden: Golden) -> None:
    items = bkctl("journal", "lastmark", golden.bookie("several_dirs"), "-o", "json").json()["items"]
    assert [item["journal_index"] for item in items] == [0, 1]
    assert [len(item["files"]) for item in items] == [3, 3]


def test_a_short_mark_is_reported_and_another_copy_is_used(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("several_dirs", tmp_path / "bookie")
    (folder / "ledgers1/current/lastMark.0").write_bytes(b"")
    answer = bkctl("journal", "lastmark", folder, "-o", "json")
    assert answer.code == 1
    assert answer.json()["items"][0]["journal_id"] == 1795231572578
    assert "BKC003" in answer.json()["warnings"][0]


def test_a_mark_is_found_by_the_configuration(bookie: Path, tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory = {bookie / 'journal'}\nledgerDirectories={bookie / 'ledgers'}\n")
    assert bkctl("journal", "lastmark", "-c", conf, "-o", "name").stdout == "1a1fc11b47d.txn\n"


def test_directories_without_a_mark_are_one_error(bookie: Path) -> None:
    assert bkctl("journal", "lastmark").code == 2
    answer = bkctl("journal", "lastmark", bookie / "journal")
    assert (answer.code, answer.stdout) == (4, "")
