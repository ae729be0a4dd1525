"""Layout of a bookie: which journal, ledger and index directories belong together, by configuration or by cookie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bkctl.codec.data_dir import COOKIE_NAME, CURRENT, decode_cookie
from bkctl.errors import NotFound, UsageError
from bkinspect.data_dir import small_file


@dataclass(frozen=True, slots=True)
class Place:
    """One ledger directory and its index directory, for the ledgers whose id modulo `count` is `number`.

    logs, index: the `current` directories.
    """

    number: int
    count: int
    logs: Path
    index: Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one bookie. journals and all are complete, places may be a selection.

    journals: the `current` directories. all: every directory, as configured, without `current`.
    """

    places: tuple[Place, ...]
    journals: tuple[Path, ...]
    all: tuple[Path, ...]

    def only(self, path: Path) -> Layout:
        """Returns the layout with only the place of one index directory, given with or without `current`.

        Raises:
            UsageError: path is not an index directory of this layout.
        """
        current = _current(path).resolve()
        places = tuple(place for place in self.places if place.index.resolve() == current)
        if not places:
            known = ", ".join(str(place.index) for place in self.places)
            raise UsageError(f"{path} is not an index directory of this bookie: {known}", hint="-c CONF means all")
        return replace(self, places=places)


def layout_of(journals: Sequence[Path], ledgers: Sequence[Path], indexes: Sequence[Path] = ()) -> Layout:
    """Returns the layout of a configuration; without index directories the indexes are in the ledger directories.

    Raises:
        UsageError: a list is empty, or index and ledger directories differ in number. NotFound: one is missing.
    """
    indexes = indexes or ledgers
    if not journals or not ledgers:
        raise UsageError("no directories are configured", hint="-c CONF with journalDirectories and ledgerDirectories")
    if len(indexes) != len(ledgers):
        raise UsageError("indexDirectories and ledgerDirectories differ in number: they go in pairs")
    for folder in (*journals, *ledgers, *indexes):
        if not (folder / CURRENT).is_dir():
            raise NotFound(f"there is no directory {folder / CURRENT}", hint="is the disk mounted?")
    count = len(ledgers)
    pairs = enumerate(zip(ledgers, indexes, strict=True))
    places = tuple(Place(number, count, logs / CURRENT, index / CURRENT) for number, (logs, index) in pairs)
    folders = tuple(dict.fromkeys((*journals, *ledgers, *indexes)))
    return Layout(places, tuple(folder / CURRENT for folder in journals), folders)


def layout_of_index(path: Path) -> Layout:
    """Returns the layout of the bookie that an index directory belongs to, with only the place of this directory.

    Raises:
        NotFound: the directory or its cookie is missing. UsageError: the cookie names other directories.
        Corrupt: the cookie cannot be read.
    """
    current = _current(path)
    cookie_path = current / COOKIE_NAME
    if not cookie_path.is_file():
        raise NotFound(f"there is no cookie {cookie_path}", hint="name the directories by the configuration: -c CONF")
    cookie = decode_cookie(small_file(cookie_path), source=str(cookie_path))
    journals, ledgers, indexes = (
        [Path(d) for d in folders] for folders in (cookie.journal_dirs, cookie.ledger_dirs, cookie.index_dirs or ())
    )
    if all((d / CURRENT).resolve() != current.resolve() for d in indexes or ledgers):
        raise UsageError(
            f"{current} is not an index directory of its cookie: {', '.join(map(str, indexes or ledgers))}",
            hint="name the directories by the configuration: -c CONF",
        )
    return layout_of(journals, ledgers, indexes).only(path)


def _current(path: Path) -> Path:
    return path / CURRENT if (path / CURRENT).is_dir() else path
