"""What the verbs on the queue share: opening it, and its items."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from bkctl.cli.render import moment

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.codec.underreplication import Marker
    from bkctl.meta.underreplication import LockInfo, Underreplication

READ_BATCH: Final = 1_000


def open_queue(cluster: ClusterAccess) -> Underreplication:
    """The cluster's under-replication tree."""
    from bkctl.meta.underreplication import Underreplication
    from bkctl.world import SystemClock

    return Underreplication(cluster.store, cluster.root, SystemClock())


async def items_of(queue: Underreplication) -> AsyncIterator[list[dict[str, Any]]]:
    """Every marked ledger as an item, ascending, READ_BATCH at a time; one repaired meanwhile is left out."""
    locks = {lock.ledger_id: lock for lock in await queue.locks()}
    waiting: list[int] = []
    async for ledger_ids in queue.markers():
        waiting += ledger_ids
        while len(waiting) >= READ_BATCH:
            yield await _read(queue, waiting[:READ_BATCH], locks)
            del waiting[:READ_BATCH]
    if waiting:
        yield await _read(queue, waiting, locks)


async def _read(queue: Underreplication, ledger_ids: list[int], locks: dict[Any, LockInfo]) -> list[dict[str, Any]]:
    from bkctl.codec.underreplication import decode_marker

    paths = [queue.marker_path(ledger_id) for ledger_id in ledger_ids]
    nodes = await queue.store.get_many(paths)
    return [
        item_of(ledger_id, decode_marker(node.data, source=path), locks.get(ledger_id))
        for ledger_id, path, node in zip(ledger_ids, paths, nodes, strict=True)
        if node is not None
    ]


def item_of(ledger_id: int, marker: Marker, lock: LockInfo | None) -> dict[str, Any]:
    """One marked ledger."""
    holder = None if lock is None else {"owner": lock.holder, "ephemeral": bool(lock.session_id)}
    return {
        "ledger_id": ledger_id,
        "missing_bookies": list(marker.replicas),
        **moment("ctime", marker.ctime_ms),
        "lock": holder,
    }
