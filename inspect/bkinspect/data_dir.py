"""The small files of a bookie's directories: marks, cookies, and whether they agree with each other."""

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
"""What is read of a file that should be a line or two."""


@dataclass(frozen=True, slots=True)
class MarkFile:
    """The mark of one journal: the greatest of its copies in the ledger directories, as a bookie takes it.

    journal_index is the journal's place in journalDirectories; journal_id 0 means no mark. files are all copies.
    """

    journal_index: int
    journal_id: int
    journal: str
    offset: int
    file: str
    files: tuple[str, ...]


def small_file(path: Path) -> bytes:
    """The file, up to SMALL_FILE_SIZE_MAX bytes."""
    with opened(path) as file:
        return file.read(SMALL_FILE_SIZE_MAX, 0)


def marks(folders: Sequence[Path], report: Report) -> list[MarkFile]:
    """The marks in ledger directories, by journal; copies that are cut short are reported and left out.

    Raises:
        NotFound: there is no mark at all.
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
    """Findings about journals, then about the marks that the folders hold, if they hold any."""
    for journal in journals:
        yield from verify(journal, digests)
    if any(parse_mark_name(path.name) is not None for folder in folders for path in folder.iterdir()):
        found_marks: list[Finding] = []
        known = marks(folders, found_marks.append)
        yield from found_marks
        yield from check_marks(known, journals)


def cookies(folders: Iterable[Path]) -> Iterator[tuple[Path, Cookie]]:
    """The cookies of directories; those without one are left out.

    Raises:
        Corrupt: a cookie that cannot be read.
    """
    for folder in folders:
        path = folder / COOKIE_NAME
        if path.exists():
            yield path, decode_cookie(small_file(path), source=str(path))


def check_small_files(folders: Sequence[Path]) -> Iterator[Finding]:
    """Findings about cookies, lastId, DIRTY and BOOKIE_STATUS of one bookie's directories."""
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
    """Findings about marks against the journals that are there.

    Journals of several directories may be given together: ids are times, and as good as unique.
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
            continue  # a damaged header: the journal's own check tells it
        if not starts:
            message = f"no record starts at {mark.offset:#x} of {mark.journal}"
            yield found("BKC207", mark.file, message, file=str(journal.path), offset=mark.offset)
