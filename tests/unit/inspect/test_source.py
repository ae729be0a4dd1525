"""Paths and names on the command line find the files they mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkinspect.source import current_dirs, directories, entry_logs, journals, opened

from bkctl.errors import NotFound, UsageError


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    for name in ("ledgers", "journal"):
        (tmp_path / name / "current").mkdir(parents=True)
    current = tmp_path / "ledgers/current"
    names = ("0.log", "1f.log", "10.log", "3.log.compacting", "3.log.1.compacted", "lastId", "x.log")
    for name in names:
        (current / name).write_bytes(b"data")
    (tmp_path / "journal/current/1a.txn").write_bytes(b"")
    return tmp_path


def names(found: list) -> list[str]:  # type: ignore[type-arg]
    return [file.path.name for file in found]


def test_directories_with_and_without_current(bookie: Path) -> None:
    expected = ["0.log", "3.log.compacted", "3.log.compacting", "10.log", "1f.log"]
    expected = ["0.log", "3.log.1.compacted", "3.log.compacting", "10.log", "1f.log"]
    for path in (bookie, bookie / "ledgers", bookie / "ledgers/current"):
        assert names(entry_logs([str(path)])) == expected
    assert names(entry_logs([], [bookie / "ledgers"])) == expected
    assert names(journals([str(bookie)])) == ["1a.txn"]
    assert current_dirs(bookie) == [bookie / "journal/current", bookie / "ledgers/current"]


@pytest.mark.parametrize("name", ["31", "0x1f", "1f.log"])
def test_ids_in_every_spelling(bookie: Path, name: str) -> None:
    assert names(entry_logs([str(bookie), name])) == ["1f.log"]
    assert names(entry_logs([name], [bookie / "ledgers"])) == ["1f.log"]


def test_files_by_path(bookie: Path, tmp_path: Path) -> None:
    odd = tmp_path / "copy.bin"
    odd.write_bytes(b"x")
    assert [(f.id, f.path) for f in entry_logs([str(odd)])] == [(None, odd)]
    assert names(entry_logs([str(bookie / "ledgers/current/10.log")])) == ["10.log"]


def test_what_is_not_there(bookie: Path) -> None:
    for wrong in (["77"], ["no/such.log"], ["zz"], [str(bookie), "77"]):
        with pytest.raises(NotFound):
            entry_logs(wrong)
    with pytest.raises(UsageError):
        entry_logs([])
    with pytest.raises(NotFound):
        directories([bookie / "nothing"])
    with pytest.raises(UsageError):
        directories([bookie / "ledgers/current/0.log"])


def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    with opened(path) as file:
        with path.open("ab") as more:
            more.write(b"678")
        assert (file.size, file.read(100, 2), file.read(4, 5), file.read(4, 9)) == (5, b"345", b"", b"")
