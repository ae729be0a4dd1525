"""Finds and opens a bookie's files for reading; nothing is ever written beside them.

A path is a file, or a directory with or without its `current`, or a directory whose children have a `current` (the
parent of a bookie's directories). A name is an id in decimal or after 0x, or the file's own name (hexadecimal as on
disk), and is searched in the given directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from bkctl.codec.data_dir import CURRENT
from bkctl.codec.entry_log import parse_compacted_name, parse_log_name
from bkctl.codec.journal import parse_journal_name
from bkctl.errors import NotFound, UsageError
from bkctl.world import SystemDisk

_COMPACTING_SUFFIX: Final = ".compacting"


@dataclass(frozen=True, slots=True)
class Numbered:
    """A file with a number in its name; id: None if the name has no number. suffix: that of a compaction's leftover."""

    id: int | None
    path: Path
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file open for reading; size is that at the time of opening."""

    read: Callable[[int, int], bytes]
    size: int
    source: str


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Opens a file read-only; bytes that are appended after this are not read."""
    file = SystemDisk().open(path)
    try:
        size = file.size()

        def read(count: int, offset: int) -> bytes:
            return file.pread(min(count, max(size - offset, 0)), offset)

        yield Opened(read, size, str(path))
    finally:
        file.close()


class Placed(Protocol):
    """A row with the place of its bytes in a file."""

    @property
    def offset(self) -> int:
        """Offset of the first byte from the start of the file."""

    @property
    def size(self) -> int:
        """Number of bytes."""


Row = TypeVar("Row", bound=Placed)


def with_bodies(file: Numbered, rows: Iterable[Row]) -> Iterator[tuple[Row, bytes]]:
    """Yields the rows of a file, each with its bytes."""
    with opened(file.path) as source:
        for row in rows:
            yield row, source.read(row.size, row.offset)


def current_dirs(path: Path) -> list[Path]:
    """Returns the directories with the files of a path: its `current`, the `current` of its children, or itself."""
    if (path / CURRENT).is_dir():
        return [path / CURRENT]
    below = sorted(child / CURRENT for child in path.iterdir() if (child / CURRENT).is_dir())
    return below or [path]


def directories(paths: Iterable[Path]) -> list[Path]:
    """Returns current_dirs of several paths, each once, in order.

    Raises:
        NotFound: a path does not exist. UsageError: a path is a file.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no {path}")
        if not path.is_dir():
            raise UsageError(f"{path} is not a directory")
        found.update(dict.fromkeys(current_dirs(path)))
    return list(found)


def entry_logs(names: Sequence[str], defaults: Sequence[Path] = ()) -> list[Numbered]:
    """Returns the entry logs for paths and names.

    defaults: directories to search if names contains no directory; not used if names contains file paths only.
    """
    return _numbered(names, defaults, _as_log, parse_log_name, "entry log", "ledgerDirectories")


def journals(names: Sequence[str], defaults: Sequence[Path] = ()) -> list[Numbered]:
    """Returns the journals for paths and names; defaults as of `entry_logs`."""

    def as_journal(path: Path) -> Numbered | None:
        journal_id = parse_journal_name(path.name)
        return None if journal_id is None else Numbered(journal_id, path)

    return _numbered(names, defaults, as_journal, parse_journal_name, "journal", "journalDirectories")


def listed_logs(folder: Path) -> list[Numbered]:
    """Returns the entry logs in one directory, by id."""
    return _listed(folder, _as_log)


def _as_log(path: Path) -> Numbered | None:
    log_id = parse_log_name(path.name)
    if log_id is not None:
        return Numbered(log_id, path)
    if path.name.endswith(_COMPACTING_SUFFIX):
        log_id = parse_log_name(path.name.removesuffix(_COMPACTING_SUFFIX))
        return None if log_id is None else Numbered(log_id, path, "compacting")
    compacted = parse_compacted_name(path.name)
    return None if compacted is None else Numbered(compacted[0], path, "compacted")


def _numbered(
    names: Sequence[str],
    defaults: Sequence[Path],
    as_numbered: Callable[[Path], Numbered | None],
    parse_name: Callable[[str], int | None],
    what: str,
    key: str,
) -> list[Numbered]:
    files: list[Numbered] = []
    folders: list[Path] = []
    wanted: dict[int, str] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            folders += current_dirs(path)
        elif path.exists():
            files.append(as_numbered(path) or Numbered(None, path))
        else:
            wanted[_parse_number(name, parse_name, what)] = name
    if not folders and (wanted or not files):
        folders = directories(defaults)
        if not folders:
            missing = f"there is no {next(iter(wanted.values()))}" if wanted else f"which {what}s?"
            error = NotFound if wanted else UsageError
            raise error(missing, hint=f"name files or directories, or a configuration with {key} (-c)")
    listed = [found for folder in dict.fromkeys(folders) for found in _listed(folder, as_numbered)]
    for number, name in wanted.items():
        matches = [found for found in listed if found.id == number]
        if not matches:
            raise NotFound(f"there is no {what} {name} in {', '.join(map(str, folders))}")
        files += matches
    return files if wanted else files + listed


def _listed(folder: Path, as_numbered: Callable[[Path], Numbered | None]) -> list[Numbered]:
    found = [file for path in folder.iterdir() if (file := as_numbered(path)) is not None and path.is_file()]
    return sorted(found, key=lambda file: (file.id or 0, file.suffix))


def _parse_number(text: str, parse_name: Callable[[str], int | None], what: str) -> int:
    number = parse_name(text)
    if number is not None:
        return number
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text, 10)
    except ValueError:
        raise NotFound(
            f"there is no {text}", hint=f"a path, or the {what}'s id: decimal, 0x…, or its file name"
        ) from None
