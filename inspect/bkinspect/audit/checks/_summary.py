"""The summary of a run: one row a copy, computed once and kept, for all checks.

    summary    records and index rows of one place together: one row for each place where a bookie has an entry; the one
               shuffle that grows with copies; kept, so that no other plan reads the facts or shuffles them again
    seen       one row an entry, with its fragment, whether it is suspect, and what its copies agree in; kept
    suspects   the summary of suspect entries alone; kept
    sums       entries and bytes by file, ledger and state; kept
    parts      fragments, with their neighbors, the bookies that were scanned and the end that is valid; kept

An entry's fragment is found by a sorted merge: fragments' starts and entries are sorted together within a range of
2^16 entries, and an entry takes the last start before it. Ten thousand fragments cost a sort, no more.

Where blocks are compared first (see `_blocks`), summary and seen hold the entries of differing ranges alone. Entries of
whole ranges are never suspect; `sums` counts them by pieces, `_absent` and `growth` by ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from bkinspect.audit.checks._blocks import ABSURD, RANGE, RANGE_BITS, WHAT, blocks, range_of
from bkinspect.audit.checks._fragments import fragments, parts_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

KEY: Final = ("ledger_id", "range", "entry_id")
FOUND: Final = "(index_hash is not null or what != 'stale')"
"""Rows that say that a bookie has the entry: not those of journals that no start replays."""
_PLACE: Final = ("bookie_id", "file", "offset")
_PART: Final = ("ledger_id", "fragment_index")
_CODES: Final = {
    "what": ("live", "log", "journal", "stale"),
    "source": ("entry_log", "journal", "live"),
}
"""Spark aggregates numbers by hash, texts by sorting: texts of few values pass the aggregate as numbers."""
_NUMBERS: Final = ("index_hash", "size", "last_confirmed", "length", "payload_size", "content_digest")
_AGREES: Final = "coalesce(digest_ok, true) and length is not null"
_WHOLE: Final = (
    "not unmatched and journal_rows = 0 and not coalesce(found_bad, false) and "
    "least <=> most and log_rows + live_rows = write_quorum_size and "
    "holders <=> marks[cast(entry_id % ensemble_size as int)]"
)


def indexed_bookies(tables: Tables) -> DataFrame:
    """Bookies whose index was read: of the others every record counts as served."""
    if (compared := blocks(tables)) is not None:
        return compared.indexed
    return tables.bookie_ledgers.select("bookie_id").union(tables.index.select("bookie_id")).distinct()


def summary(tables: Tables) -> DataFrame:
    """One row for each place of an entry on a bookie: KEY, place, index_hash, what, source and the record's fields.

    index_hash: of the index that points to the place; null where none does.
    what: log (a record of a bookie whose index was read); journal (a start replays it); stale (in a journal that no
    start replays); live (served as it is: by a running bookie, or by one whose index was not read); null where only an
    index row is.
    """
    return tables.keep("summary", lambda: _summary(tables), as_files=True)


def _differing(rows: DataFrame, tables: Tables) -> DataFrame:
    """The rows, with their ranges, of ranges that are compared entry by entry."""
    compared = blocks(tables)
    return range_of(rows) if compared is None else compared.only_differing(range_of(rows))


def _summary(tables: Tables) -> DataFrame:
    indexed = indexed_bookies(tables).withColumn("indexed", F.lit(True))
    records = _differing(tables.entries, tables)
    records = records.join(F.broadcast(indexed), "bookie_id", "left").withColumn("what", F.expr(WHAT))
    codes = {name: F.expr(f"array_position(array{values}, {name})") for name, values in _CODES.items()}
    fields = [name for name in _NUMBERS if name != "index_hash"]
    records = records.withColumns(codes).select(*KEY, *_PLACE, *_CODES, "digest_ok", *fields)
    pointers = _differing(tables.index, tables).select(*KEY, *_PLACE, F.xxhash64("index").alias("index_hash"))
    both = records.unionByName(pointers, allowMissingColumns=True)
    places = (
        both.repartition("ledger_id", "range")
        .groupBy(*KEY, *_PLACE)
        .agg(*(F.max(name).alias(name) for name in (*_CODES, "digest_ok", *_NUMBERS)))
    )
    texts = {name: F.expr(f"try_element_at(array{values}, cast({name} as int))") for name, values in _CODES.items()}
    return places.withColumns(texts)


def seen(tables: Tables) -> DataFrame:
    """One row an entry: KEY, fragment_index (null without one), what is known of it, what its sound copies agree in.

    found: a bookie has it. suspect: it is not plainly whole, by aggregates that cost little, or it is after the end of
    a closed ledger. bad: a digest does not fit. absurd: a log has it with a last confirmed or length that cannot be.
    confirmed: the largest last confirmed. length, length_most, payload_size, last_confirmed: of copies whose digest
    fits or is not known.
    """
    return tables.keep("seen", lambda: _seen(tables), as_files=True)


def _seen(tables: Tables) -> DataFrame:
    counted = _counted(summary(tables)).withColumn("start", F.lit(0))
    placed = counted.unionByName(_starts(tables), allowMissingColumns=True)
    before = Window.partitionBy("ledger_id", "range").orderBy("entry_id", F.desc("start"), "fragment_index")
    placed = placed.withColumn("fragment_index", F.last("fragment_index", ignorenulls=True).over(before))
    known = fragments(tables).select(*_PART, "ensemble_size", "write_quorum_size", "marks", "closed_at")
    found = placed.where("start = 0").join(known, list(_PART), "left")
    suspect = f"found and (not coalesce({_WHOLE}, false) or coalesce(entry_id > closed_at, false))"
    flags = ("found", "bad", "absurd", "confirmed")
    agreed = ("length", "length_most", "payload_size", "last_confirmed")
    return found.select(*KEY, "fragment_index", F.expr(suspect).alias("suspect"), *flags, *agreed)


def _counted(copies: DataFrame) -> DataFrame:
    return (
        copies.select(
            *(*KEY, "what", "source", "content_digest", "digest_ok", "size", "last_confirmed", "length"),
            *("payload_size", "index_hash", F.xxhash64("bookie_id").alias("bookie")),
        )
        .repartition("ledger_id", "range")
        .groupBy(*KEY)
        .agg(
            F.expr(f"bool_or({FOUND})").alias("found"),
            F.expr("bool_or((index_hash is not null) != coalesce(what = 'log', false))").alias("unmatched"),
            F.expr("count_if(what = 'log')").alias("log_rows"),
            F.expr("count_if(what = 'live')").alias("live_rows"),
            F.expr("count_if(what = 'journal')").alias("journal_rows"),
            F.expr("bit_xor(case when what in ('log', 'live') then bookie end)").alias("holders"),
            F.expr(f"min(case when {FOUND} then content_digest end)").alias("least"),
            F.expr(f"max(case when {FOUND} then content_digest end)").alias("most"),
            F.expr(f"bool_or({FOUND} and not coalesce(digest_ok, true))").alias("found_bad"),
            F.expr("bool_or(not coalesce(digest_ok, true))").alias("bad"),
            F.expr(f"bool_or({ABSURD})").alias("absurd"),
            F.expr(f"max(case when {FOUND} then last_confirmed end)").alias("confirmed"),
            F.expr(f"min(case when {_AGREES} then length end)").alias("length"),
            F.expr(f"max(case when {_AGREES} then length end)").alias("length_most"),
            F.expr(f"min(case when {_AGREES} then payload_size end)").alias("payload_size"),
            F.expr(f"min(case when {_AGREES} then last_confirmed end)").alias("last_confirmed"),
        )
    )


def _starts(tables: Tables) -> DataFrame:
    """Where fragments start, and at the start of each range with an entry the fragment that it begins in."""
    starts = tables.fragments.select("ledger_id", F.col("first_entry_id").alias("entry_id"), "fragment_index")
    first = (
        summary(tables)
        .select("ledger_id", F.expr(f"shiftleft(range, {RANGE_BITS})").alias("entry_id"))
        .distinct()
        .select("ledger_id", "entry_id", F.lit(None).cast("int").alias("fragment_index"), F.lit(True).alias("range"))
    )
    before = Window.partitionBy("ledger_id").orderBy("entry_id", F.asc_nulls_last("fragment_index"))
    covers = (
        starts.withColumn("range", F.lit(False))
        .unionByName(first)
        .withColumn("fragment_index", F.last("fragment_index", ignorenulls=True).over(before))
        .where("range and fragment_index is not null")
        .drop("range")
    )
    both = starts.unionByName(covers).withColumn("start", F.lit(1))
    return _differing(both, tables).repartition("ledger_id", "range")


def suspects(tables: Tables) -> DataFrame:
    """The summary of entries that are suspect, bad or absurd, with fragment_index and suspect."""
    return tables.keep("suspects", lambda: _suspects(tables))


def _suspects(tables: Tables) -> DataFrame:
    few = seen(tables).where("suspect or bad or absurd").select(*KEY, "fragment_index", "suspect")
    return summary(tables).join(few, list(KEY))


def sums(tables: Tables) -> DataFrame:
    """Entries and bytes (with 4-byte sizes) of records by bookie, file, ledger, source, what and whether it is served.

    served: an index points to the record.
    """
    return tables.keep("sums", lambda: _sums(tables))


def _sums(tables: Tables) -> DataFrame:
    of_file = ("bookie_id", "file", "ledger_id", "source", "what")
    records = summary(tables).where("what is not null")
    rows = records.selectExpr(*of_file, "index_hash is not null as served", "1L as entries", "size + 4 as bytes")
    if (compared := blocks(tables)) is not None:
        whole = compared.pieces.where("what is not null").join(compared.whole.select(*RANGE), list(RANGE), "left_semi")
        rows = rows.unionByName(whole.selectExpr(*of_file, "what = 'log' as served", "rows as entries", "bytes"))
    return rows.groupBy(*of_file, "served").agg(F.sum("entries").alias("entries"), F.sum("bytes").alias("bytes"))


def parts(tables: Tables) -> DataFrame:
    """Fragments with last_part, other_bookies (of the ledger's other fragments), scanned (of their own), marks, ends.

    `closed_at` is the ledger's last entry by metadata, null while it is not CLOSED.
    `ends` is the last entry that is valid: of a ledger that is not closed, the last that any copy confirms.
    """
    blocks(tables)
    return parts_with(tables, lambda: seen(tables).groupBy("ledger_id").agg(F.max("confirmed").alias("confirmed")))
