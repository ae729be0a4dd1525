"""Fragments with what all checks of copies need beside them: neighbors, scanned bookies, the end that is valid.

Plan: windows over the fragments of a ledger and small aggregates of them; entries are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

_OTHERS: Final = (
    "transform(filter(members, m -> m.fragments > if(array_contains(bookies, m.bookie_id), 1, 0)), m -> m.bookie_id)"
)
_MARKS: Final = (
    "transform(sequence(0, ensemble_size - 1), r -> aggregate(sequence(0, write_quorum_size - 1), 0L, "
    "(sum, i) -> sum ^ xxhash64(bookies[(r + i) % ensemble_size])))"
)


def parts_with(tables: Tables, confirmed: Callable[[], DataFrame]) -> DataFrame:
    """Fragments with `ends`, computed once for a run and kept.

    Args:
        confirmed: makes ledger_id and the largest last confirmed of its entries.
    """
    return tables.keep("parts", lambda: _with_ends(tables, confirmed()), as_files=True)


def _with_ends(tables: Tables, confirmed: DataFrame) -> DataFrame:
    found = fragments(tables).join(confirmed, "ledger_id", "left")
    return found.withColumn("ends", F.expr("coalesce(last_entry_id, confirmed, first_entry_id - 1)"))


def fragments(tables: Tables) -> DataFrame:
    """Fragments with last_part, closed_at, other_bookies, scanned and marks: all of `_summary.parts` but the ends."""
    scanned = tables.bookies.where("scanned").agg(F.collect_set("bookie_id").alias("all_scanned"))
    members = (
        tables.fragments.select("ledger_id", F.explode(F.array_distinct("bookies")).alias("bookie_id"))
        .groupBy("ledger_id", "bookie_id")
        .agg(F.count("*").alias("fragments"))
        .groupBy("ledger_id")
        .agg(F.collect_list(F.struct("bookie_id", "fragments")).alias("members"))
    )
    return (
        tables.fragments.withColumn(
            "last_part", F.expr("fragment_index = max(fragment_index) over (partition by ledger_id)")
        )
        .withColumn(
            "closed_at",
            F.expr(
                "max(case when last_part and state = 'CLOSED' then last_entry_id end) over (partition by ledger_id)"
            ),
        )
        .join(members, "ledger_id", "left")
        .withColumn("other_bookies", F.expr(_OTHERS))
        .drop("members")
        .crossJoin(F.broadcast(scanned))
        .withColumn("scanned", F.expr("filter(bookies, b -> array_contains(all_scanned, b))"))
        .drop("all_scanned")
        .withColumn("marks", F.expr(_MARKS))
    )
