"""Ledgers that have been under-replicated for too long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bkctl.codec.underreplication import Marker, decode_marker
from bkctl.errors import BadBytes
from bkctl.meta.underreplication import Underreplication

READ_BATCH: Final = 1_000


def too_old(markers: Iterable[tuple[int, Marker]], grace_s: float, now_ms: int) -> list[tuple[int, float]]:
    """(ledger, seconds) of those marked longer than grace_s ago; marks without a time are ignored, as in Java."""
    aged = ((i, (now_ms - marker.ctime_ms) / 1000) for i, marker in markers if marker.ctime_ms is not None)
    return [(ledger_id, age_s) for ledger_id, age_s in aged if age_s > grace_s]


async def overdue(queue: Underreplication, grace_s: float, now_ms: int) -> list[tuple[int, float]]:
    """The same for the whole queue, ascending by ledger. A marker that cannot be read has no time."""
    found: list[tuple[int, float]] = []
    async for ledger_ids in queue.markers():
        for start in range(0, len(ledger_ids), READ_BATCH):
            part = ledger_ids[start : start + READ_BATCH]
            places = [queue.marker_path(ledger_id) for ledger_id in part]
            markers: list[tuple[int, Marker]] = []
            for ledger_id, path, node in zip(part, places, await queue.store.get_many(places), strict=True):
                try:
                    if node is not None:
                        markers.append((ledger_id, decode_marker(node.data, source=path)))
                except BadBytes:
                    continue
            found += too_old(markers, grace_s, now_ms)
    return found
