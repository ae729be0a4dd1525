"""Which directories of a bookie belong together."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkinspect.layout import Place, layout_of, layout_of_index

from bkctl.codec.data_dir import encode_cookie
from bkctl.errors import Corrupt, NotFound, UsageError
from bkctl.model.bookie import Cookie


def folders(base: Path, *names: str) -> list[Path]:
    made = [base / name for name in names]
    for folder in made:
        (folder / "current").mkdir(parents=True)
    return made


def test_index_directories_go_in_pairs_with_ledger_directories(tmp_path: Path) -> None:
    journal, l0, l1, i0, i1 = folders(tmp_path, "j", "l0", "l1", "i0", "i1")
    layout = layout_of([journal], [l0, l1], [i0, i1])
    assert layout.places == (
        Place(0, 2, l0 / "current", i0 / "current"),
        Place(1, 2, l1 / "current", i1 / "current"),
    )
    assert layout.journals == (journal / "current",)
    assert layout.all == (journal, l0, l1, i0, i1)


def test_without_index_directories_they_are_the_ledger_directories(tmp_path: Path) -> None:
    (folder,) = folders(tmp_path, "all")
    layout = layout_of([folder], [folder])
    assert layout.places == (Place(0, 1, folder / "current", folder / "current"),)
    assert layout.all == (folder,)


def test_directories_that_are_not_given_or_not_there_are_errors(tmp_path: Path) -> None:
    one, two = folders(tmp_path, "one", "two")
    with pytest.raises(UsageError, match="no directories are configured"):
        layout_of([], [one])
    with pytest.raises(UsageError, match="differ in number"):
        layout_of([one], [one, two], [one])
    with pytest.raises(NotFound, match="there is no directory"):
        layout_of([one], [tmp_path / "missing"])


def test_one_place_is_chosen_by_its_index_directory(tmp_path: Path) -> None:
    journal, l0, l1 = folders(tmp_path, "j", "l0", "l1")
    layout = layout_of([journal], [l0, l1])
    for path in (l1, l1 / "current"):
        assert [place.number for place in layout.only(path).places] == [1]
    with pytest.raises(UsageError, match="is not an index directory of this bookie"):
        layout.only(journal)


def write_cookie(folder: Path, journals: list[Path], ledgers: list[Path], indexes: list[Path] | None) -> None:
    def texts(paths: list[Path]) -> tuple[str, ...]:
        return tuple(map(str, paths))

    cookie = Cookie("h:1", texts(journals), texts(ledgers), None if indexes is None else texts(indexes), "id")
    (folder / "current/VERSION").write_bytes(encode_cookie(cookie))


def test_the_cookie_of_an_index_directory_names_the_others(tmp_path: Path) -> None:
    journal, l0, l1, i0, i1 = folders(tmp_path, "j", "l0", "l1", "i0", "i1")
    write_cookie(i1, [journal], [l0, l1], [i0, i1])
    layout = layout_of_index(i1)
    assert layout.places == (Place(1, 2, l1 / "current", i1 / "current"),)
    assert layout.all == (journal, l0, l1, i0, i1)


def test_a_cookie_that_is_missing_damaged_or_of_others_is_an_error(tmp_path: Path) -> None:
    journal, ledgers, index = folders(tmp_path, "j", "l", "i")
    with pytest.raises(NotFound, match="there is no cookie"):
        layout_of_index(index)
    write_cookie(index, [journal], [ledgers], None)
    with pytest.raises(UsageError, match="is not an index directory of its cookie"):
        layout_of_index(index)
    (index / "current/VERSION").write_bytes(b"no cookie")
    with pytest.raises(Corrupt):
        layout_of_index(index)
