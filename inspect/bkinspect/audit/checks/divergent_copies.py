"""Copies of one entry that differ though the digest of each fits.

Plan: `_copies.faults`; all copies of an entry are compared in one row, without a further shuffle. Copies that differ
in their last confirmed only are the same: recovery and replication of Java seal entries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bkinspect.audit.checks._copies import COPIES, faults
from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "divergent-copies"
CODES: Final = ("BKC404", "BKC151")
NEEDS: Final = COPIES
TEXT: Final = "all copies of an entry say the same; the plan of missing-copies"


def findings(tables: Tables) -> DataFrame:
    """BKC404 by the bookie that a majority is against, or by none; BKC151 within one bookie."""
    rows = faults(tables)
    place = {"ledger_id": "ledger_id", "entry_id": "entry_id", "bookie_id": "bookie_id"}
    subject = "concat('entry ', entry_id, ' of ledger ', ledger_id)"
    divergent = findings_of(
        rows.where("kind in ('divergent', 'tied')"),
        "BKC404",
        subject=subject,
        message="case when bookie_id is null then concat('copies differ: ', concat_ws(', ', others)) "
        "else concat('the copy of ', bookie_id, ' differs from most others') end",
        evidence={"bookies": "others", "size": "size"},
        **place,
        file="file",
        offset="offset",
    )
    twofold = findings_of(
        rows.where("kind = 'twofold'"),
        "BKC151",
        subject=subject,
        message="'another record of the same entry on this bookie differs'",
        evidence={"size": "size"},
        **place,
        file="file",
        offset="offset",
    )
    return union(divergent, twofold)
