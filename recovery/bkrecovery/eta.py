"""Estimates when the queue is empty: bytes to copy, divided by the current rate of workers.

The size of a marked ledger is estimated from metadata: the entries of each segment that the named bookies store, times
the ledger's average entry size. A ledger that is not closed, or is marked without a bookie, has an unknown size.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata


def bytes_to_copy(metadata: LedgerMetadata, missing: Collection[BookieId]) -> int | None:
    """Bytes of payload that the named bookies store of a ledger; None if unknown."""
    if not metadata.closed or not missing:
        return None
    count = metadata.last_entry_id + 1
    if count <= 0:
        return 0
    entries = 0.0
    for at, ensemble in enumerate(metadata.ensembles):
        more = at + 1 < len(metadata.ensembles)
        end = metadata.ensembles[at + 1].first_entry_id if more else count
        places = sum(bookie in missing for bookie in ensemble.bookies)
        share = metadata.write_quorum_size / len(ensemble.bookies)
        entries += max(end - ensemble.first_entry_id, 0) * share * places
    return round(metadata.length / count * entries)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds left, or None and the reason why they are unknown."""

    seconds: float | None
    reason: str


def estimate(
    ledgers: int, size_bytes: int, unknown: int, bytes_per_s: float, ledgers_per_s: float, *, enabled: bool
) -> Estimate:
    """Divides the remaining work by the rate. bytes_per_s is published by workers, ledgers_per_s was measured."""
    if not ledgers:
        return Estimate(0.0, "the queue is empty")
    if not enabled:
        return Estimate(None, "auto recovery is disabled")
    by_bytes = size_bytes / bytes_per_s if bytes_per_s > 0 and size_bytes else None
    if by_bytes is not None:
        known = ledgers - unknown
        if unknown and known:
            return Estimate(by_bytes * ledgers / known, "by bytes; ledgers of unknown size with the average size")
        if not unknown:
            return Estimate(by_bytes, "by bytes")
    if ledgers_per_s > 0:
        return Estimate(ledgers / ledgers_per_s, "by ledgers")
    return Estimate(None, "no worker is copying now")
