"""Every copy of every entry against the write sets: the one plan behind the checks of copies, and who yields to whom.

    suspects   entries that are not plainly whole: see `_summary`, which partitions and keeps what this plan reads
    details    the rows of suspects alone, collected an entry at a time (no shuffle) → `faults`
    absent     entries counted a fragment at a time; only where the count is short, gaps between those that exist

A copy of an expected entry is in one state, so one physical fault is one finding:

    sound       the index points to a record of the entry, or a journal will replay it, or a running bookie gave it;
                a bookie without an index among what was read serves every record
    dangling    the index points elsewhere: BKC351; BKC352 where the log is gone; missing where that place is in a
                damaged part of a log, as behind the end of a truncated one, unless log-records names the entry;
                nothing here where it holds a record whose digest fails (digests) or ids cannot be
    unindexed   only a record, no index row: BKC353
    missing     neither: BKC401; BKC402 where no bookie has the entry; BKC414 where none has any entry of the ledger

Sound copies whose bytes are damaged are not compared; those that differ are BKC404, and only what all copies agree in
can be BKC431. Where damage in a log has hit a record's size, the damage is reported and not the record's digest.

An entry after the end of a CLOSED ledger is `late` where it proves that the end is too low: a sound copy carries a last
confirmed after the end, or the entry is the first one after the end and has Qa sound copies in its write set. A later
entry with Qa copies proves nothing: a writer sends it before the entries in front of it are confirmed.

A ledger that is not CLOSED promises Qa copies of what is confirmed, no more: fewer are reported, the rest is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._absent import RANK, absent
from bkinspect.audit.checks._states import STEPS
from bkinspect.audit.checks._summary import FOUND, KEY, parts, suspects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

COPIES: Final = (*("fragments", "entries", "records", "index", "bookie_ledgers", "bookies", "damage", "log_files"),)
"""Tables that the plan reads."""
_ENTRY: Final = ("ledger_id", "entry_id")
_PART: Final = ("ledger_id", "fragment_index")
CLOCK_SKEW_MS: Final = 60_000
"""Collectors and the metadata store have clocks of their own: times that are closer are not compared."""
_COLUMNS: Final = (
    *("kind", "ledger_id", "entry_id", "last_id", "rank", "bookie_id", "file", "offset", "size", "index", "others"),
    *("copies", "first_entry_id", "state", "confirmed", "span", "entries"),
)
_FAULTS_DDL: Final = (
    "kind string, ledger_id bigint, entry_id bigint, last_id bigint, rank bigint, bookie_id string, file string, "
    "offset bigint, size bigint, index string, others array<string>, copies int, first_entry_id bigint, state string, "
    "confirmed bigint, span bigint, entries bigint"
)


def faults(tables: Tables) -> DataFrame:
    """One row a copy, or entry, that is not as metadata has it; made once for a run and kept."""
    return tables.keep("faults", lambda: _faults(tables), as_files=True)


def _faults(tables: Tables) -> DataFrame:
    if tables.has("entries") or tables.has("index"):
        found = _missing_everywhere(tables)
        if not suspects(tables).isEmpty():  # the plan of details takes seconds to make
            found = _details(tables).unionByName(found)
        return found if tables.collected is None else _settled(found, tables)
    # No copies were read: the plan would shuffle all fragments to find nothing.
    return tables.spark.createDataFrame([], _FAULTS_DDL)


def _settled(rows: DataFrame, tables: Tables) -> DataFrame:
    """The faults without those that can come from changes after a bookie was collected (a join by ledger).

    Missing, unindexed and surplus copies are left out of ledgers that are not CLOSED, and of those whose metadata was
    changed after the collection of the bookie started, or less than CLOCK_SKEW_MS before; for entries without any
    copy, of any bookie of the write set.
    """
    assert tables.collected is not None
    starts = [F.lit(value) for pair in tables.collected.started_ms.items() for value in pair]
    ledgers = tables.ledgers.selectExpr(
        "ledger_id", "state as ledger_state", "coalesce(mtime_ms, ctime_ms, 0) as changed_ms"
    )
    known = rows.join(ledgers, "ledger_id", "left").withColumn("starts", F.create_map(*starts))
    bookies = "case when bookie_id is null then others else array(bookie_id) end"
    start = f"array_min(transform({bookies}, b -> starts[b]))"
    settled = f"coalesce(ledger_state = 'CLOSED' and changed_ms < {start} - {CLOCK_SKEW_MS}, false)"
    return known.where(f"kind not in ({_OF_ABSENCE}) or {settled}").select(*_COLUMNS)


_OF_ABSENCE: Final = "'missing', 'lost', 'nothing', 'unindexed', 'surplus'"


def damaged_places(tables: Tables) -> DataFrame:
    """Where reading of a log or journal was led astray: damage_from to damage_to, null for the end of the file."""
    codes = "code in ('BKC101', 'BKC102', 'BKC103', 'BKC108', 'BKC201', 'BKC202', 'BKC203')"
    return tables.damage.where(codes).select(
        F.col("bookie_id").alias("damage_bookie_id"),
        F.col("file").alias("damage_file"),
        F.coalesce("offset", F.lit(0)).alias("damage_from"),
        F.expr("case when code = 'BKC108' then offset + 1 else resumed_at end").alias("damage_to"),
        F.expr("case when code = 'BKC103' then offset + 4 end").alias("damage_named"),
    )


def touched(records: DataFrame, tables: Tables) -> DataFrame:
    """Records with `damaged`: True where the damage is at their size or starts right behind: their size was hit."""
    places = F.broadcast(damaged_places(tables).select("damage_file", "damage_from").distinct())
    hit = "(offset - 4 = damage_from or offset + size = damage_from)"
    joined = records.join(places, F.expr(f"file = damage_file and {hit}"), "left")
    return joined.withColumn("damaged", F.expr("damage_file is not null")).drop("damage_file", "damage_from")


def _details(tables: Tables) -> DataFrame:
    """The suspects' copies, each in its state; one row a fault."""
    names = tables.index.select("index").distinct().withColumn("index_hash", F.xxhash64("index"))
    copies = suspects(tables).where(f"suspect and {FOUND}").join(F.broadcast(names), "index_hash", "left")
    copies = touched(copies, tables).withColumn("bad", F.expr("damaged or not coalesce(digest_ok, true)"))
    entries = copies.groupBy(*KEY, "fragment_index").agg(
        F.array_sort(F.flatten(F.collect_list(F.expr(_ROWS)))).alias("rows")
    )
    placed = entries.join(parts(tables), list(_PART), "left")
    for name, expression in STEPS:
        placed = placed.withColumn(name, F.expr(expression))
    faulty = (
        placed.withColumn("fault", F.explode("faults"))
        .withColumn("rank", F.expr(RANK.format(entry="entry_id", bookie="fault.bookie_id")))
        .select(*_ENTRY, "fault.*", "rank", "first_entry_id", "state", F.expr("size(well)").alias("copies"))
        .withColumns({"last_id": F.col("entry_id"), "span": F.lit(1), "entries": F.lit(1)})
    )
    return _unexplained(faulty.persist(), tables)


_ROW: Final = (
    "named_struct('bookie_id', bookie_id, 'what', {what}, 'file', file, 'offset', offset, 'size', {size}, "
    "'last_confirmed', {last_confirmed}, 'length', {length}, 'digest_ok', {digest_ok}, "
    "'content_digest', {content_digest}, 'index', {index}, 'bad', {bad})"
)
_RECORD: Final = ("size", "last_confirmed", "length", "digest_ok", "content_digest")
_ROWS: Final = (
    "filter(array(if(index is null, null, "
    + _ROW.format(what="'index'", **{name: f"nullif({name}, {name})" for name in _RECORD}, index="index", bad="false")
    + "), if(what is null or what = 'stale', null, "
    + _ROW.format(what="what", **{name: name for name in _RECORD}, index="nullif(index, index)", bad="bad")
    + ")), r -> r is not null)"
)
"""The rows of a place: the index's, and the record."""


def _unexplained(faulty: DataFrame, tables: Tables) -> DataFrame:
    """The faults without index rows that only follow from damage at the place they point to; `gone` told apart.

    A copy in a damaged part of a log that no finding about the log names is missing.
    """
    dangling = faulty.where("kind = 'dangling'")
    places = F.broadcast(damaged_places(tables))
    rotten = suspects(tables).where("not digest_ok and source = 'entry_log'").select("bookie_id", "file", "offset")
    unknown = tables.records.where("kind = 'unknown' and source = 'entry_log'").select("bookie_id", "file", "offset")
    rotten = rotten.union(unknown)
    within = (
        "bookie_id = damage_bookie_id and file = damage_file and offset >= damage_from and "
        "(damage_to is null or offset < damage_to)"
    )
    cut = faulty.where("kind = 'cut'").join(
        places, F.expr(f"{within} and not coalesce(offset = damage_named, false)"), "left_semi"
    )
    cut = cut.join(rotten, ["bookie_id", "file", "offset"], "left_anti").withColumn("kind", F.lit("missing"))
    dangling = dangling.join(places, F.expr(within), "left_anti")
    dangling = dangling.join(rotten, ["bookie_id", "file", "offset"], "left_anti")
    if tables.has("log_files"):
        there = tables.log_files.select("bookie_id", "file").distinct().withColumn("there", F.lit(True))
        dangling = dangling.join(there, ["bookie_id", "file"], "left")
        dangling = dangling.withColumn("kind", F.expr("case when there then kind else 'gone' end"))
    others = faulty.where("kind not in ('dangling', 'cut')").select(*_COLUMNS)
    return others.unionByName(cut.select(*_COLUMNS)).unionByName(dangling.select(*_COLUMNS))


def _missing_everywhere(tables: Tables) -> DataFrame:
    """The rows of `absent` with the columns of faults."""
    nothing = {"file": "string", "offset": "bigint", "size": "bigint", "index": "string", "confirmed": "bigint"}
    empty = {name: F.lit(None).cast(kind) for name, kind in nothing.items()}
    return absent(tables).withColumns({**empty, "copies": F.lit(0)}).select(*_COLUMNS)
