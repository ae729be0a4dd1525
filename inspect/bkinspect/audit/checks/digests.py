"""Copies whose digest does not fit: in logs, in journals, from running bookies.

Plan: a filter over `_summary.suspects`, those of logs joined with the index by place (a broadcast of the bad ones).
Only what the bookie serves counts: a record that the index has left waits for compaction. Records at whose end the
frames of a log go astray are left out (a broadcast of the damage): there the size was hit, and log-records reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._copies import touched
from bkinspect.audit.checks._rows import findings_of, union
from bkinspect.audit.checks._summary import indexed_bookies, suspects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "digests"
CODES: Final = ("BKC107", "BKC204", "BKC405")
NEEDS: Final = ("entries", "damage", "index", "bookie_ledgers")
TEXT: Final = "the digest of every copy fits; the plan of missing-copies"
_SOURCES: Final = {"BKC107": "entry_log", "BKC204": "journal", "BKC405": "live"}


def findings(tables: Tables) -> DataFrame:
    """BKC107 in a log, BKC204 in a journal, BKC405 from a running bookie."""
    bad = touched(suspects(tables).where("not digest_ok"), tables).where("not damaged")
    indexed = F.broadcast(indexed_bookies(tables))
    free = bad.where("source != 'entry_log'").unionByName(
        bad.where("source = 'entry_log'").join(indexed, "bookie_id", "left_anti").select(bad.columns)
    )
    pointed = bad.where("source = 'entry_log'").join(indexed, "bookie_id", "left_semi")
    places = tables.index.select("bookie_id", "file", "offset")
    served = places.join(F.broadcast(pointed), ["bookie_id", "file", "offset"]).select(bad.columns)
    bad = free.unionByName(served)
    return union(
        *(
            findings_of(
                bad.where(f"source = '{source}'"),
                code,
                subject="concat('entry ', entry_id, ' of ledger ', ledger_id)",
                message="'the digest does not fit'",
                evidence={"size": "size"},
                severity="case when what = 'stale' then 'warning' else 'error' end",
                ledger_id="ledger_id",
                entry_id="entry_id",
                bookie_id="bookie_id",
                file="file",
                offset="offset",
            )
            for code, source in _SOURCES.items()
        )
    )
