"""`index show` on RocksDB and .idx files, against Java's shell, and where there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.golden import ALL, Golden
from tests.unit.cli import shell_output


@pytest.mark.parametrize(
    ("bookie", "ledger_id", "output"), [("bookie1", 0, "ledger"), ("bookie5", 26, "ledger_interleaved")]
)
def test_says_what_ledger_says(golden: Golden, bookie: str, ledger_id: int, output: str) -> None:
    rows = bkctl("index", "show", golden.bookie(bookie), "--ledger", ledger_id, "-o", "jsonl").rows()
    assert [(r["entry_id"], r["log_id"], r["offset"]) for r in rows] == shell_output.locations(golden, output)


@pytest.mark.parametrize("name", ALL)
def test_offsets_are_those_of_the_log(golden: Golden, name: str) -> None:
    """Every row of the index names a frame that the scan of its log finds."""
    folder = golden.bookie(name)
    log_dirs = {"index": "ledgers", **{f"index{i}": f"ledgers{i}" for i in range(3)}}
    for index in sorted(folder.glob("index*")):
        frames = {
            (row["ledger_id"], row["entry_id"], Path(row["file"]).name, row["offset"])
            for row in bkctl("entrylog", "scan", folder / log_dirs[index.name], "-o", "jsonl").rows()
        }
        for ledger in bkctl("index", "show", index, "-o", "jsonl").rows():
            if ledger["entries"]:
                found = bkctl("index", "show", index, "--ledger", ledger["ledger_id"], "-o", "jsonl").rows()
                assert {(r["ledger_id"], r["entry_id"], r["log"], r["offset"]) for r in found} <= frames
                assert len(found) == ledger["entries"]


def test_ledgers_and_keys(golden: Golden, tmp_path: Path) -> None:
    index = golden.bookie("bookie1") / "index"
    items = bkctl("index", "show", index, "-o", "json").json()["items"]
    by_id = {item["ledger_id"]: item for item in items}
    assert list(by_id) == sorted(by_id)
    assert all(item["master_key"] is None for item in items)
    assert by_id[24]["fenced"] is True
    assert (by_id[0]["password_set"], by_id[1]["password_set"]) == (False, True)
    assert by_id[22]["explicit_lac"] == 6
    assert bkctl("index", "show", index / "current/locations", "-o", "json").json()["items"] == items
    shown = bkctl("index", "show", index, "--show-key", "-o", "json").json()["items"]
    assert all(item["master_key"] for item in shown)
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"ledgerDirectories=/nowhere\nindexDirectories={index}\n")
    assert bkctl("index", "show", "-c", conf, "-o", "json").json()["items"] == items
    table = bkctl("index", "show", index)
    assert table.stdout.splitlines()[0].split()[0] == "ledger_id"
    assert len(table.stdout.splitlines()) == len(items) + 1


def test_explicit_lac_of_an_idx(golden: Golden) -> None:
    rows = bkctl("index", "show", golden.bookie("log_per_ledger"), "-o", "jsonl").rows()
    assert {row["ledger_id"]: row["explicit_lac"] for row in rows if row["explicit_lac"] is not None} == {8: 6}


def test_what_is_no_index(golden: Golden, tmp_path: Path) -> None:
    assert bkctl("index", "show").code == 2
    assert bkctl("index", "show", tmp_path / "nothing").code == 4
    assert bkctl("index", "show", tmp_path).code == 4
    assert bkctl("index", "show", golden.bookie("bookie0"), "--ledger", "777").code == 4
    assert bkctl("index", "show", golden.bookie("bookie0"), "--ledger", "x").code == 2
    empty = bkctl("index", "show", golden.bookie("bookie5"), "--ledger", "28", "-o", "json")
    assert (empty.code, empty.json()["items"]) == (0, [])


def test_a_damaged_database_is_bad_bytes(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie1", tmp_path / "bookie")
    for table in folder.glob("index/current/locations/*.sst"):
        table.write_bytes(table.read_bytes()[:100])
    for manifest in folder.glob("index/current/ledgers/MANIFEST-*"):
        manifest.write_bytes(b"nonsense" * 10)
    answer = bkctl("index", "show", folder, "-o", "json")
    assert answer.code == 8
    assert answer.error()["details"]["source"].startswith(str(folder / "index/current"))
    (folder / "index/current/ledgers/CURRENT").write_text("MANIFEST-999999\n")
    assert bkctl("index", "show", folder).code == 8
    idx = golden.unpack("bookie5", tmp_path / "five")
    (idx / "index/current/0/1a/1a.idx").write_bytes(b"BKLX" + bytes(2000))
    assert bkctl("index", "show", idx).code == 8
