"""Finds an entry by the time it was published, halving the log again and again, as Java's OpFindNewest does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkdaemon.broker.ledger.managed_ledger import ManagedLedger

ENTRY_BYTES = 1


async def first_published(log: ManagedLedger, ms: int) -> Position:
    """The first entry that was published at or after ms; the next position to be written if there is none.

    Times of different producers may be out of order by a little; then the answer is one of the borders.
    """
    low, high = 0, log.ledgers.entries_total
    while low < high:
        middle = (low + high) // 2
        found = await log.read(log.ledgers.at(middle), 1, ENTRY_BYTES)
        if not found or publish_time(found[0][1]) >= ms:
            high = middle
        else:
            low = middle + 1
    return log.ledgers.at(low)


def publish_time(entry: bytes) -> int:
    """When a producer sent an entry, in ms.

    Raises:
        Corrupt: it is no entry of Pulsar's.
    """
    return int(decode_metadata(entry).publish_time)
