"""Entries that bookies lack against the write set, as ranges.

Plan: `_copies.faults` (see there: one shuffle by entry, one by ledger), then neighbours joined into ranges by a window
over ledger, fragment and bookie (a shuffle of what is missing alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "missing-copies"
CODES: Final = ("BKC401", "BKC402")
NEEDS: Final = ("ledgers", *COPIES)
TEXT: Final = "every entry is on every bookie of its write set; shuffles records by entry, then by ledger"

_ISLAND: Final = (
    "partition by kind, ledger_id, first_entry_id, bookie_id order by rank "
    "rows between unbounded preceding and 1 preceding"
)


def findings(tables: Tables) -> DataFrame:
    """BKC401 a range of entries on one bookie, BKC402 a range that no bookie has."""
    rows = faults(tables).where("kind in ('missing', 'lost')")
    ranges = (
        rows.withColumn("island", F.expr(f"rank - coalesce(sum(span) over ({_ISLAND}), 0)"))
        .groupBy("kind", "ledger_id", "first_entry_id", "bookie_id", "island")
        .agg(*_summed())
    )
    span = "case when last_id = entry_id then '' else concat(' to ', last_id) end"
    evidence = {"last_entry_id": "last_id", "entries": "entries", "fragment": "first_entry_id", "state": "state"}
    missing = findings_of(
        ranges.where("kind = 'missing'"),
        "BKC401",
        subject=f"concat('entry ', entry_id, {span}, ' of ledger ', ledger_id)",
        message="concat(bookie_id, ' has no copy; ', copies, ' sound elsewhere')",
        evidence={**evidence, "copies": "copies", "damaged_log": "file"},
        ledger_id="ledger_id",
        entry_id="entry_id",
        bookie_id="bookie_id",
    )
    lost = findings_of(
        ranges.where("kind = 'lost'"),
        "BKC402",
        subject=f"concat('entry ', entry_id, {span}, ' of ledger ', ledger_id)",
        message="'no bookie of its write set has a copy'",
        evidence={**evidence, "bookies": "others"},
        ledger_id="ledger_id",
        entry_id="entry_id",
    )
    return union(missing, lost)


def _summed() -> tuple[Column, ...]:
    return (
        F.min("entry_id").alias("entry_id"),
        F.max("last_id").alias("last_id"),
        F.sum("entries").alias("entries"),
        F.min("copies").alias("copies"),
        F.first("state").alias("state"),
        F.first("file", ignorenulls=True).alias("file"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_set("others")))).alias("others"),
    )
