"""Checks the directories of a stopped bookie: each file by itself, then all files against each other.

    cookies, lastMark, lastId, BOOKIE_STATUS    they can be read, and agree (data_dir.py)
    journals                                    records, their end, the mark (journal.py)
    entry logs                                  header, frames, ledgers map, digests where known (entry_log.py)
    indexes                                     rows, and both ways against logs and journals (index_check.py)

Nothing is written, and no lock is kept: a running bookie is detected (`runs_on`), but not prevented.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bkctl.codec.data_dir import (
    COOKIE_NAME,
    CURRENT,
    DIRTY_NAME,
    INDEX_STATE_NAME,
    LAST_ID_NAME,
    STATUS_NAME,
    decode_index_state,
    decode_last_id,
    parse_mark_name,
)
from bkctl.codec.entry_log import HEADER_SIZE as LOG_HEADER_SIZE
from bkctl.codec.entry_log import FrameKind, log_name
from bkctl.codec.ledger_index import INDEX_REBUILT_NAME, LEDGERS, LOCATIONS
from bkctl.errors import BadBytes, NotFound
from bkctl.model.ledger import DigestType
from bkinspect.data_dir import MarkFile, check_small_files, marks, small_file, verify_journals
from bkinspect.digests import DigestBook
from bkinspect.entry_log import scan, verify_all
from bkinspect.finding import Finding, OnError, found
from bkinspect.index_check import IndexCheck
from bkinspect.layout import Layout, Place
from bkinspect.ledger_index import IndexDir, find_indexes
from bkinspect.rocks import database_state
from bkinspect.source import Numbered, current_dirs, entry_logs, journals, listed_logs

OWN_LOCK_NAME: Final = "bkctl.lock"
"""Lock file of a bkctl bookie, beside `current`."""
_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


@dataclass(frozen=True, slots=True)
class BookieFiles:
    """The files to check. folders contain the files themselves (`current`); one folder may be of several kinds."""

    folders: tuple[Path, ...]
    journals: tuple[Numbered, ...]
    logs: tuple[Numbered, ...]
    log_folders: tuple[Path, ...]
    indexes: tuple[IndexDir, ...]


def files_of(paths: Iterable[Path]) -> BookieFiles:
    """Returns the files in a bookie's directories; a path may include `current`, or be the parent of several.

    Raises:
        NotFound: a path is not a directory, or the directories contain no file of a bookie.
    """
    found_folders: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise NotFound(f"there is no directory {path}")
        found_folders.update(dict.fromkeys(current_dirs(path)))
    folders = tuple(found_folders)
    names = [str(folder) for folder in folders]
    indexes: list[IndexDir] = []
    for folder in folders:
        try:
            indexes += find_indexes(folder)
        except NotFound:
            pass  # a directory of another kind
    files = BookieFiles(
        folders,
        tuple(journals(names)),
        tuple(entry_logs(names)),
        tuple(folder for folder in folders if _keeps_logs(folder)),
        tuple(indexes),
    )
    if not (files.journals or files.log_folders or files.indexes or any((f / COOKIE_NAME).exists() for f in folders)):
        where = ", ".join(names)
        raise NotFound(
            f"nothing of a bookie is in {where}", hint="its journal, ledger and index directories, or what holds them"
        )
    return files


def _keeps_logs(folder: Path) -> bool:
    """True for a ledger directory."""
    small = (LAST_ID_NAME, STATUS_NAME)
    marked = any(parse_mark_name(path.name) is not None for path in folder.iterdir())
    return marked or any((folder / name).exists() for name in small) or bool(listed_logs(folder))


def runs_on(files: BookieFiles) -> Path | None:
    """Returns a file that a running bookie has locked: bkctl.lock, or RocksDB's LOCK (Java); None if not found."""
    for folder in files.folders:
        own = (folder.parent if folder.name == CURRENT else folder) / OWN_LOCK_NAME
        if own.exists() and _is_locked(own):
            return own
        for name in (LOCATIONS, LEDGERS):
            lock = folder / name / "LOCK"
            if lock.exists() and _is_locked(lock):
                return lock
    return None


def _is_locked(path: Path) -> bool:
    """True if a file is locked, by descriptor (flock) or by process (fcntl); may take a shared flock for a moment."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        if _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK:
            return True
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def check(files: BookieFiles, digests: DigestBook) -> Iterator[Finding]:
    """Yields all findings: of each file by itself, then of indexes against logs and journals."""
    yield from check_small_files(files.folders)
    yield from check_cookies(files.folders)
    yield from _check_last_ids(files.log_folders)
    yield from verify_journals(files.journals, files.folders, digests)
    clean = not any((folder / DIRTY_NAME).exists() for folder in files.folders)
    with closing(IndexCheck(files.indexes, files.log_folders, clean=clean)) as indexes:
        heard = indexes.heard if files.indexes else lambda _: None
        yield from verify_all(files.logs, digests, heard)
        yield from indexes.findings(files.journals, _marks(files))
    if files.logs and not files.indexes and len(files.folders) > 1:
        logs = [log for log in files.logs if log.path.stat().st_size]
        if logs:
            evidence = {"expected": "locations and ledgers, or .idx files", "found": "none"}
            subject = ", ".join(str(folder) for folder in files.log_folders)
            yield found("BKC302", subject, "there are entry logs, but no index", evidence=evidence, file=subject)


@dataclass(slots=True)
class IndexCounts:
    """Numbers of logs and entries that check_index has read so far."""

    logs: int = 0
    entries: int = 0


def check_index(layout: Layout, counts: IndexCounts) -> Iterator[Finding]:
    """Yields index rows that do not point to their entry, and entries of existing ledgers that have no row.

    Entry logs and journals are read whole; damage in a log is a finding too, because its entries are unknown.
    """
    for place in layout.places:
        yield from _index_state_findings(place)
    indexes = [index for place in layout.places for index in _indexes_in(place.index)]
    logs = [log for place in layout.places for log in listed_logs(place.logs) if not log.suffix]
    found_journals = journals([str(folder) for folder in layout.journals])
    ledger_folders = tuple(place.logs for place in layout.places)
    clean = not any((folder / DIRTY_NAME).exists() for folder in ledger_folders)
    book, pending = DigestBook(DigestType.DUMMY), list[Finding]()
    with closing(IndexCheck(indexes, ledger_folders, clean=clean)) as check_:
        for log in logs:
            for row in scan(log, book, on_error=OnError.RESUME, report=pending.append):
                if row.kind == FrameKind.ENTRY:
                    counts.entries += 1
                    check_.heard(row)
            counts.logs += 1
            yield from pending
            pending.clear()
        try:
            found_marks = marks(ledger_folders, lambda _: None)
        except (NotFound, BadBytes):
            found_marks = []
        yield from check_.findings(found_journals, found_marks)


def _indexes_in(folder: Path) -> list[IndexDir]:
    try:
        return [index for index in find_indexes(folder) if index.path == folder]
    except NotFound:
        return []


def _index_state_findings(place: Place) -> Iterator[Finding]:
    """Yields findings about an index that is missing, partly rebuilt, never written to, or older than its note."""
    if (place.index / INDEX_REBUILT_NAME).exists():
        message = "`bkctl index rebuild` was interrupted"
        yield found("BKC308", str(place.index), message, file=str(place.index / INDEX_REBUILT_NAME))
    used = any(log.path.stat().st_size > LOG_HEADER_SIZE for log in listed_logs(place.logs))
    if not _indexes_in(place.index) and used:
        evidence = {"expected": "the databases locations and ledgers, or .idx files", "found": "none"}
        yield found(
            "BKC302", str(place.index), "there are entry logs, but no index", evidence=evidence, file=str(place.index)
        )
    path = place.logs / INDEX_STATE_NAME
    try:
        noted = decode_index_state(small_file(path), source=str(path)) if path.exists() else {}
        states = {name: database_state(place.index / name) for name in (LOCATIONS, LEDGERS)}
    except BadBytes:
        return  # a damaged note is ignored; IndexCheck reports a damaged database
    for name, state in states.items():
        if state is None:
            continue  # IndexCheck reports it
        identity, number = noted.get(name, (state[0], 1 if used and name == LEDGERS else 0))
        if identity == state[0] and state[1] < number:
            evidence = {"expected": f"sequence number {number} or later", "found": str(state[1])}
            message = f"the database is older than the entry logs in {place.logs}"
            file = str(place.index / name)
            yield found("BKC308", file, message, evidence=evidence, file=file)


def _marks(files: BookieFiles) -> list[MarkFile]:
    """Returns the marks, [] if none can be read; their faults have been reported already."""
    try:
        return marks(files.folders, lambda _: None)
    except (NotFound, BadBytes):
        return []


def check_cookies(folders: Sequence[Path]) -> Iterator[Finding]:
    """Yields directories without a cookie if another directory has one."""
    with_cookie = [folder for folder in folders if (folder / COOKIE_NAME).exists()]
    for folder in folders:
        if with_cookie and folder not in with_cookie:
            evidence = {"expected": COOKIE_NAME, "found": "no such file"}
            message = f"no cookie, but {with_cookie[0]} has one"
            yield found("BKC007", str(folder), message, evidence=evidence, file=str(folder / COOKIE_NAME))


def _check_last_ids(folders: Sequence[Path]) -> Iterator[Finding]:
    """Yields each lastId that is lower than the id of an existing log."""
    for folder in folders:
        path = folder / LAST_ID_NAME
        newest = max((log.id for log in listed_logs(folder) if log.id is not None and not log.suffix), default=None)
        if newest is None or not path.exists():
            continue
        try:
            last = decode_last_id(small_file(path), source=str(path))
        except BadBytes:
            continue  # check_small_files reports it
        if last < newest:
            evidence = {"expected": f"{newest:x} or more", "found": f"{last:x}"}
            message = f"it says {last:x}, but there is {log_name(newest)}"
            yield found("BKC008", str(path), message, evidence=evidence, file=str(path), offset=0)
