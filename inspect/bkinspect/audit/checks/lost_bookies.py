"""Bookies that ensembles name and that are not there: every entry on them has a copy less than its write quorum.

Plan: ensembles spelled out to one row a member, counted by bookie (a shuffle of counts alone, after a partial
aggregate), joined with the bookies (a broadcast). Needs metadata only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._rows import findings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "lost-bookies"
CODES: Final = ("BKC403",)
NEEDS: Final = ("fragments", "bookies")
TEXT: Final = "every bookie that ensembles name is registered; shuffles counts by bookie"


def findings(tables: Tables) -> DataFrame:
    """BKC403, one for a bookie; the repair finds its ledgers again."""
    there = tables.bookies.where("state in ('rw', 'ro') or scanned or offline_cookie is not null")
    holding = tables.fragments.where("last_entry_id is null or last_entry_id >= first_entry_id")
    members = holding.select("ledger_id", "state", F.explode(F.array_distinct("bookies")).alias("bookie_id"))
    counts = members.groupBy("bookie_id").agg(
        F.count("*").alias("fragments"),
        F.approx_count_distinct("ledger_id").alias("ledgers"),
        F.expr("count_if(state != 'CLOSED')").alias("not_closed"),
    )
    rows = counts.join(there.select("bookie_id"), "bookie_id", "left_anti")
    return findings_of(
        rows,
        "BKC403",
        subject="bookie_id",
        message="concat('not registered, but ', fragments, case when fragments = 1 then ' ensemble names' "
        "else ' ensembles name' end, ' it')",
        evidence={"fragments": "fragments", "ledgers_about": "ledgers", "not_closed": "not_closed"},
        bookie_id="bookie_id",
    )
