"""What entries say of their ledger: the length grows by each payload, the last confirmed never falls.

Plan: `_summary.seen`, one row an entry, and one copy of each entry in whole ranges of ledgers that are not plain (see
`_blocks`) → joined with metadata (shuffle by ledger) → two windows over the ledger in order of entries, on the same
partitions. Sums have shown that plain ledgers have no such finding.

Told of what all copies agree in; where they differ, that is divergent-copies' to say. A last confirmed that falls
behind an entry whose own is its id - 1 proves nothing: replication of Java seals entries like that. An entry that is
off by itself is reported once, not again for the one after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._blocks import RANGE, Blocks, blocks, range_of
from bkinspect.audit.checks._rows import findings_of, union
from bkinspect.audit.checks._summary import parts, seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "growth"
CODES: Final = ("BKC431", "BKC432")
NEEDS: Final = ("ledgers", "entries", "index", "bookie_ledgers")
TEXT: Final = "lengths and last confirmed grow as entries do; shuffles entries by ledger"

_AGREED: Final = ("ledger_id", "entry_id", "length", "payload_size", "last_confirmed")
_ORDER: Final = "over (partition by ledger_id order by entry_id)"
_LOOK_BACK: Final = (
    ("before", f"lag(entry_id) {_ORDER}"),
    ("length_before", f"case when entry_id = 0 then 0 else lag(length) {_ORDER} end"),
    ("confirmed_before", f"lag(last_confirmed) {_ORDER}"),
    ("adjoins", "entry_id = 0 or coalesce(before = entry_id - 1, false)"),
    ("off", "coalesce(adjoins and length - length_before != payload_size, false)"),
    (
        "falls",
        "coalesce(adjoins and last_confirmed < confirmed_before and confirmed_before < entry_id - 2, false)",
    ),
    ("off_before", f"coalesce(adjoins and lag(off) {_ORDER}, false)"),
    (
        "length_without",
        f"case when entry_id = 1 then 0 else lag(length_before) {_ORDER} end + lag(payload_size) {_ORDER}",
    ),
    ("wrong", "off and not (off_before and coalesce(length = length_without + payload_size, false)) or falls"),
)


def findings(tables: Tables) -> DataFrame:
    """BKC431 by the entry, BKC432 by the ledger."""
    found = _entries(tables)
    for name, expression in _LOOK_BACK:
        found = found.withColumn(name, F.expr(expression))
    wrong = findings_of(
        found.where("wrong"),
        "BKC431",
        subject="concat('entry ', entry_id, ' of ledger ', ledger_id)",
        message="case when falls and not off then concat('last confirmed falls from ', confirmed_before, ' to ', "
        "last_confirmed) else concat('length ', length, ', expected ', length_before + payload_size) end",
        evidence={
            "length": "length",
            "expected_length": "length_before + payload_size",
            "last_confirmed": "last_confirmed",
            "last_confirmed_before": "confirmed_before",
        },
        ledger_id="ledger_id",
        entry_id="entry_id",
    )
    ends = found.where("entry_id = last_entry_id and not wrong and length != ledger_length").select(
        "ledger_id", "last_entry_id", "length", "ledger_length"
    )
    empty = tables.ledgers.where("state = 'CLOSED' and last_entry_id < 0 and length != 0").selectExpr(
        "ledger_id", "last_entry_id", "0L as length", "length as ledger_length"
    )
    ended = findings_of(
        ends.unionByName(empty),
        "BKC432",
        subject="concat('ledger ', ledger_id)",
        message="concat('length ', ledger_length, ' in metadata, ', length, ' by its last entry')",
        evidence={"length": "ledger_length", "length_of_last_entry": "length", "last_entry_id": "last_entry_id"},
        ledger_id="ledger_id",
    )
    return union(wrong, ended)


def _entries(tables: Tables) -> DataFrame:
    """One row an entry that its ledger counts and whose sound copies agree; none of a plain ledger."""
    agreed = seen(tables).where("length = length_most").select(*_AGREED)
    compared = blocks(tables)
    if compared is not None and compared.unproven:
        agreed = agreed.unionByName(_of_whole_ranges(tables, compared))
    known = tables.ledgers.where("damage is null").selectExpr(
        "ledger_id as known_id", "last_entry_id", "length as ledger_length"
    )
    joined = agreed.join(known, F.expr("ledger_id = known_id and entry_id <= coalesce(last_entry_id, entry_id)"))
    return joined.drop("known_id")


def _of_whole_ranges(tables: Tables, compared: Blocks) -> DataFrame:
    """One copy of each entry in the whole ranges of ledgers that are not plain: the first of its write set."""
    ranges = compared.whole.where("not plain").select(*RANGE, "fragment_index")
    owners = parts(tables).select("ledger_id", "fragment_index", "bookies", "ensemble_size")
    ranges = ranges.join(owners, ["ledger_id", "fragment_index"])
    copies = range_of(tables.entries).join(ranges, list(RANGE))
    return copies.where("bookie_id = bookies[cast(entry_id % ensemble_size as int)]").select(*_AGREED)
