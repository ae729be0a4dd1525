"""How long the queue will take: what is to be copied, by the rate at which workers copy now.

What a marked ledger costs is estimated from metadata, no bookie is asked: the entries of each segment that the named
bookies store, with the ledger's average entry. A ledger that is not closed, and one marked without a bookie (it is to
be looked at), count as ledgers of unknown size.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata


def bytes_to_copy(metadata: LedgerMetadata, missing: Collection[BookieId]) -> int | None:
    """Bytes of payload that the named bookies store of a ledger; None where that is not known."""
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
    """What is left by what is done a second. bytes_per_s is what workers publish, ledgers_per_s what was watched."""
    if not ledgers:
        return Estimate(0.0, "the queue is empty")
    if not enabled:
        return Estimate(None, "auto recovery is disabled")
    by_bytes = size_bytes / bytes_per_s if bytes_per_s > 0 and size_bytes else None
    if by_bytes is not None:
        known = ledgers - unknown
        if unknown and known:
            return Estimate(by_bytes * ledgers / known, "by bytes; ledgers of unknown size count as the average")
        if not unknown:
            return Estimate(by_bytes, "by bytes")
    if ledgers_per_s > 0:
        return Estimate(ledgers / ledgers_per_s, "by ledgers")
    return Estimate(None, "no worker copies now")
