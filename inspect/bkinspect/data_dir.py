"""Reads the small files of a bookie's directories, such as marks and cookies, and checks that they agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bkctl.codec.data_dir import (
    COOKIE_NAME,
    DIRTY_NAME,
    LAST_ID_NAME,
    NO_MARK,
    STATUS_NAME,
    LogMark,
    decode_cookie,
    decode_last_id,
    decode_mark,
    decode_status,
    parse_mark_name,
)
from bkctl.codec.journal import journal_name
from bkctl.errors import BadBytes, NotFound
from bkctl.model.bookie import Cookie
from bkinspect.digests import DigestBook
from bkinspect.finding import Finding, found, found_bytes
from bkinspect.journal import Report, record_starts_at, verify
from bkinspect.source import Numbered, opened

SMALL_FILE_SIZE_MAX: Final = 1 << 20
"""Maximum bytes read of a file that should have a line or two."""


@dataclass(frozen=True, slots=True)
class MarkFile:
    """The mark of one journal: the greatest of its copies in the ledger directories, as a bookie selects it.

    journal_index is the journal's place in journalDirectories; journal_id 0 means no mark. files: all copies.
    """

    journal_index: int
    journal_id: int
    journal: str
    offset: int
    file: str
    files: tuple[str, ...]


def small_file(path: Path) -> bytes:
    """Reads a file, up to SMALL_FILE_SIZE_MAX bytes."""
    with opened(path) as file:
        return file.read(SMALL_FILE_SIZE_MAX, 0)


def marks(folders: Sequence[Path], report: Report) -> list[MarkFile]:
    """Returns the marks in ledger directories, by journal; a corrupt copy is reported and treated as journal_id 0.

    Raises:
        NotFound: no directory has a lastMark file.
    """
    copies: dict[int, list[tuple[LogMark, Path]]] = {}
    for folder in folders:
        for path in sorted(folder.iterdir()):
            index = parse_mark_name(path.name)
            if index is None:
                continue
            mark = NO_MARK
            try:
                mark = decode_mark(small_file(path), source=str(path))
            except BadBytes as error:
                report(found_bytes("BKC003", error))
            copies.setdefault(index, []).append((mark, path))
    if not copies:
        where = ", ".join(map(str, folders))
        raise NotFound(f"there is no lastMark in {where}", hint="lastMark is in the ledger directories")
    result = []
    for index, found_copies in sorted(copies.items()):
        mark, path = max(found_copies, key=lambda copy: copy[0])
        files = tuple(str(copy[1]) for copy in found_copies)
        name = journal_name(mark.journal_id)
        result.append(MarkFile(index, mark.journal_id, name, mark.offset, str(path), files))
    return result


def verify_journals(journals: Sequence[Numbered], folders: Sequence[Path], digests: DigestBook) -> Iterator[Finding]:
    """Yields findings about journals, then about the marks in the folders if there are any."""
    for journal in journals:
        yield from verify(journal, digests)
    if any(parse_mark_name(path.name) is not None for folder in folders for path in folder.iterdir()):
        found_marks: list[Finding] = []
        known = marks(folders, found_marks.append)
        yield from found_marks
        yield from check_marks(known, journals)


def cookies(folders: Iterable[Path]) -> Iterator[tuple[Path, Cookie]]:
    """Yields path and cookie of each directory; directories without a cookie are skipped.

    Raises:
        Corrupt: a cookie cannot be read.
    """
    for folder in folders:
        path = folder / COOKIE_NAME
        if path.exists():
            yield path, decode_cookie(small_file(path), source=str(path))


def check_small_files(folders: Sequence[Path]) -> Iterator[Finding]:
    """Yields findings about cookies, lastId, DIRTY and BOOKIE_STATUS of one bookie's directories."""
    texts: dict[bytes, Path] = {}
    for folder in folders:
        for name, code, decode in _DECODERS:
            path = folder / name
            if not path.exists():
                continue
            data = small_file(path)
            try:
                decode(data, source=str(path))
            except BadBytes as error:
                yield found_bytes(code, error)
                continue
            if name == COOKIE_NAME:
                texts.setdefault(data, path)
        if (folder / DIRTY_NAME).exists():
            yield found("BKC005", str(folder), "DIRTY is there", file=str(folder / DIRTY_NAME))
    if len(texts) > 1:
        first, other, *_ = texts.values()
        evidence = {"files": [str(path) for path in texts.values()]}
        yield found("BKC002", str(other), f"not the cookie of {first}", evidence=evidence, file=str(other))


_DECODERS: Final = (
    (COOKIE_NAME, "BKC001", decode_cookie),
    (LAST_ID_NAME, "BKC004", decode_last_id),
    (STATUS_NAME, "BKC006", decode_status),
)


def check_marks(found_marks: Iterable[MarkFile], journals: Sequence[Numbered]) -> Iterator[Finding]:
    """Yields findings about marks that do not match the existing journals.

    Journals of several directories may be passed together: their ids are times, and practically unique.
    """
    by_id = {journal.id: journal for journal in journals}
    for mark in found_marks:
        if mark.journal_id == 0:
            continue
        journal = by_id.get(mark.journal_id)
        if journal is None:
            message = f"{mark.journal} is gone"
            yield found("BKC206", mark.file, message, evidence={"offset": mark.offset}, file=mark.file)
            continue
        try:
            starts = record_starts_at(journal, mark.offset)
        except BadBytes:
            continue  # a damaged header: the check of the journal reports it
        if not starts:
            message = f"no record starts at {mark.offset:#x} of {mark.journal}"
            yield found("BKC207", mark.file, message, file=str(journal.path), offset=mark.offset)
