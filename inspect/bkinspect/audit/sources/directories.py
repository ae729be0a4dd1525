"""Finds the directories of offline bookies, by their cookies, and the files in them that are to be read.

A path can be a directory of a bookie, its `current`, or a folder that holds the directories of one or many bookies. A
directory that is found twice, by another name or a link, is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bkctl.codec.data_dir import COOKIE_NAME, CURRENT, decode_cookie, parse_mark_name
from bkctl.codec.entry_log import log_name
from bkctl.codec.ledger_index import LEDGERS, LOCATIONS
from bkctl.errors import BadBytes, Conflict, NotFound
from bkctl.model.bookie import Cookie
from bkinspect.data_dir import marks, small_file
from bkinspect.ledger_index import IndexDir
from bkinspect.rocks import is_database
from bkinspect.source import Numbered, journals, listed_logs

DEPTH_MAX: Final = 4
"""Levels below a given folder that are searched for a `current`."""


@dataclass(frozen=True, slots=True)
class ScanFile:
    """An entry log or journal to read.

    mark: of a journal, the (journal id, offset) from which records would be replayed; None for an entry log.
    """

    file: str
    bookie_id: str | None
    source: str
    log_id: int | None
    suffix: str
    size: int
    modified_ns: int
    newest: bool
    mark: tuple[int, int] | None

    @property
    def fingerprint(self) -> str:
        """A text that changes when the file does; a log that was closed never changes again."""
        mark = "" if self.mark is None else f":{self.mark[0]}:{self.mark[1]}"
        return f"{self.file}:{self.size}:{self.modified_ns}:{int(self.newest)}{mark}"

    @property
    def numbered(self) -> Numbered:
        """The file in the form that the readers of bkinspect use."""
        return Numbered(self.log_id, Path(self.file), self.suffix)


@dataclass(frozen=True, slots=True)
class BookieDirs:
    """The directories that were found of one bookie, each a `current`, in the order of its cookie.

    cookie and bookie_id: None for directories without a readable cookie.
    """

    bookie_id: str | None
    cookie: Cookie | None
    cookie_text: str | None
    journals: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    indexes: tuple[Path, ...]

    @property
    def complete(self) -> bool:
        """True if every directory that the cookie names was found: only then is a copy that was not found reported."""
        cookie = self.cookie
        if cookie is None:
            return False
        indexes = cookie.index_dirs if cookie.index_dirs is not None else cookie.ledger_dirs
        return (
            len(self.journals) == len(cookie.journal_dirs)
            and len(self.ledgers) == len(cookie.ledger_dirs)
            and len(self.indexes) == len(indexes)
        )

    @property
    def note(self) -> str | None:
        """A note if directories of the bookie are missing or its cookie is; None if all were found."""
        if self.complete:
            return None
        folders = ", ".join(str(folder) for folder in dict.fromkeys((*self.journals, *self.ledgers, *self.indexes)))
        if self.cookie is None:
            return f"no cookie says whose directories these are, so they count for no bookie's copies: {folders}"
        return f"not all directories of {self.bookie_id} are here, so missing copies on it are not told: {folders}"

    def log_file(self, index: IndexDir, log_id: int) -> str:
        """Returns the path of the log to which an index refers; if it does not exist, the path that it would have."""
        name = log_name(log_id)
        if index.storage == "rocksdb" and index.path in self.indexes and len(self.indexes) == len(self.ledgers):
            return str(self.ledgers[self.indexes.index(index.path)] / name)
        candidates = [folder / name for folder in self.ledgers]
        there = next((path for path in candidates if path.exists()), None)
        return str(there or (candidates or [index.path / name])[0])


def find_bookies(paths: Iterable[Path]) -> list[BookieDirs]:
    """Returns the bookies whose directories are at or below the paths.

    Raises:
        NotFound: a path does not exist, or has no directory of a bookie.
        Conflict: there are two sets of directories of one bookie.
    """
    groups: dict[str | None, list[Path]] = {}
    cookies: dict[str | None, tuple[Cookie, str]] = {}
    met: set[Path] = set()
    for path in paths:
        folders = sorted(set(_currents(path)))
        if not folders:
            raise NotFound(f"there is no bookie's directory in {path}", hint="a directory with `current` in it")
        for folder in folders:
            if folder.resolve() in met:
                continue
            met.add(folder.resolve())
            read = _cookie(folder)
            bookie_id = None if read is None else str(read[0].bookie_id)
            if read is not None:
                cookies.setdefault(bookie_id, read)
            groups.setdefault(bookie_id, []).append(folder)
    _adopt(groups, cookies)
    return [_grouped(bookie_id, folders, cookies.get(bookie_id)) for bookie_id, folders in groups.items()]


def _adopt(groups: dict[str | None, list[Path]], cookies: dict[str | None, tuple[Cookie, str]]) -> None:
    """Assigns folders without a readable cookie to the bookie that they belong to, if there is exactly one candidate.

    A candidate is a bookie that was not found with a directory of this name, whose cookie names one, and that has
    another directory beside this one.
    """
    for folder in groups.pop(None, []):
        owners = [bookie_id for bookie_id, (cookie, _) in cookies.items() if _lacks(groups[bookie_id], cookie, folder)]
        groups.setdefault(owners[0] if len(owners) == 1 else None, []).append(folder)


def _lacks(folders: list[Path], cookie: Cookie, folder: Path) -> bool:
    named = {*cookie.journal_dirs, *cookie.ledger_dirs, *(cookie.index_dirs or ())}
    beside = {other.parent.parent for other in folders}
    names = {other.parent.name for other in folders}
    own = folder.parent
    return own.name in {Path(path).name for path in named} - names and own.parent in beside


def _currents(path: Path, depth: int = DEPTH_MAX) -> Iterator[Path]:
    if not path.is_dir():
        raise NotFound(f"there is no directory {path}")
    path = path.absolute()
    if path.name == CURRENT or _has_files(path):
        yield path
    elif (path / CURRENT).is_dir():
        yield path / CURRENT
    elif depth:
        for child in sorted(path.iterdir()):
            if child.is_dir():
                yield from _currents(child, depth - 1)


def _has_files(folder: Path) -> bool:
    return (folder / COOKIE_NAME).is_file()


def _cookie(folder: Path) -> tuple[Cookie, str] | None:
    path = folder / COOKIE_NAME
    if not path.is_file():
        return None
    data = small_file(path)
    try:
        return decode_cookie(data, source=str(path)), data.decode("utf-8", "replace")
    except BadBytes:
        return None  # reported by the check of the small files


def _grouped(bookie_id: str | None, folders: list[Path], read: tuple[Cookie, str] | None) -> BookieDirs:
    cookie = None if read is None else read[0]
    index_dirs = () if cookie is None else cookie.index_dirs or cookie.ledger_dirs
    return BookieDirs(
        bookie_id,
        cookie,
        None if read is None else read[1],
        _ordered(bookie_id, [f for f in folders if _is_journal(f)], () if cookie is None else cookie.journal_dirs),
        _ordered(bookie_id, [f for f in folders if _is_ledger(f)], () if cookie is None else cookie.ledger_dirs),
        _ordered(bookie_id, [f for f in folders if _is_index(f)], index_dirs),
    )


def _is_journal(folder: Path) -> bool:
    return next(folder.glob("*.txn"), None) is not None


def _is_ledger(folder: Path) -> bool:
    return any(parse_mark_name(path.name) is not None for path in folder.iterdir()) or bool(listed_logs(folder))


def _is_index(folder: Path) -> bool:
    return (
        is_database(folder / LOCATIONS)
        or is_database(folder / LEDGERS)
        or next(folder.glob("*/*/*.idx"), None) is not None
    )


def _ordered(bookie_id: str | None, folders: list[Path], configured: Sequence[str]) -> tuple[Path, ...]:
    """Returns the folders in the order in which the cookie names them, matched by path, else by their last name.

    Raises:
        Conflict: there are more folders of the bookie than its cookie names.
    """
    if bookie_id is not None and len(folders) > len(configured):
        raise Conflict(
            f"{len(folders)} directories of bookie {bookie_id}, whose cookie names {len(configured)}",
            hint="name one copy of them: " + ", ".join(map(str, folders)),
        )
    rank = {}
    for folder in folders:
        own = folder.parent
        same = [i for i, path in enumerate(configured) if Path(path) == own]
        named = [i for i, path in enumerate(configured) if Path(path).name == own.name]
        rank[folder] = (same or named or [len(configured)])[0]
    return tuple(sorted(folders, key=lambda folder: (rank[folder], str(folder))))


def scan_files(bookie: BookieDirs) -> list[ScanFile]:
    """Returns the logs and journals of a bookie, with the newest of each directory and the marks of journals."""
    files = []
    for folder in bookie.ledgers:
        logs = listed_logs(folder)
        used = [log.id for log in logs if not log.suffix and log.id is not None and log.path.stat().st_size]
        newest = max(used, default=None)
        files += [_file(log, bookie.bookie_id, "entry_log", log.id == newest and not log.suffix, None) for log in logs]
    known = {}
    if any(parse_mark_name(path.name) is not None for folder in bookie.ledgers for path in folder.iterdir()):
        known = {mark.journal_index: mark for mark in marks(bookie.ledgers, lambda _: None)}
    for index, folder in enumerate(bookie.journals):
        listed = journals([str(folder)])
        newest = max((journal.id or 0 for journal in listed), default=0)
        mark = known.get(index)
        place = (0, 0) if mark is None else (mark.journal_id, mark.offset)
        files += [_file(journal, bookie.bookie_id, "journal", journal.id == newest, place) for journal in listed]
    return files


def _file(file: Numbered, bookie_id: str | None, source: str, newest: bool, mark: tuple[int, int] | None) -> ScanFile:
    stat = file.path.stat()
    return ScanFile(
        str(file.path), bookie_id, source, file.id, file.suffix, stat.st_size, stat.st_mtime_ns, newest, mark
    )
