"""Indexes against logs, both ways: rows that point to nothing, records that nothing points to.

Plan: `_copies.faults`; logs that are gone are counted by one small aggregate by bookie and file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "indexes"
CODES: Final = ("BKC351", "BKC352", "BKC353")
NEEDS: Final = COPIES
TEXT: Final = "index and logs of a bookie know the same entries; the plan of missing-copies"


def findings(tables: Tables) -> DataFrame:
    """BKC351 and BKC353 an entry each, BKC352 a file each."""
    rows = faults(tables)
    place = {"ledger_id": "ledger_id", "entry_id": "entry_id", "bookie_id": "bookie_id", "file": "file"}
    subject = "concat('entry ', entry_id, ' of ledger ', ledger_id, ' on ', bookie_id)"
    dangling = findings_of(
        rows.where("kind = 'dangling'"),
        "BKC351",
        subject=subject,
        message="'the index points where the entry is not'",
        evidence={"index": "index"},
        **place,
        offset="offset",
    )
    gone = (
        rows.where("kind = 'gone'")
        .groupBy("bookie_id", "file")
        .agg(
            F.count("*").alias("entries"),
            F.array_sort(F.slice(F.collect_set("ledger_id"), 1, _LEDGERS_SHOWN_MAX)).alias("ledgers"),
            F.first("index").alias("index"),
        )
    )
    gone = findings_of(
        gone,
        "BKC352",
        subject="file",
        message="concat('the index has ', entries, ' entries in this log, which is gone')",
        evidence={"entries": "entries", "ledgers": "ledgers", "index": "index"},
        bookie_id="bookie_id",
        file="file",
    )
    unindexed = findings_of(
        rows.where("kind = 'unindexed'"),
        "BKC353",
        subject=subject,
        message="'the index does not know it'",
        evidence={"size": "size"},
        **place,
        offset="offset",
    )
    return union(dangling, gone, unindexed)


_LEDGERS_SHOWN_MAX: Final = 1_000
