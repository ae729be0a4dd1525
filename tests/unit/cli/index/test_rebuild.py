"""`bkctl index rebuild`: plan, consent, what it writes, and where it takes directories from."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from bkctl.codec.data_dir import COOKIE_NAME, CURRENT, encode_cookie
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId
from tests.command_line import bkctl
from tests.golden import Golden
from tests.unit.cli.golden_tree import golden_tree
from tests.unit.cli.index.test_check import check, conf


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """A bookie that lost its index."""
    folder = golden.unpack("bookie0", tmp_path / "bookie")
    for name in ("locations", "ledgers"):
        shutil.rmtree(folder / "index/current" / name)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def test_a_dry_run_shows_the_plan_and_writes_nothing(folder: Path) -> None:
    file = conf(folder)
    before = names(folder)
    answer = bkctl("index", "rebuild", "-c", file, "--dry-run")
    assert answer.code == 0
    assert "read master keys, fences and explicit LACs from the journals" in answer.stdout
    assert "locations: missing, ledgers: missing" in answer.stdout
    assert names(folder) == before


def test_nothing_is_rebuilt_without_consent(folder: Path) -> None:
    file = conf(folder)
    before = names(folder)
    assert bkctl("index", "rebuild", "-c", file).code == 3
    assert names(folder) == before


def test_the_rebuilt_index_passes_the_check(folder: Path) -> None:
    answer = bkctl("index", "rebuild", "-c", conf(folder), "--yes", "-o", "json")
    (item,) = answer.json()["items"]
    assert answer.code == 0
    assert (item["index_dir"], item["without_key"]) == (str(folder / "index/current"), 0)
    assert item["entries"] > 50
    assert "are fenced, because it cannot be known" in answer.stderr
    found = check(folder)
    assert (found.code, found.json()["items"]) == (0, [])
    again = bkctl("index", "rebuild", "-c", conf(folder), "--yes", "-o", "json").json()["items"][0]
    assert [Path(path).name.split("-")[0] for path in again["backups"]] == ["locations.BACKUP", "ledgers.BACKUP"]


@pytest.mark.parametrize("current", ["", CURRENT])
def test_the_cookie_of_an_index_directory_names_the_others(folder: Path, current: str) -> None:
    cookie = Cookie(
        BookieId("127.0.0.1:3181"), (str(folder / "journal"),), (str(folder / "ledgers"),), (str(folder / "index"),)
    )
    for name in ("journal", "ledgers", "index"):
        (folder / name / CURRENT / COOKIE_NAME).write_bytes(encode_cookie(cookie))
    assert bkctl("index", "rebuild", folder / "index" / current, "--yes").code == 0
    assert check(folder).code == 0


def test_one_of_several_directories_is_rebuilt_alone(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("several_dirs", tmp_path / "bookie")
    lists = {
        "journalDirectories": [folder / f"journal{i}" for i in range(2)],
        "ledgerDirectories": [folder / f"ledgers{i}" for i in range(3)],
        "indexDirectories": [folder / f"index{i}" for i in range(3)],
    }
    file = tmp_path / "bk_server.conf"
    file.write_text("".join(f"{key}={','.join(map(str, paths))}\n" for key, paths in lists.items()))
    shutil.rmtree(folder / "index1/current/locations")
    assert bkctl("index", "check", "-c", file).code == 8
    answer = bkctl("index", "rebuild", folder / "index1", "-c", file, "--yes", "-o", "jsonl")
    assert [row["index_dir"] for row in answer.rows()] == [str(folder / "index1/current")]
    assert bkctl("index", "check", "-c", file).code == 0
    assert bkctl("index", "rebuild", folder, "-c", file, "--yes").code == 2


def test_with_metadata_leaves_out_ledgers_that_the_cluster_does_not_have(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("gc_cache_transactional", tmp_path / "bookie")
    for name in ("locations", "ledgers"):
        shutil.rmtree(folder / "index/current" / name)
    tree = golden_tree(variant=True)
    answer = bkctl("index", "rebuild", "-c", conf(folder), "--with-metadata", "--yes", tree=tree)
    assert answer.code == 0, answer.stderr
    found = check(folder)
    assert (found.code, found.json()["items"]) == (0, [])


def test_with_metadata_of_another_cluster_is_refused(folder: Path) -> None:
    before = names(folder)
    answer = bkctl("index", "rebuild", "-c", conf(folder), "--with-metadata", "--yes", tree=golden_tree(variant=True))
    assert answer.code == 3
    assert "the bookie's cookies name" in answer.stderr
    assert set(names(folder)) - set(before) == {str(folder / "bk_server.conf")}


def test_a_running_bookie_is_refused(folder: Path) -> None:
    with (folder / "ledgers" / "bkctl.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = bkctl("index", "rebuild", "-c", conf(folder), "--yes", "-o", "json")
        assert (answer.code, answer.error()["kind"]) == (3, "refused")
