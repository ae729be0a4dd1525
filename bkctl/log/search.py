"""Finds an entry by the time it was published, halving the log again and again, as Java's OpFindNewest does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger


async def first_published(log: ManagedLedger, ms: int) -> Position:
    """Returns the first entry published at or after ms; the next position if none was.

    Times of different producers may be out of order by a little; then the answer is one of the borders. Borders are
    kept as positions: what is trimmed meanwhile changes how many entries lie before them.
    """
    ledgers = log.ledgers
    low, high = ledgers.first, ledgers.next(ledgers.last)
    while (before := ledgers.index(low)) < (behind := ledgers.index(high)):
        middle = ledgers.at((before + behind) // 2)
        found = await log.lost.look(middle, high)
        if found is None or publish_time(found[1]) >= ms:
            high = middle
        else:
            low = ledgers.next(found[0])
    return ledgers.at_or_after(low)


def publish_time(entry: bytes) -> int:
    """When a producer sent an entry, in ms.

    Raises:
        Corrupt: it is no entry of Pulsar's.
    """
    return int(decode_metadata(entry).publish_time)
