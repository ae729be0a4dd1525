"""`entrylog list|show|scan|verify` on Java's logs, against Java's shell, and on damaged ones."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli import shell_output
from tests.unit.cli.golden_tree import golden_tree


@pytest.fixture
def logs(golden: Golden) -> Path:
    """The logs that the golden shell output is about."""
    return golden.bookie("bookie1") / "ledgers"


def test_scan_says_what_readlog_says(golden: Golden, logs: Path) -> None:
    rows = bkctl("entrylog", "scan", logs / "current/0.log", "-o", "jsonl").rows()
    entries = [row for row in rows if row["kind"] == "entry"]
    found = [tuple(row[f] for f in shell_output.Frame._fields) for row in entries]
    assert found == shell_output.frames(golden, "readlog_0")
    assert {row["kind"] for row in rows} == {"entry", "ledgers_map"}


def test_show_says_what_readlogmetadata_says(golden: Golden, logs: Path) -> None:
    answer = bkctl("entrylog", "show", logs, "0", "-o", "json")
    assert answer.code == 0
    (item,) = answer.json()["items"]
    assert {s["ledger_id"]: s["size"] for s in item["ledgers"]} == shell_output.shares(golden, "readlogmetadata_0")
    assert (item["total_size"], item["counted_by"], item["state"]) == (102996, "map", "closed")
    (last,) = bkctl("entrylog", "show", logs, "8.log", "-o", "json").json()["items"]
    assert (last["ledgers"], last["state"], last["total_size"]) == ([], "empty", 0)


def test_one_log_by_every_name(golden: Golden, logs: Path, tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"ledgerDirectories={logs}\nzkServers=nowhere:1\n")
    expected = bkctl("entrylog", "scan", logs / "current/5.log", "-o", "jsonl").rows()
    assert len(expected) == 433
    for arguments in ([logs, "5"], [logs / "current", "0x5"], ["-c", conf, "5.log"], ["-c", conf, "5"]):
        assert bkctl("entrylog", "scan", *arguments, "-o", "jsonl").rows() == expected


def test_list(logs: Path, golden: Golden) -> None:
    items = bkctl("entrylog", "list", logs, "-o", "json").json()["items"]
    assert [item["log_id"] for item in items] == list(range(9))
    assert {item["state"] for item in items} == {"closed", "open", "empty"}
    several = bkctl("entrylog", "list", golden.bookie("several_dirs"), "-o", "json").json()["items"]
    assert [item["log_id"] for item in several] == [0, 1] * 3
    names = bkctl("entrylog", "list", logs, "-o", "name").stdout.splitlines()
    assert names == [item["file"] for item in items]


def test_scan_filters_and_payloads(golden: Golden) -> None:
    folder = golden.bookie("bookie0")
    ledger = golden.ledgers()[3]
    rows = bkctl(
        "entrylog", "scan", folder, "--ledger", "3", "--from", "4", "--to", "13", "--payload", "-o", "jsonl"
    ).rows()
    assert rows
    assert all(4 <= row["entry_id"] <= 13 and row["ledger_id"] == 3 for row in rows)
    assert all(base64.b64decode(row["payload"]) == ledger.payload(row["entry_id"]) for row in rows)


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
def test_digest_that_needs_a_password(golden: Golden, options: list[str], expected: bool | None) -> None:
    rows = bkctl("entrylog", "scan", golden.bookie("bookie1"), "--ledger", "1", *options, "-o", "jsonl").rows()
    assert {row["digest_ok"] for row in rows} == {expected}


def test_verify_sound_and_damaged(golden: Golden, tmp_path: Path) -> None:
    folder = golden.bookie("bookie0")
    sound = bkctl("entrylog", "verify", folder, "-o", "json")
    assert (sound.code, sound.json()["items"]) == (0, [])
    path = tmp_path / "0.log"
    shutil.copy(folder / "ledgers/current/0.log", path)
    with path.open("r+b") as file:
        file.seek(1400)
        file.write(b"\xff" * 100)
    answer = bkctl("entrylog", "verify", path, "-o", "json")
    assert answer.code == 1
    finding = answer.json()["items"][0]
    assert (finding["code"], finding["ledger_id"], finding["entry_id"]) == ("BKC107", 2, 3)
    assert (finding["file"], finding["offset"]) == (str(path), 1117)
    assert bkctl("explain", finding["code"], "-o", "json").json()["code"] == "BKC107"


def test_cut_anywhere_is_one_clear_error(golden: Golden, tmp_path: Path) -> None:
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


def test_what_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"hello" * 1000)
    assert bkctl("entrylog", "scan", path).code == 8
    assert bkctl("entrylog", "show", path).code == 8
    assert bkctl("entrylog", "list", path, "-o", "json").json()["items"][0]["state"] == "damaged"
    assert bkctl("entrylog", "verify", path, "-o", "json").json()["items"][0]["code"] == "BKC101"
    assert bkctl("entrylog", "scan", tmp_path / "nothing.log").code == 4
    assert bkctl("entrylog", "scan", "7").code == 4
    (tmp_path / "empty").mkdir()
    for verb, code in (("list", 0), ("show", 4), ("scan", 4), ("verify", 4)):
        assert bkctl("entrylog", verb, tmp_path / "empty").code == code
    assert bkctl("entrylog", "scan").code == 2
    assert bkctl("entrylog", "scan", path, "--digest", "SHA3").code == 2
    assert bkctl("entrylog", "scan", path, "--on-error", "explode").code == 2


@pytest.mark.parametrize("form", ["table", "wide", "json", "jsonl", "yaml", "tsv", "csv", "name"])
def test_every_format(logs: Path, form: str) -> None:
    for verb in ("list", "show", "scan", "verify"):
        answer = bkctl("entrylog", verb, logs / "current/7.log", "-o", form)
        assert (answer.code, answer.stderr) == (0, "")
    assert "LogRow(" not in bkctl("entrylog", "scan", logs / "current/7.log", "-o", form).stdout


def test_digests_from_metadata(golden: Golden) -> None:
    """With metadata every entry of the manifest's ledgers is checked: MAC with its password, DUMMY as such."""
    tree = golden_tree()
    for name in ("bookie0", "bookie1", "bookie4", "bookie5"):
        folder = golden.bookie(name)
        known = {ledger.id for ledger in golden.ledgers().values() if not ledger.deleted}
        rows = bkctl("entrylog", "scan", folder, "--with-metadata", "-o", "jsonl", tree=tree).rows()
        entries = [row for row in rows if row["kind"] == "entry" and row["ledger_id"] in known]
        assert entries
        assert {row["digest_ok"] for row in entries} == {True}
        assert bkctl("journal", "verify", folder, "--with-metadata", tree=tree).code == 0
    assert bkctl("entrylog", "scan", folder, "--with-metadata", tree=MemoryTree()).code == 4
    assert bkctl("entrylog", "scan", folder, "--with-metadata").code == 2


def test_a_damaged_mac_entry_is_found_with_metadata(golden: Golden, tmp_path: Path) -> None:
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
