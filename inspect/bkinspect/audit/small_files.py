"""Checks the small files of bookies (cookies, marks, ids); yields the findings as rows of the table `damage`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from bkctl.errors import BkctlError
from bkinspect import data_dir
from bkinspect.audit.sources.directories import BookieDirs
from bkinspect.finding import Finding
from bkinspect.fsck import check_cookies
from bkinspect.source import journals


def damage_rows(bookies: Iterable[BookieDirs]) -> list[tuple[object, ...]]:
    """Returns rows of `damage`, in the order of its columns, for small files that cannot be read or do not agree."""
    return [_damage_row(bookie.bookie_id, finding) for bookie in bookies for finding in _findings(bookie)]


def _findings(bookie: BookieDirs) -> Iterator[Finding]:
    folders = list(dict.fromkeys((*bookie.journals, *bookie.ledgers, *bookie.indexes)))
    yield from data_dir.check_small_files(folders)
    yield from check_cookies(folders)
    if not bookie.journals or not bookie.ledgers:
        return
    own: list[Finding] = []
    listed = journals([str(folder) for folder in bookie.journals])
    try:
        own += data_dir.check_marks(data_dir.marks(bookie.ledgers, own.append), listed)
    except BkctlError:
        pass  # a bookie without marks is valid; a journal that cannot be read has its own row
    yield from own


def _damage_row(bookie_id: str | None, finding: Finding) -> tuple[object, ...]:
    evidence = json.dumps(dict(finding.evidence), default=str)
    file = finding.file
    source = "journal" if file is not None and file.endswith(".txn") else "directory"
    where = (bookie_id, file, source, finding.code, finding.offset, None, finding.message, evidence)
    return *where, finding.ledger_id, finding.entry_id
