"""Ledgers that are not closed and that no client can be writing.

Plan: ledgers that are not CLOSED (few) joined with topics and with the bookies that have them fenced (broadcasts of
what is left after the filter). Needs metadata; indexes say more.

An idle writer cannot be distinguished from a dead one, so in a live run an open ledger is reported only where
something proves that it has none: its topic went on to another ledger, or a bookie has it fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "open-ledgers"
CODES: Final = ("BKC441", "BKC442")
NEEDS: Final = ("ledgers", "topics", "bookie_ledgers")
TEXT: Final = "every open ledger has a writer; shuffles the open ones"


def findings(tables: Tables) -> DataFrame:
    """BKC441 open, BKC442 in recovery; older than the minimal age."""
    rows = tables.keep("not_closed", lambda: _not_closed(tables))
    evidence = {"since_ms": "since_ms", "fenced_on": "fenced_on", "topic": "topic"}
    return union(
        findings_of(
            rows.where("state = 'OPEN' and why is not null"),
            "BKC441",
            subject="concat('ledger ', ledger_id)",
            message="concat('open without a writer: ', why)",
            evidence=evidence,
            ledger_id="ledger_id",
        ),
        findings_of(
            rows.where("state = 'IN_RECOVERY'"),
            "BKC442",
            subject="concat('ledger ', ledger_id)",
            message="'in recovery, which was interrupted'",
            evidence=evidence,
            ledger_id="ledger_id",
        ),
    )


def _not_closed(tables: Tables) -> DataFrame:
    """Ledgers that are not CLOSED and older than the minimal age, with their owners and the bookies that fence them."""
    not_closed = tables.ledgers.where("state in ('OPEN', 'IN_RECOVERY')")
    fenced = (
        tables.bookie_ledgers.where("fenced")
        .groupBy("ledger_id")
        .agg(F.array_sort(F.collect_set("bookie_id")).alias("fenced_on"))
    )
    topics = tables.topics.join(not_closed.select("ledger_id"), "ledger_id", "left_semi")
    owner = topics.groupBy("ledger_id").agg(
        F.expr("bool_or(coalesce(last, false) or kind = 'cursor')").alias("current"),
        F.min("topic").alias("topic"),
    )
    return (
        not_closed.join(fenced, "ledger_id", "left")
        .join(owner, "ledger_id", "left")
        .withColumn("since_ms", F.expr("greatest(coalesce(mtime_ms, 0), coalesce(ctime_ms, 0))"))
        .where(f"since_ms <= {tables.as_of_ms - tables.min_age_ms}")
        .withColumn(
            "why",
            F.expr(
                "case when topic is not null and not current then concat(topic, ' writes another ledger') "
                "when fenced_on is not null then concat('fenced on ', concat_ws(', ', fenced_on)) "
                + ("" if tables.live else "when not coalesce(current, false) then 'no bookie is running' ")
                + "end"
            ),
        )
    )
