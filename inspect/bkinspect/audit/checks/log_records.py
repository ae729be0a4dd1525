"""Logs and journals as files: damage that reading met, records that cannot be, ledgers maps that do not fit.

Plan: filters; the maps are compared with frames summed by log and ledger (a shuffle of partial sums). Damage is joined
by broadcasts.

Not told, because a crash leaves it and the bookie deals with it: a torn end of the newest journal, data behind its end;
a torn end of the newest log, unless the index points there and no journal replays what it points to; logs without a
map; a compaction's leftovers. A map is not judged where the log's records are damaged: it cannot fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._blocks import ABSURD
from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of, union
from bkinspect.audit.checks._summary import summary, sums, suspects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "log-records"
_PASSED_ON: Final = (
    *("BKC001", "BKC002", "BKC003", "BKC004", "BKC006", "BKC007", "BKC101", "BKC102", "BKC103", "BKC105"),
    *("BKC201", "BKC202", "BKC203", "BKC205", "BKC206", "BKC207", "BKC301"),
)
CODES: Final = (*_PASSED_ON, "BKC106", "BKC108", "BKC109", "BKC208")
NEEDS: Final = ("log_maps", *COPIES)
TEXT: Final = "files hold whole records and nothing else; shuffles sums by log and ledger"

_BEFORE_MARK: Final = (
    "code in ('BKC201', 'BKC203') and (log_id < mark_journal_id or "
    "code = 'BKC203' and log_id = mark_journal_id and resumed_at <= mark_offset)"
)
"""Damage in a part of a journal that no start replays: its entries are in storage."""

_PLACE: Final = {"bookie_id": "bookie_id", "file": "file", "offset": "offset"}
_ENTRY: Final = {"ledger_id": "ledger_id", "entry_id": "entry_id", **_PLACE}


def findings(tables: Tables) -> DataFrame:
    """One for each place in a file; BKC106 one a log."""
    return union(_damage(tables), _records(tables), _maps(tables))


def _damage(tables: Tables) -> DataFrame:
    rows = tables.damage.where(F.col("code").isin(*_PASSED_ON))
    led_astray = tables.damage.where("code in ('BKC101', 'BKC102', 'BKC103')").select("file")
    maps = rows.where("code = 'BKC105'").join(led_astray, "file", "left_anti")
    rows = rows.where("code != 'BKC105'").unionByName(maps.select(rows.columns))
    newest_journals = (
        tables.log_files.where("source = 'journal'").groupBy("directory").agg(F.max_by("file", "log_id").alias("file"))
    )
    newest = newest_journals.select("file").union(
        tables.log_files.where("newest and source = 'entry_log'").select("file")
    )
    newest = F.broadcast(newest.withColumn("newest", F.lit(True)))
    rows = rows.join(newest, "file", "left").where("not (coalesce(newest, false) and code in ('BKC202', 'BKC205'))")
    torn = rows.where("newest and code = 'BKC102'").join(_pointed_to(tables), ["file", "offset"], "left_semi")
    rows = rows.where("not (coalesce(newest, false) and code = 'BKC102')").unionByName(torn)
    rows = rows.join(F.broadcast(_named(tables, rows)), ["file", "offset"], "left")
    rows = rows.withColumn("ledger_id", F.expr("coalesce(ledger_id, named_ledger_id)"))
    rows = rows.withColumn("entry_id", F.expr("coalesce(entry_id, named_entry_id)"))
    journals = tables.log_files.where("source = 'journal'").select("file", "log_id", "mark_journal_id", "mark_offset")
    rows = rows.join(F.broadcast(journals), "file", "left")
    return findings_of(
        rows,
        _PASSED_ON,
        subject="file",
        message="message",
        evidence={"resumed_at": "resumed_at", "details": "evidence"},
        severity=f"case when {_BEFORE_MARK} then 'warning' end",
        **_ENTRY,
    )


def _named(tables: Tables, rows: DataFrame) -> DataFrame:
    """What the index says stands where a record's size is damaged: the entry that is lost with it."""
    sizes = rows.where("code = 'BKC103' and entry_id is null").selectExpr("file", "offset + 4 as offset")
    pointers = tables.index.join(F.broadcast(sizes), ["file", "offset"], "left_semi")
    named = pointers.selectExpr(
        "file", "offset - 4 as offset", "ledger_id as named_ledger_id", "entry_id as named_entry_id"
    )
    return named.dropDuplicates(["file", "offset"])


def _pointed_to(tables: Tables) -> DataFrame:
    """Torn ends of logs behind which an index points to entries that no journal will replay."""
    torn = tables.damage.where("code = 'BKC102'").selectExpr("file", "offset as torn_at")
    replayed = summary(tables).where("what = 'journal'").select("ledger_id", "entry_id", "bookie_id")
    behind = tables.index.join(F.broadcast(torn), "file").where("offset >= torn_at")
    behind = behind.join(replayed, ["ledger_id", "entry_id", "bookie_id"], "left_anti")
    return behind.selectExpr("file", "torn_at as offset").distinct()


def _records(tables: Tables) -> DataFrame:
    unknown = tables.records.where("kind = 'unknown'")
    ids = {"record_ledger_id": "ledger_id", "record_entry_id": "entry_id", "size": "size"}
    in_log = findings_of(
        unknown.where("source = 'entry_log'"),
        "BKC108",
        subject="file",
        message="'a frame with negative ids'",
        evidence=ids,
        **_PLACE,
    )
    in_journal = findings_of(
        unknown.where("source = 'journal'"),
        "BKC208",
        subject="file",
        message="'an unknown mark'",
        evidence=ids,
        **_PLACE,
    )
    judged = suspects(tables).where(ABSURD)
    if tables.has("ledgers"):  # without metadata its writer is unknown: orphan-ledgers reports it
        judged = judged.join(tables.ledgers.select("ledger_id"), "ledger_id", "left_semi")
    absurd = findings_of(
        judged,
        "BKC109",
        subject="concat('entry ', entry_id, ' of ledger ', ledger_id)",
        message="'its last add confirmed or length cannot be'",
        evidence={"last_confirmed": "last_confirmed", "length": "length", "size": "size"},
        **_ENTRY,
    )
    return union(in_log, in_journal, absurd)


def _maps(tables: Tables) -> DataFrame:
    """Maps against frames, over logs that have a map and whose records are sound.

    Joined by file, which tells the bookie too: directories without a cookie have none.
    """
    maps = tables.log_maps.select("bookie_id", "file", "ledger_id", F.col("size").alias("told"))
    mapped = maps.select("file").distinct()
    frames = (
        sums(tables)
        .where("source = 'entry_log'")
        .groupBy("file", "ledger_id")
        .agg(F.sum("bytes").alias("counted"), F.first("bookie_id").alias("own_bookie_id"))
    )
    frames = frames.join(F.broadcast(mapped), "file", "left_semi")
    spoiled = (
        tables.damage.where("code in ('BKC101', 'BKC102', 'BKC103', 'BKC105')")
        .select("file")
        .union(suspects(tables).where("not digest_ok and source = 'entry_log'").select("file"))
        .union(tables.records.where("kind = 'unknown'").select("file"))
        .union(faults(tables).where("kind = 'dangling'").select("file"))
        .distinct()
    )
    rows = (
        maps.join(frames, ["file", "ledger_id"], "full")
        .where("not (told <=> counted)")
        .withColumn("bookie_id", F.expr("coalesce(bookie_id, own_bookie_id)"))
        .join(spoiled, "file", "left_anti")
        .groupBy("bookie_id", "file")
        .agg(
            F.array_sort(F.collect_list(F.struct("ledger_id", "told", "counted"))).alias("ledgers"),
            F.count("*").alias("count"),
        )
    )
    rows = rows.join(tables.log_files.select("file", "map_offset"), "file", "left")
    return findings_of(
        rows,
        "BKC106",
        subject="file",
        message="concat('the map is wrong about ', count, case when count = 1 then ' ledger' else ' ledgers' end)",
        evidence={"ledgers": "slice(ledgers, 1, 100)", "count": "count"},
        ledger_id="case when count = 1 then ledgers[0].ledger_id end",
        bookie_id="bookie_id",
        file="file",
        offset="map_offset",
    )
