"""`journal list|read|verify|lastmark` on Java's journals, against Java's shell, and on damaged ones."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli import shell_output


@pytest.fixture
def bookie(golden: Golden) -> Path:
    """The bookie that the golden shell output is about."""
    return golden.bookie("bookie1")


def test_read_says_what_readjournal_says(golden: Golden, bookie: Path) -> None:
    rows = bkctl("journal", "read", bookie / "journal", "1a1fc11b47c.txn", "-o", "jsonl").rows()
    found = [tuple(row[f] for f in shell_output.Frame._fields) for row in rows]
    assert found == shell_output.frames(golden, "readjournal")
    assert {row["kind"] for row in rows} == {"entry", "ledger_key", "fence", "explicit_lac"}


def test_lastmark_says_what_lastmark_says(golden: Golden, bookie: Path) -> None:
    answer = bkctl("journal", "lastmark", bookie / "ledgers", "-o", "json")
    (item,) = answer.json()["items"]
    words = f"Journal Id - {item['journal_id']}({item['journal']}), Pos - {item['offset']}"
    assert words in golden.shell_output("lastmark")


def test_marks_of_several_journals(golden: Golden) -> None:
    items = bkctl("journal", "lastmark", golden.bookie("several_dirs"), "-o", "json").json()["items"]
    assert [item["journal_index"] for item in items] == [0, 1]
    assert [len(item["files"]) for item in items] == [3, 3]


def test_a_short_mark_is_reported_and_another_copy_counts(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("several_dirs", tmp_path / "bookie")
    (folder / "ledgers1/current/lastMark.0").write_bytes(b"")
    answer = bkctl("journal", "lastmark", folder, "-o", "json")
    assert answer.code == 1
    assert answer.json()["items"][0]["journal_id"] == 1795231572578
    assert "BKC003" in answer.json()["warnings"][0]


def test_list_and_names(golden: Golden, bookie: Path, tmp_path: Path) -> None:
    items = bkctl("journal", "list", bookie, "-o", "json").json()["items"]
    assert [(item["journal_id"], item["version"]) for item in items] == [(1795230381180, 6), (1795230381181, 6)]
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory = {bookie / 'journal'}\nledgerDirectories={bookie / 'ledgers'}\n")
    expected = bkctl("journal", "read", bookie / "journal/current/1a1fc11b47d.txn", "-o", "jsonl").rows()
    for name in ("1a1fc11b47d.txn", "0x1a1fc11b47d", "1795230381181"):
        assert bkctl("journal", "read", "-c", conf, name, "-o", "jsonl").rows() == expected
    assert bkctl("journal", "verify", "-c", conf).code == 0
    assert bkctl("journal", "lastmark", "-c", conf, "-o", "name").stdout == "1a1fc11b47d.txn\n"
    assert bkctl("journal", "lastmark").code == 2
    assert bkctl("journal", "lastmark", bookie / "journal").code == 4


def test_read_of_one_ledger_from_a_mark_on(bookie: Path) -> None:
    path = bookie / "journal/current/1a1fc11b47d.txn"
    rows = bkctl("journal", "read", path, "--ledger", "26", "--padding", "-o", "jsonl").rows()
    assert {row["ledger_id"] for row in rows} == {26}
    every = bkctl("journal", "read", path, "--padding", "-o", "jsonl").rows()
    middle = every[len(every) // 2]
    later = bkctl("journal", "read", path, "--padding", "--start", middle["offset"] - 4, "-o", "jsonl").rows()
    assert later == every[len(every) // 2 :]
    assert {row["kind"] for row in every} == {"entry", "ledger_key", "fence", "explicit_lac", "padding"}


def test_payloads(golden: Golden, bookie: Path) -> None:
    ledger = golden.ledgers()[26]
    rows = bkctl("journal", "read", bookie, "--ledger", "26", "--payload", "-o", "jsonl").rows()
    payloads = {row["entry_id"]: row["payload"] for row in rows}
    assert payloads.pop(-0x1000) is None  # the ledger's key
    assert payloads == {e: base64.b64encode(ledger.payload(e)).decode() for e in range(40)}


def test_keys_are_not_shown(bookie: Path) -> None:
    assert "850bf1071c5e3d8c24235676f8816ae0cbe2f14f" not in bkctl("journal", "read", bookie, "-o", "json").stdout


def test_verify_finds_damage_and_bad_marks(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie0", tmp_path / "bookie")
    assert bkctl("journal", "verify", folder, "-o", "json").json()["items"] == []
    path = folder / "journal/current/1a1fc11aece.txn"
    mark = folder / "ledgers/current/lastMark"
    data = mark.read_bytes()

    def codes() -> list[str]:
        answer = bkctl("journal", "verify", folder, "-o", "json")
        assert answer.code == 1
        return [item["code"] for item in answer.json()["items"]]

    mark.write_bytes(data[:14] + b"\x02\x01")
    assert codes() == ["BKC207"]
    mark.write_bytes(data[:7] + b"\x01" + data[8:])
    assert codes() == ["BKC206"]
    mark.write_bytes(data)
    with path.open("r+b") as file:
        file.seek(700)
        file.write(b"\xff" * 8)
    assert "BKC204" in codes() or "BKC203" in codes()


def test_a_cut_journal(golden: Golden, tmp_path: Path) -> None:
    whole = (golden.bookie("bookie0") / "journal/current/1a1fc11aece.txn").read_bytes()[:100_000]
    path = tmp_path / "1.txn"
    for cut in (100, 511, 530, 99_999):
        path.write_bytes(whole[:cut])
        answer = bkctl("journal", "read", path, "-o", "json")
        assert answer.code == 8
        assert answer.error()["details"]["source"] == str(path)
        assert bkctl("journal", "read", path, "--on-error", "resume").code == 1
    (tmp_path / "empty").mkdir()
    for verb, code in (("list", 0), ("read", 4), ("verify", 4)):
        assert bkctl("journal", verb, tmp_path / "empty").code == code
    path.write_bytes(b"")
    assert bkctl("journal", "read", path, "-o", "json").json()["items"] == []
