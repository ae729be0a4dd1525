"""Ledgers without an owner: in metadata and named by no owner, or on disks without metadata.

Plan: ledgers anti-joined with the ledgers that topics name (shuffle by ledger); ledgers of bookies' indexes and of
journals that will be replayed, one row a ledger and bookie, anti-joined with metadata (shuffle by ledger). Bytes that a
log keeps of a ledger which the index has forgotten wait for compaction and are no finding (see `space`). Of facts that
collectors wrote, only ledgers that metadata did not have when their bookie was collected are reported as BKC412.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._rows import findings_of, text_of, union
from bkinspect.audit.checks._summary import sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "orphan-ledgers"
CODES: Final = ("BKC411", "BKC412", "BKC415")
NEEDS: Final = ("ledgers", "topics", "metadata_damage", "bookie_ledgers", "entries", "index")
TEXT: Final = "every ledger has an owner and metadata; shuffles ledgers by id"
_PULSAR: Final = "pulsar"
_PULSARS: Final = "k -> k like 'pulsar/%'"
_NAMED_BY: Final = (
    "unread = concat('/managed-ledgers/', custom_metadata['pulsar/managed-ledger']) "
    "or unread = concat('/managed-ledgers/', custom_metadata['pulsar/managed-ledger'], '/', "
    "coalesce(custom_metadata['pulsar/cursor'], '__compaction')) "
    "or unread like '/schemas/%' and coalesce(custom_metadata['component'], 'schema') = 'schema' "
    "or unread like '%/__compaction' and custom_metadata['pulsar/compactedTopic'] is not null "
    "or not tagged and unread rlike '/ledgers/(logrecs|inprogress)_|/allocation$|/[.]allocation_pool/'"
)
"""A node that cannot be read and that would name the ledger; of DistributedLog, any may name any untagged ledger.
Source: LedgerMetadataUtils.java, LogSegmentMetadata.java."""
_OF_PULSAR: Final = "kind not in ('stream', 'allocation')"

_APPLICATION: Final = text_of("custom_metadata['application']")
_WHERE: Final = "if(size(bookies) = 0, 'a disk without a cookie', concat_ws(', ', bookies))"


def findings(tables: Tables) -> DataFrame:
    """BKC411 Pulsar's and BKC415 untagged ones in metadata, BKC412 on disk: one a ledger."""
    return union(_unowned(tables), _without_metadata(tables))


def _unowned(tables: Tables) -> DataFrame:
    """Old enough, named by no topic, Pulsar's or untagged, and no node that may name it is unreadable."""
    unnamed = tables.keep("unnamed", lambda: _unnamed(tables))
    rows = (
        tables.ledgers.join(unnamed, "ledger_id", "left_semi")
        .selectExpr(
            "ledger_id",
            "state",
            "length",
            "ctime_ms",
            f"{_APPLICATION} as application",
            f"transform_values(custom_metadata, (k, v) -> {text_of('v')}) as custom_metadata",
        )
        .withColumn("tagged", F.expr(f"application is not null or exists(map_keys(custom_metadata), {_PULSARS})"))
    )
    pulsar = tables.topics.where(_OF_PULSAR).limit(1).select(F.lit(True).alias("pulsar"))
    rows = rows.join(F.broadcast(pulsar), F.lit(True), "left").where("pulsar or not tagged")
    unread = tables.metadata_damage.selectExpr("path as unread")
    rows = rows.join(F.broadcast(unread), F.expr(_NAMED_BY), "left_anti")
    fields = ("state", "length", "ctime_ms", "application", "custom_metadata")
    texts = {"BKC411": "no topic, cursor or schema names it", "BKC415": "its owner is not known"}
    return union(
        *(
            findings_of(
                rows.where("tagged" if code == "BKC411" else "not tagged"),
                code,
                subject="concat('ledger ', ledger_id)",
                message=f"'{text}'",
                evidence={name: name for name in fields},
                ledger_id="ledger_id",
            )
            for code, text in texts.items()
        )
    )


def _unnamed(tables: Tables) -> DataFrame:
    """Ids of Pulsar's and untagged ledgers that are old enough and that no topic names: few, so that the join with
    topics shuffles ids alone, once for both codes."""
    old = f"coalesce(ctime_ms, 0) <= {tables.as_of_ms - tables.min_age_ms}"
    rows = tables.ledgers.where(f"damage is null and coalesce({_APPLICATION}, '{_PULSAR}') = '{_PULSAR}' and {old}")
    if not tables.has("topics"):
        rows = rows.where("false")
    return rows.select("ledger_id").join(tables.topics.select("ledger_id"), "ledger_id", "left_anti")


def _without_metadata(tables: Tables) -> DataFrame:
    indexed = tables.bookie_ledgers.selectExpr("ledger_id", "bookie_id", "entries")
    replayed = sums(tables).where("what = 'journal' or source = 'live'")
    replayed = replayed.groupBy("ledger_id", "bookie_id").agg(F.sum("entries").alias("entries"))
    indexless = (
        sums(tables)
        .where("source = 'entry_log'")
        .join(F.broadcast(tables.bookie_ledgers.select("bookie_id").distinct()), "bookie_id", "left_anti")
    )
    indexless = indexless.groupBy("ledger_id", "bookie_id").agg(F.sum("entries").alias("entries"))
    rows = indexed.unionByName(replayed).unionByName(indexless)
    if tables.collected is not None:  # a ledger may have been deleted after its bookie was collected
        rows = rows.join(tables.collected.unknown_ledgers, ["bookie_id", "ledger_id"], "left_semi")
    rows = rows.groupBy("ledger_id").agg(
        F.array_sort(F.collect_set("bookie_id")).alias("bookies"), F.sum("entries").alias("entries")
    )
    if not tables.has("ledgers") or tables.by_time:
        rows = rows.where("false")
    rows = rows.join(tables.ledgers.select("ledger_id"), "ledger_id", "left_anti")
    return findings_of(
        rows,
        "BKC412",
        subject="concat('ledger ', ledger_id)",
        message=f"concat('on ', {_WHERE}, ', but not in the metadata store')",
        evidence={"bookies": "bookies", "entries": "entries"},
        ledger_id="ledger_id",
        bookie_id="case when size(bookies) = 1 then bookies[0] end",
    )
