"""Lists of ledgers with given numbers of entries."""

from __future__ import annotations

from bkctl.codec.managed_ledger import (
    LedgerInfo,
)
from bkctl.log.ledgers import LedgerList
from bkctl.model.topic import Position


def row(*entries: int, open_entries: int | None = None) -> LedgerList:
    """Ledgers 10, 20, … with so many entries; one more that is open, if open_entries is given."""
    ledgers = LedgerList(LedgerInfo(10 * (i + 1), count, count * 5, 1) for i, count in enumerate(entries))
    if open_entries is not None:
        ledgers.open(LedgerInfo(10 * (len(entries) + 1), timestamp_ms=0))
        ledgers.open_entries = open_entries
    return ledgers


def every(ledgers: LedgerList) -> list[Position]:
    return [Position(i, e) for i in ledgers.ids for e in range(ledgers.entries(i))]
