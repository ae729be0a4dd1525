"""Which directories `bkctl index check` and `rebuild` use: DIR alone, -c alone, or both."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bkctl.cli.env import Env, Options
from bkctl.cli.index._layout import layout
from bkctl.errors import NotFound, UsageError
from tests.golden import Golden


@pytest.fixture(scope="module")
def bookie(golden: Golden) -> Path:
    """A bookie with two journal, three ledger and three index directories."""
    return golden.bookie("several_dirs")


def env_of(conf: Path | None = None) -> Env:
    out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
    return Env(io.BytesIO(), out, err, {"HOME": "/nonexistent"}, Options(conf=None if conf is None else str(conf)))


def conf_of(bookie: Path, tmp_path: Path) -> Path:
    """The configuration of a bookie with these directories."""
    keys = {"journalDirectories": ("journal", 2), "ledgerDirectories": ("ledgers", 3), "indexDirectories": ("index", 3)}
    lists = {key: ",".join(str(bookie / f"{name}{i}") for i in range(count)) for key, (name, count) in keys.items()}
    path = tmp_path / "bk_server.conf"
    path.write_text("".join(f"{key}={folders}\n" for key, folders in lists.items()))
    return path


def test_neither_a_directory_nor_a_configuration_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no index directory is given") as caught:
        layout(env_of(), None)
    assert "-c CONF" in str(caught.value.hint)


def test_a_configuration_names_all_directories(bookie: Path, tmp_path: Path) -> None:
    found = layout(env_of(conf_of(bookie, tmp_path)), None)
    assert found.journals == tuple(bookie / f"journal{i}/current" for i in range(2))
    assert [place.index for place in found.places] == [bookie / f"index{i}/current" for i in range(3)]
    assert len(found.all) == 8


@pytest.mark.parametrize("name", ["index1", "index1/current"])
def test_a_directory_selects_one_of_a_configuration(bookie: Path, tmp_path: Path, name: str) -> None:
    found = layout(env_of(conf_of(bookie, tmp_path)), bookie / name)
    (place,) = found.places
    assert (place.number, place.count, place.index) == (1, 3, bookie / "index1/current")
    assert len(found.journals) == 2, "the journals are complete"


def test_a_directory_of_another_bookie_is_a_usage_error(bookie: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an index directory of this bookie"):
        layout(env_of(conf_of(bookie, tmp_path)), tmp_path)


def test_a_directory_without_a_cookie_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no cookie"):
        layout(env_of(), tmp_path)


def test_a_directory_of_a_configuration_that_is_missing_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no directory"):
        layout(env_of(conf_of(tmp_path, tmp_path)), None)
