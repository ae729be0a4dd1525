"""The first and the last entry of each fragment, on each bookie that should have them: what Java's auditor looks at.

Plan: a filter over what the source `bookkeeper.ends` found wrong; no shuffle. It runs only where it is named, and
needs no other table: a look at a cluster in seconds, where missing-copies and digests read every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "ends"
CODES: Final = ("BKC401", "BKC405")
NEEDS: Final = ("ends",)
TEXT: Final = "the first and last entry of each fragment is on each bookie that should have it; no shuffle"


def findings(tables: Tables) -> DataFrame:
    """BKC401 a bookie has no copy of an end, BKC405 its copy is damaged."""
    places = {"ledger_id": "ledger_id", "entry_id": "entry_id", "bookie_id": "bookie_id"}
    subject = "concat('entry ', entry_id, ' of ledger ', ledger_id)"
    evidence = {"last_entry_id": "entry_id", "entries": "1", "fragment": "first_entry_id"}
    return union(
        findings_of(
            tables.ends.where("fault = 'missing'"),
            "BKC401",
            subject=subject,
            message="concat(bookie_id, ' has no copy; its other entries were not looked at')",
            evidence=evidence,
            **places,
        ),
        findings_of(
            tables.ends.where("fault = 'damaged'"),
            "BKC405",
            subject=subject,
            message="'the digest does not fit'",
            evidence={"fragment": "first_entry_id"},
            **places,
        ),
    )
