"""`bkctl autorecovery workers`: lists replication workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.cli.autorecovery._notes import open_board
from bkctl.cli.autorecovery._queue import cluster_of, locks_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment

if TYPE_CHECKING:
    from bkctl.codec.recovery_notes import WorkerNote

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery workers", "bkctl autorecovery workers -o jsonl"),
    columns=("owner", "worker", "mb_per_s", "count", "ledgers", "since"),
    wide=("session_id", "bytes_copied", "repaired", "failed", "states"),
    name="owner",
)
MB = 1_000_000


async def run(env: Env) -> list[dict[str, object]]:
    """List replication workers and the ledgers they have locked.

    One row per metadata session. bkctl's workers report their state, idle ones too: `mb_per_s` is the rate of the last
    half minute, `since` the start of the oldest copy in progress, `states` why each lock is held (copying; grace: the
    grace period of an open ledger; pause: after a failure). Of Java's workers only the locks are known: the owner is a
    host name, the other fields are null. Bookies that collect garbage hold the same locks for short times.
    """
    async with cluster_of(env) as cluster:
        locks = await locks_of(env, open_queue(cluster))
        notes = await open_board(cluster).workers()
    by_session: dict[tuple[int, str], list[int]] = {}
    for lock in locks:
        by_session.setdefault((lock.session_id, lock.holder or ""), []).append(lock.ledger_id)
    told = {session_id for session_id, _ in by_session}
    by_session |= {(session_id, note.host): [] for session_id, note in notes.items() if session_id not in told}
    return [
        {
            "owner": owner or None,
            "session_id": session_id,
            "count": len(ledgers),
            "ledgers": ledgers,
            **_told(notes.get(session_id)),
        }
        for (session_id, owner), ledgers in sorted(by_session.items(), key=lambda item: (item[0][1], item[0][0]))
    ]


def _told(note: WorkerNote | None) -> dict[str, Any]:
    """The state that a worker reports."""
    if note is None:
        nulls = ("worker", "mb_per_s", "bytes_per_s", "bytes_copied", "repaired", "failed", "states")
        return {**dict.fromkeys(nulls), **moment("since", None)}
    copying = [ledger.since_ms for ledger in note.ledgers if ledger.state == "copying"]
    return {
        "worker": note.worker,
        "mb_per_s": round(note.bytes_per_s / MB, 2),
        "bytes_per_s": note.bytes_per_s,
        "bytes_copied": note.bytes_copied,
        "repaired": note.ledgers_repaired,
        "failed": note.ledgers_failed,
        "states": [
            {"ledger_id": ledger.ledger_id, "state": ledger.state, **moment("since", ledger.since_ms)}
            for ledger in note.ledgers
        ],
        **moment("since", min(copying, default=None)),
    }
