"""Closed ledgers whose end is lower than the last entry that was confirmed.

Plan: `_copies.faults`, one small aggregate by ledger, joined with metadata by ledger. Entries that a writer sent and
that were never confirmed are no finding: see `late` at `_copies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "early-close"
CODES: Final = ("BKC433",)
NEEDS: Final = ("ledgers", *COPIES)
TEXT: Final = "no entry was confirmed after the end of a closed ledger; the plan of missing-copies"


def findings(tables: Tables) -> DataFrame:
    """BKC433, one a ledger."""
    late = (
        faults(tables)
        .where("kind = 'late'")
        .groupBy("ledger_id")
        .agg(
            F.max("confirmed").alias("confirmed"),
            F.min("entry_id").alias("proven_by"),
            F.count("*").alias("proofs"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_set("others")))).alias("bookies"),
        )
    )
    rows = late.join(tables.ledgers.select("ledger_id", "last_entry_id"), "ledger_id")
    return findings_of(
        rows,
        "BKC433",
        subject="concat('ledger ', ledger_id)",
        message="concat('closed at entry ', last_entry_id, ', but entry ', confirmed, ' was confirmed')",
        evidence={
            "last_entry_id": "last_entry_id",
            "confirmed": "confirmed",
            "proven_by_entry": "proven_by",
            "entries_that_prove_it": "proofs",
            "bookies": "bookies",
        },
        ledger_id="ledger_id",
    )
