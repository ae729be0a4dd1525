"""Entries of which no copy was found at all, counted a fragment at a time.

    short      fragments with fewer entries than metadata promises
    gaps       (first, last) of entries without a copy: neighbors in a range of entries, ranges in a fragment, its end
    rows       a gap on one bookie, or a gap that no bookie of the write set has: one row, however long the gap is

The plan costs what was found in short fragments, never what is missing: a fragment of a million million entries of
which three exist is three gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from bkinspect.audit.checks._blocks import blocks
from bkinspect.audit.checks._summary import parts, seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

_PART: Final = ("ledger_id", "fragment_index")
RANK: Final = (
    "({entry} div ensemble_size) * write_quorum_size + size(filter(sequence(0, ensemble_size - 1), "
    "r -> r < {entry} % ensemble_size and pmod(array_position(bookies, {bookie}) - 1 - r, ensemble_size) "
    "< write_quorum_size))"
)
"""Counts the entries that a bookie stores of an ensemble: its neighbors there differ by one."""
_WRITE_SET: Final = "transform(sequence(0, write_quorum_size - 1), i -> bookies[cast((r + i) % ensemble_size as int)])"
_CLASSES: Final = (
    "filter(transform(sequence(0, ensemble_size - 1), r -> named_struct("
    "'first', gap_first + pmod(r - gap_first, ensemble_size), 'last', gap_last - pmod(gap_last - r, ensemble_size), "
    f"'expected', {_WRITE_SET}, 'looked', array_intersect({_WRITE_SET}, scanned))), "
    "c -> c.first <= gap_last and size(c.looked) > 0 and "
    "(state = 'CLOSED' or size(c.looked) = write_quorum_size))"
)
"""Entries of a gap by their remainder: those of one have the same write set."""


def absent(tables: Tables) -> DataFrame:
    """One row a range of entries on one bookie, or on none of their write set.

    kind: nothing (the whole ledger), lost (no copy is left; bookie_id is null), missing (on bookie_id; other bookies
    were not scanned). entry_id, last_id: first and last entry; entries: how many of those between are absent; rank,
    span: the place of the first in its order, and how many places the row covers.
    """
    short = _short(tables)
    whole = "found = 0 and looked_at_all"
    ranges = short.where(whole).selectExpr(
        "case when nothing then 'nothing' else 'lost' end as kind",
        *("ledger_id", "first_entry_id as entry_id", "ends as last_id", "first_entry_id as rank"),
        *("missing as span", "missing as entries", "cast(null as string) as bookie_id"),
        *("first_entry_id", "state", "bookies as others"),
    )
    return ranges.unionByName(_by_class(_gaps(tables, short.where(f"not ({whole})"))))


def _short(tables: Tables) -> DataFrame:
    """Fragments that lack entries, with what was found of them."""
    counted = (
        seen(tables).where("found").join(parts(tables).select(*_PART, "ends"), list(_PART)).where("entry_id <= ends")
    )
    counted = counted.selectExpr(*_PART, "1L as found", "entry_id as last_found")
    if (compared := blocks(tables)) is not None:
        whole = compared.whole.selectExpr(*_PART, "last - first + 1 as found", "last as last_found")
        counted = counted.unionByName(whole)
    counted = counted.groupBy(*_PART).agg(F.sum("found").alias("found"), F.max("last_found").alias("last_found"))
    return (
        parts(tables)
        .join(counted, list(_PART), "left")
        .fillna(0, ["found"])
        .withColumn("missing", F.expr("greatest(ends - first_entry_id + 1, 0)"))
        .withColumn("looked_at_all", F.expr("size(array_except(bookies, scanned)) = 0"))
        .withColumn("ledger_found", F.expr("sum(found) over (partition by ledger_id)"))
        .withColumn("ledger_looked", F.expr("bool_and(looked_at_all or missing = 0) over (partition by ledger_id)"))
        .where("found < missing and size(scanned) > 0 and (state = 'CLOSED' or looked_at_all)")
        .withColumn("nothing", F.expr("ledger_found = 0 and ledger_looked and state = 'CLOSED'"))
    )


def _gaps(tables: Tables, short: DataFrame) -> DataFrame:
    """The short fragments' columns beside gap_first and gap_last, a row a gap. Sorts within ranges, then the ranges."""
    there = seen(tables).where("found").join(short.select(*_PART, "first_entry_id", "ends"), list(_PART))
    there = there.where("entry_id <= ends").select(*_PART, "range", "entry_id", "first_entry_id")
    in_range = Window.partitionBy(*_PART, "range").orderBy("entry_id")
    in_part = Window.partitionBy(*_PART).orderBy("range")
    within = there.withColumn("before", F.lag("entry_id").over(in_range)).where("before < entry_id - 1")
    spans = there.selectExpr(*_PART, "range", "first_entry_id", "entry_id", "entry_id as most")
    if (compared := blocks(tables)) is not None:
        whole = compared.whole.join(short.select(*_PART, "first_entry_id"), list(_PART))
        whole = whole.selectExpr(*_PART, "range", "first_entry_id", "first as entry_id", "last as most")
        spans = spans.unionByName(whole)
    edges = (
        spans.groupBy(*_PART, "range", "first_entry_id")
        .agg(F.min("entry_id").alias("entry_id"), F.max("most").alias("most"))
        .withColumn("before", F.coalesce(F.lag("most").over(in_part), F.expr("first_entry_id - 1")))
        .where("before < entry_id - 1")
    )
    bounds = (*_PART, "before + 1 as gap_first", "entry_id - 1 as gap_last")
    at_end = short.selectExpr(
        *_PART, "coalesce(last_found + 1, first_entry_id) as gap_first", "ends as gap_last"
    ).where("gap_first <= gap_last")
    gaps = within.selectExpr(*bounds).unionByName(edges.selectExpr(*bounds)).unionByName(at_end)
    return gaps.join(short, list(_PART))


def _by_class(gaps: DataFrame) -> DataFrame:
    """Gaps by the bookies that should hold their entries: as many rows as an ensemble has bookies, at most."""
    classes = gaps.withColumn("class", F.expr(f"explode({_CLASSES})"))
    classes = classes.withColumn("lost", F.expr("size(class.looked) = write_quorum_size"))
    owners = "if(lost, array(cast(null as string)), class.looked)"
    rows = (
        classes.withColumn("bookie_id", F.expr(f"explode({owners})"))
        .groupBy(*_PART, "gap_first", "lost", "bookie_id")
        .agg(
            F.min("class.first").alias("entry_id"),
            F.max("class.last").alias("last_id"),
            F.expr("sum((class.last - class.first) div ensemble_size + 1)").alias("entries"),
            F.array_distinct(F.flatten(F.collect_set("class.expected"))).alias("others"),
            *(F.first(name).alias(name) for name in _OF_PART),
        )
    )
    first, last = (RANK.format(entry=entry, bookie="bookie_id") for entry in ("entry_id", "last_id"))
    return rows.selectExpr(
        "if(lost, 'lost', 'missing') as kind",
        *("ledger_id", "entry_id", "last_id", f"if(lost, entry_id, {first}) as rank"),
        f"if(lost, last_id - entry_id + 1, {last} - {first} + 1) as span",
        *("entries", "bookie_id", "first_entry_id", "state", "others"),
    )


_OF_PART: Final = ("first_entry_id", "state", "bookies", "ensemble_size", "write_quorum_size")
