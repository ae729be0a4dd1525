"""Copies on bookies that are not in the write set, a ledger and bookie at a time.

Plan: `_copies.faults`, then one small aggregate by ledger and bookie. What an ensemble change leaves behind, and what a
writer sent and never confirmed, is no finding: `_copies` leaves out bookies of the ledger's other ensembles and
entries behind its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "surplus-copies"
CODES: Final = ("BKC406",)
NEEDS: Final = COPIES
TEXT: Final = "no bookie keeps copies that metadata puts elsewhere; the plan of missing-copies"


def findings(tables: Tables) -> DataFrame:
    """BKC406, one for a ledger on a bookie; file and offset are those of the first entry."""
    rows = faults(tables).where("kind = 'surplus'")
    first = F.min_by(F.struct("file", "offset"), "entry_id").alias("first")
    rows = rows.groupBy("ledger_id", "bookie_id").agg(
        F.count("*").alias("entries"),
        F.sum("size").alias("bytes"),
        F.min("entry_id").alias("entry_id"),
        F.max("entry_id").alias("last_id"),
        first,
    )
    return findings_of(
        rows,
        "BKC406",
        subject="concat('ledger ', ledger_id, ' on ', bookie_id)",
        message="concat(entries, case when entries = 1 then ' copy' else ' copies' end, ' outside the write set')",
        evidence={"entries": "entries", "last_entry_id": "last_id", "bytes": "bytes"},
        ledger_id="ledger_id",
        entry_id="entry_id",
        bookie_id="bookie_id",
        file="first.file",
        offset="first.offset",
    )
