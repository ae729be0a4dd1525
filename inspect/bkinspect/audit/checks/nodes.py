"""Nodes of the metadata store that cannot be decoded.

Plan: two filters; no shuffle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "nodes"
CODES: Final = ("BKC451", "BKC452")
NEEDS: Final = ("ledgers", "metadata_damage")
TEXT: Final = "every node can be decoded; no shuffle"


def findings(tables: Tables) -> DataFrame:
    """BKC451 ledgers, BKC452 others."""
    return union(
        findings_of(
            tables.ledgers.where("damage is not null"),
            "BKC451",
            subject="concat('ledger ', ledger_id)",
            message="damage",
            evidence={"metadata_version": "metadata_version"},
            ledger_id="ledger_id",
        ),
        findings_of(tables.metadata_damage, "BKC452", subject="path", message="message", file="path"),
    )
