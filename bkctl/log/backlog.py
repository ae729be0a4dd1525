"""The size of a backlog: the bytes of all entries after a position, by the average entry size of its ledger.

Source: ManagedLedgerImpl.java (estimateBacklogFromPosition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.log.ledgers import LedgerList
    from bkctl.model.topic import Position


def bytes_behind(ledgers: LedgerList, mark_delete: Position) -> int:
    """Estimates the bytes of the entries after a mark-delete position."""
    ledger_id, entry_id = mark_delete
    size = sum(ledgers.size(other) for other in ledgers.ids if other >= ledger_id)
    entries = ledgers.entries(ledger_id)
    passed = min(entry_id + 1, entries)
    if passed <= 0:
        return size
    return size - (ledgers.size(ledger_id) if passed == entries else passed * (ledgers.size(ledger_id) // entries))
