"""Shared by the verbs of the queue: opening it, and its items."""

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
    """The cluster, after checking that its root exists, so that a wrong root is reported instead of changed.

    Raises:
        NotFound: no cluster exists at this root.
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
    """Warns about an unreadable mark or lock, with its first bytes; the command continues and exits with 1."""
    more = "…" if len(data) > SHOWN_BYTES_MAX else ""
    env.warn(f"{error.message}; data={data[:SHOWN_BYTES_MAX]!r}{more}")
    env.exit = Exit.FINDINGS


async def locks_of(env: Env, queue: Underreplication) -> list[LockInfo]:
    """All locks; the owner of an unreadable lock is unknown, and a warning reports it."""
    return await queue.locks(partial(unreadable, env))


async def items_of(env: Env, queue: Underreplication) -> AsyncIterator[list[dict[str, Any]]]:
    """Every marked ledger as an item, ascending, READ_BATCH at a time.

    Skips ledgers repaired meanwhile. Skips an unreadable mark with a warning.
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
    """Details of marked ledgers; lost_ids are the ledgers with a record of lost entries."""

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
