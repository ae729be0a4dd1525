"""Ledgers that are named and are not there: by a topic and not in metadata, in metadata and on no bookie.

Plan: the ledgers that topics name anti-joined with metadata (shuffle by ledger); for bookies, `_copies.faults`, where a
ledger without any copy is found by its counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "missing-ledgers"
CODES: Final = ("BKC413", "BKC414")
NEEDS: Final = ("ledgers", "topics", *COPIES)
TEXT: Final = "every ledger that is named is there; shuffles ledgers by id"


def findings(tables: Tables) -> DataFrame:
    """BKC413 once for each that names it, BKC414 once a ledger."""
    named = tables.topics.where("not coalesce(offloaded, false) and kind <> 'allocation'")
    if not tables.has("ledgers") or tables.by_time:
        named = named.where("false")
    unknown = named.select("ledger_id").join(tables.ledgers.select("ledger_id"), "ledger_id", "left_anti")
    named = named.join(tables.keep("unknown_ledgers", unknown.distinct), "ledger_id", "left_semi")
    gone = findings_of(
        named,
        "BKC413",
        subject="concat(topic, case when cursor is null then '' else concat(', ', cursor) end)",
        message="concat('names ledger ', ledger_id, ' (', kind, '), which is not in the metadata store')",
        evidence={"kind": "kind", "topic": "topic", "cursor": "cursor", "path": "path", "entries": "entries"},
        ledger_id="ledger_id",
    )
    rows = (
        faults(tables)
        .where("kind = 'nothing'")
        .groupBy("ledger_id")
        .agg(
            F.array_sort(F.array_distinct(F.flatten(F.collect_set("others")))).alias("bookies"),
            F.sum(F.expr("last_id - entry_id + 1")).alias("entries"),
        )
    )
    nowhere = findings_of(
        rows,
        "BKC414",
        subject="concat('ledger ', ledger_id)",
        message="concat('none of its ', entries, ' entries is on any of ', concat_ws(', ', bookies))",
        evidence={"bookies": "bookies", "entries": "entries"},
        ledger_id="ledger_id",
    )
    return union(gone, nowhere)
