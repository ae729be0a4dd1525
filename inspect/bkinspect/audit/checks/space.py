"""Whose bytes are in the entry logs, and why they are still there.

Plan: `_summary.sums` → summed by bookie and
ledger (a shuffle of partial sums) → joined with metadata and topics (shuffle by ledger) → summed by owner.

    live              the index points to it, and the ledger's ensembles name the bookie
    over-replicated   the index points to it, and they do not
    orphan            the index points to it, and the ledger has no metadata
    dead              the index does not point to it: superseded, or of a collected ledger; compaction frees it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._rows import findings_of, text_of
from bkinspect.audit.checks._summary import sums as stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "space"
CODES: Final = ("BKC501",)
NEEDS: Final = ("entries", "index", "bookie_ledgers", "ledgers", "fragments", "topics")
TEXT: Final = "bytes by owner and reason; the plan of missing-copies, then shuffles sums"
DEAD_SIZE_MIN: Final = 1 << 30
"""Bytes; less is not worth a word."""
_NOBODY: Final = "'-'"


def space(tables: Tables) -> DataFrame:
    """The rows of the table `space`, which a run keeps."""
    sums = (
        stored(tables)
        .where("what = 'log'")
        .groupBy("bookie_id", "ledger_id", "served")
        .agg(F.sum("entries").alias("entries"), F.sum("bytes").alias("bytes"))
    )
    members = tables.fragments.select("ledger_id", F.explode("bookies").alias("bookie_id")).distinct()
    members = members.withColumn("member", F.lit(True))
    known = tables.ledgers.selectExpr("ledger_id", "true as known", _APPLICATION)
    owners = tables.topics.groupBy("ledger_id").agg(F.min("topic").alias("topic"), F.min("kind").alias("kind"))
    rows = (
        sums.join(members, ["ledger_id", "bookie_id"], "left")
        .join(known, "ledger_id", "left")
        .join(owners, "ledger_id", "left")
        .withColumn("reason", F.expr(_REASON))
        .withColumn("owner", F.expr(f"coalesce(topic, application, {_NOBODY})"))
    )
    return rows.groupBy("bookie_id", "reason", "owner", F.coalesce("kind", F.lit("-")).alias("kind")).agg(
        F.count_distinct("ledger_id").alias("ledgers"), F.sum("entries").alias("entries"), F.sum("bytes").alias("bytes")
    )


_APPLICATION: Final = text_of("custom_metadata['application']") + " as application"
_REASON: Final = (
    "case when not served then 'dead' when not coalesce(known, false) then 'orphan' "
    "when coalesce(member, false) then 'live' else 'over-replicated' end"
)


def findings(tables: Tables) -> DataFrame:
    """BKC501 for a bookie that is mostly not live."""
    made = tables.space if tables.has("space") else space(tables)
    rows = made.groupBy("bookie_id").agg(
        F.expr("sum(case when reason = 'live' then bytes else 0 end)").alias("live"),
        F.expr("sum(case when reason = 'live' then 0 else bytes end)").alias("dead"),
    )
    return findings_of(
        rows.where(f"dead > live and dead > {DEAD_SIZE_MIN}"),
        "BKC501",
        subject="bookie_id",
        message="concat(dead, ' bytes in its entry logs are not live, ', live, ' are')",
        evidence={"dead_bytes": "dead", "live_bytes": "live"},
        bookie_id="bookie_id",
    )
