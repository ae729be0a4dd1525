"""Marks, cookies and ids in the directories of a bookie."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkinspect.data_dir import SMALL_FILE_SIZE_MAX, check_marks, check_small_files, cookies, marks, small_file
from bkinspect.finding import Finding
from bkinspect.source import journals

from bkctl.codec.data_dir import LogMark, encode_cookie, encode_mark
from bkctl.errors import BadBytes, NotFound
from bkctl.model.bookie import Cookie

COOKIE = Cookie("h:1", ("/j",), ("/l",), None, "id")


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Two ledger directories."""
    made = [tmp_path / "l0", tmp_path / "l1"]
    for path in made:
        path.mkdir()
    return made


def test_the_greatest_copy_of_each_mark_is_taken(dirs: list[Path]) -> None:
    (dirs[0] / "lastMark").write_bytes(encode_mark(LogMark(7, 100)))
    (dirs[1] / "lastMark").write_bytes(encode_mark(LogMark(7, 200)))
    (dirs[0] / "lastMark.1").write_bytes(encode_mark(LogMark(9, 5)))
    (dirs[0] / "lastMark.bak").write_bytes(b"not a mark")
    first, second = marks(dirs, lambda _: None)
    assert (first.journal_index, first.journal_id, first.offset, first.journal) == (0, 7, 200, "7.txn")
    assert first.file == str(dirs[1] / "lastMark")
    assert first.files == tuple(str(folder / "lastMark") for folder in dirs)
    assert (second.journal_index, second.journal_id) == (1, 9)


def test_a_mark_that_is_too_short_is_reported_and_no_mark_is_an_error(dirs: list[Path]) -> None:
    with pytest.raises(NotFound, match="there is no lastMark"):
        marks(dirs, lambda _: None)
    (dirs[0] / "lastMark").write_bytes(b"short")
    (dirs[1] / "lastMark").write_bytes(encode_mark(LogMark(7, 100)))
    reported: list[Finding] = []
    (mark,) = marks(dirs, reported.append)
    assert (mark.journal_id, mark.offset) == (7, 100)
    assert [one.code for one in reported] == ["BKC003"]


def test_cookies_are_those_of_directories_that_have_one(dirs: list[Path]) -> None:
    (dirs[1] / "VERSION").write_bytes(encode_cookie(COOKIE))
    assert [(path.parent, cookie) for path, cookie in cookies(dirs)] == [(dirs[1], COOKIE)]
    (dirs[0] / "VERSION").write_bytes(b"?")
    with pytest.raises(BadBytes):
        list(cookies(dirs))


def test_damaged_small_files_and_cookies_that_differ_are_found(dirs: list[Path]) -> None:
    assert list(check_small_files(dirs)) == []
    for folder, name in zip(dirs, ("id", "other"), strict=True):
        cookie = Cookie("h:1", ("/j",), ("/l",), None, name)
        (folder / "VERSION").write_bytes(encode_cookie(cookie))
    (dirs[0] / "lastId").write_bytes(b"xyz\n")
    (dirs[1] / "BOOKIE_STATUS").write_bytes(b"?\n")
    (dirs[1] / "DIRTY").touch()
    found = {one.code: one for one in check_small_files(dirs)}
    assert set(found) == {"BKC002", "BKC004", "BKC005", "BKC006"}
    assert found["BKC002"].evidence == {"files": [str(folder / "VERSION") for folder in dirs]}


def test_a_mark_without_its_journal_is_found(folder: Path) -> None:
    ledgers = [path.parent for path in sorted(folder.rglob("lastMark"))][:1]
    listed = journals([str(path.parent) for path in folder.rglob("*.txn")][:1])
    (mark,) = marks(ledgers, lambda _: None)
    assert list(check_marks([mark], listed)) == []
    (gone,) = check_marks([mark], [])
    assert (gone.code, gone.evidence) == ("BKC206", {"offset": mark.offset})
    (ledgers[0] / "lastMark").write_bytes(encode_mark(LogMark(0, 0)))
    assert list(check_marks(marks(ledgers, print), [])) == [], "no mark yet"


def test_of_a_file_that_is_not_small_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(SMALL_FILE_SIZE_MAX + 5))
    assert len(small_file(path)) == SMALL_FILE_SIZE_MAX
