"""`bkctl index check`: its exit codes, its findings, and where it takes directories from."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.command_line import Answer, bkctl
from tests.golden import Golden


def conf(folder: Path) -> Path:
    path = folder / "bk_server.conf"
    keys = {"journalDirectories": "journal", "ledgerDirectories": "ledgers", "indexDirectories": "index"}
    path.write_text("".join(f"{key}={folder / name}\n" for key, name in keys.items()))
    return path


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    return golden.unpack("bookie0", tmp_path / "bookie")


def check(folder: Path) -> Answer:
    return bkctl("index", "check", "-c", conf(folder), "-o", "json")


def test_a_sound_index_exits_0_and_says_what_was_checked(folder: Path) -> None:
    answer = check(folder)
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert "entries in" in answer.stderr
    assert "match the index" in answer.stderr


def test_an_entry_without_a_location_and_a_location_without_its_entry_exit_1(folder: Path) -> None:
    database = Rdict(str(folder / "index/current/locations"), Options(raw_mode=True))
    rows = list(database.items())
    database.delete(rows[0][0])
    database[rows[1][0]] = rows[2][1]
    database.close()
    answer = check(folder)
    assert answer.code == 1
    assert {(f["code"], f["entry_id"]) for f in answer.json()["items"]} == {
        ("BKC304", int.from_bytes(rows[0][0][8:], "big")),
        ("BKC306", int.from_bytes(rows[0][0][8:], "big")),
        ("BKC303", int.from_bytes(rows[1][0][8:], "big")),
    }


@pytest.mark.parametrize("lost", [("locations",), ("ledgers",), ("locations", "ledgers")], ids="+".join)
def test_a_missing_database_exits_8(folder: Path, lost: tuple[str, ...]) -> None:
    for name in lost:
        shutil.rmtree(folder / "index/current" / name)
    answer = check(folder)
    assert (answer.code, {f["code"] for f in answer.json()["items"]}) == (8, {"BKC302"})
    assert all("bkctl index rebuild" in f["next"] for f in answer.json()["items"])


def test_a_database_that_rocksdb_cannot_read_exits_8(folder: Path) -> None:
    for manifest in (folder / "index/current/locations").glob("MANIFEST-*"):
        manifest.write_bytes(manifest.read_bytes()[:20])
    answer = check(folder)
    assert (answer.code, {f["code"] for f in answer.json()["items"]}) == (8, {"BKC302"})


def test_a_database_that_was_never_written_to_is_found(folder: Path) -> None:
    for name in ("locations", "ledgers"):
        shutil.rmtree(folder / "index/current" / name)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        Rdict(str(folder / "index/current" / name), options).close()
    answer = check(folder)
    assert (answer.code, {f["code"] for f in answer.json()["items"]}) == (1, {"BKC308"})


def test_what_it_refuses(folder: Path, tmp_path: Path) -> None:
    assert bkctl("index", "check").code == 2
    assert bkctl("index", "check", tmp_path).code == 4, "no cookie names the other directories"
    assert bkctl("index", "check", folder / "index").code == 2, "the cookie names another place"
    with (folder / "ledgers" / "bkctl.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert check(folder).code == 3
