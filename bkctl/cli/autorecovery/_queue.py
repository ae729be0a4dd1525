"""What the verbs on the queue share: opening it, and its items."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bkctl.cli.autorecovery._notes import lost_item
from bkctl.cli.render import moment
from bkctl.errors import BadBytes, Exit

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.cli.env import Env
    from bkctl.codec.recovery_notes import LostNote
    from bkctl.codec.underreplication import Marker
    from bkctl.meta.recovery_board import RecoveryBoard
    from bkctl.meta.underreplication import LockInfo, Underreplication

READ_BATCH: Final = 1_000
SHOWN_BYTES_MAX: Final = 200
"""Of a node that cannot be read."""


@asynccontextmanager
async def cluster_of(env: Env) -> AsyncIterator[ClusterAccess]:
    """The cluster, which has to be one: what is switched off below a root without a cluster is switched off nowhere.

    Raises:
        NotFound: there is no cluster at this root.
    """
    async with env.cluster() as cluster:
        await cluster.ledgers()
        yield cluster


def open_queue(cluster: ClusterAccess) -> Underreplication:
    """The cluster's under-replication tree."""
    from bkctl.meta.underreplication import Underreplication
    from bkctl.world import SystemClock

    return Underreplication(cluster.store, cluster.root, SystemClock())


def unreadable(env: Env, error: BadBytes, data: bytes) -> None:
    """One mark or lock of many is garbage: says so with its bytes, goes on, exit 1 at the end."""
    more = "…" if len(data) > SHOWN_BYTES_MAX else ""
    env.warn(f"{error.message}; it holds {data[:SHOWN_BYTES_MAX]!r}{more}")
    env.exit = Exit.FINDINGS


async def locks_of(env: Env, queue: Underreplication) -> list[LockInfo]:
    """All locks; of one that cannot be read, which is told, the owner is not known."""
    return await queue.locks(partial(unreadable, env))


async def items_of(env: Env, queue: Underreplication) -> AsyncIterator[list[dict[str, Any]]]:
    """Every marked ledger as an item, ascending, READ_BATCH at a time.

    One repaired meanwhile is left out; so is one whose mark cannot be read, which is told.
    """
    from bkctl.meta.recovery_board import RecoveryBoard

    board = RecoveryBoard(queue.store, queue.root)
    notes = _Notes(env, board, {lock.ledger_id: lock for lock in await locks_of(env, queue)}, await board.lost_ids())
    waiting: list[int] = []
    async for ledger_ids in queue.markers():
        waiting += ledger_ids
        while len(waiting) >= READ_BATCH:
            yield await _read(queue, waiting[:READ_BATCH], notes)
            del waiting[:READ_BATCH]
    if waiting:
        yield await _read(queue, waiting, notes)


@dataclass(frozen=True, slots=True)
class _Notes:
    """What is known of marked ledgers beside their markers; lost_ids are those that have a note on lost entries."""

    env: Env
    board: RecoveryBoard
    locks: dict[Any, LockInfo]
    lost_ids: set[int]


async def _read(queue: Underreplication, ledger_ids: list[int], notes: _Notes) -> list[dict[str, Any]]:
    from bkctl.codec.underreplication import decode_marker

    paths = [queue.marker_path(ledger_id) for ledger_id in ledger_ids]
    nodes = await queue.store.get_many(paths)
    lost = await notes.board.lost([ledger_id for ledger_id in ledger_ids if ledger_id in notes.lost_ids])
    items = []
    for ledger_id, path, node in zip(ledger_ids, paths, nodes, strict=True):
        if node is None:
            continue
        try:
            marker = decode_marker(node.data, source=path)
        except BadBytes as error:
            unreadable(notes.env, error, node.data)
            continue
        items.append(item_of(ledger_id, marker, notes.locks.get(ledger_id), lost.get(ledger_id)))
    return items


def item_of(ledger_id: int, marker: Marker, lock: LockInfo | None, lost: LostNote | None = None) -> dict[str, Any]:
    """One marked ledger."""
    holder = None if lock is None else {"owner": lock.holder, "ephemeral": bool(lock.session_id)}
    return {
        "ledger_id": ledger_id,
        "missing_bookies": list(marker.replicas),
        **moment("ctime", marker.ctime_ms),
        "lock": holder,
        "lost": None if lost is None else lost_item(lost),
    }
