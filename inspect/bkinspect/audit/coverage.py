"""Computes which share of all copies was verified, and when: by this run, by an earlier run, or never.

Copies are counted as rows of entry logs and of running bookies. An entry that is only in a journal is not counted; an
entry that is in two logs after a compaction is counted twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bkinspect.audit.results import Item, Results

_STAMP: Final = re.compile(r"facts-([0-9]+)")
_UNCHECKED_SQL: Final = """
SELECT count(*) AS copies, min(l.ctime_ms) AS oldest_ms
FROM entries e LEFT JOIN (SELECT ledger_id, ctime_ms FROM ledgers) l ON l.ledger_id = e.ledger_id
WHERE e.source <> 'journal' AND e.digest_ok IS NULL
"""
_LIVE_SQL: Final = """
SELECT CAST(? AS BIGINT) AS at_ms, count(*) AS copies, coalesce(sum(size), 0)::BIGINT AS bytes
FROM entries WHERE source = 'live' AND digest_ok IS NOT NULL
"""
_OFFLINE_SQL: Final = """
SELECT coalesce(s.at_ms, CAST(? AS BIGINT)) AS at_ms, sum(l.entries - coalesce(u.copies, 0))::BIGINT AS copies,
  sum(l.entry_bytes - coalesce(u.bytes, 0))::BIGINT AS bytes
FROM log_files l LEFT JOIN (SELECT unnest(?) AS file, unnest(?) AS at_ms) s ON s.file = l.file
  LEFT JOIN (SELECT file, count(*) AS copies, sum(size + 4) AS bytes FROM entries
             WHERE source = 'entry_log' AND digest_ok IS NULL GROUP BY file) u ON u.file = l.file
WHERE l.source = 'entry_log' GROUP BY 1 ORDER BY 1 DESC
"""
_UNREAD_SQL: Final = """
SELECT coalesce(sum((last_entry_id - first_entry_id + 1) * write_quorum_size / ensemble_size), 0)::BIGINT AS copies
FROM (SELECT *, unnest(bookies) AS bookie FROM fragments WHERE last_entry_id >= first_entry_id)
WHERE bookie NOT IN (SELECT bookie_id FROM bookies WHERE scanned AND bookie_id IS NOT NULL)
"""
"""Copies that metadata expects of closed ledgers: each bookie of an ensemble holds its share of the write quorums."""


@dataclass(frozen=True, slots=True)
class Part:
    """Copies whose digests one run checked.

    at_ms: when the run began; bytes: of the entries, with their 4-byte sizes.
    """

    at_ms: int
    copies: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """The copies that were verified, by run, and those that were not.

    parts: verified copies, newest first; unchecked: copies whose digest cannot be checked, because its type or password
    is not known, or it is DUMMY; oldest_unchecked_ms: when the oldest of their ledgers was created, None if unknown;
    unread: copies that metadata expects on bookies that were not read.
    """

    parts: Sequence[Part] = ()
    unchecked: int = 0
    oldest_unchecked_ms: int | None = None
    unread: int = 0

    @property
    def copies(self) -> int:
        """The number of all known copies."""
        return sum(part.copies for part in self.parts) + self.unchecked + self.unread


def coverage(results: Results) -> Coverage:
    """Returns the coverage of a run; empty for a run that read no entries."""
    about = results.about
    if about.get("live_copies") and not about.get("offline"):
        rows = list(results.query(_LIVE_SQL, [about["as_of_ms"]]))
    else:
        rows = _offline(results)
    parts = [Part(_int(row["at_ms"]), _int(row["copies"]), _int(row["bytes"])) for row in rows if row["copies"]]
    unchecked = next(results.query(_UNCHECKED_SQL))
    if not parts and not unchecked["copies"]:
        return Coverage()
    oldest = unchecked["oldest_ms"]
    unread = next(results.query(_UNREAD_SQL))["copies"]
    return Coverage(parts, _int(unchecked["copies"]), None if oldest is None else _int(oldest), _int(unread))


def _offline(results: Results) -> list[Item]:
    """Returns the verified copies by the run that read them, from run.json and the files' rows.

    run.json names each scan of an earlier run with its files; all other files were read by this run.
    """
    files: list[str] = []
    stamps: list[int] = []
    for scan, names in results.about["scans"].items():
        stamp = _STAMP.search(scan)
        if names is not None and stamp is not None:
            files += names
            stamps += [int(stamp[1])] * len(names)
    return list(results.query(_OFFLINE_SQL, [results.about["as_of_ms"], files, stamps]))


def _int(value: object) -> int:
    return int(str(value))
