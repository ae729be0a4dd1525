"""The findings of a check of one of the golden bookies."""

from __future__ import annotations

from pathlib import Path

from bkinspect.digests import DigestBook
from bkinspect.finding import Finding
from bkinspect.fsck import check, files_of

from bkctl.codec.checksum import digest_for
from tests.golden import Golden

CAPTURED = 900_000
"""Ledgers from here on come from hand-made frames, some of them wrong on purpose."""


def book(golden: Golden, name: str) -> DigestBook:
    """Knows every ledger of the manifest."""
    rows = golden.ledgers(name).values()
    return DigestBook(known={row.id: digest_for(row.digest_type, row.password) for row in rows})


def findings(golden: Golden, name: str, folder: Path) -> list[Finding]:
    """Those that are more than worth knowing, and not about frames that were wrong when they were sent."""
    return [f for f in all_findings(golden, name, folder) if f.ledger_id is None or f.ledger_id < CAPTURED]


def all_findings(golden: Golden, name: str, folder: Path) -> list[Finding]:
    """Those that are more than worth knowing."""
    return [f for f in check(files_of([folder]), book(golden, name)) if f.severity != "info"]


def codes(golden: Golden, name: str, folder: Path) -> set[str]:
    return {finding.code for finding in findings(golden, name, folder)}
