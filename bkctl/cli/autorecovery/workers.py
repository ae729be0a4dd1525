"""`bkctl autorecovery workers`: who repairs what."""

from __future__ import annotations

from bkctl.cli.autorecovery._queue import open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery workers", "bkctl autorecovery workers -o jsonl"),
    columns=("owner", "session_id", "count", "ledgers"),
    name="owner",
)


async def run(env: Env) -> list[dict[str, object]]:
    """Lists the holders of locks on under-replicated ledgers, by metadata session.

    The owner is what the holder wrote: a host name. Bookies that collect garbage take the same locks for moments; a
    worker keeps a lock through grace periods and pauses, so a ledger here is not always being copied.
    """
    async with env.cluster() as cluster:
        locks = await open_queue(cluster).locks()
    by_session: dict[tuple[int, str], list[int]] = {}
    for lock in locks:
        by_session.setdefault((lock.session_id, lock.holder or ""), []).append(lock.ledger_id)
    return [
        {"owner": owner or None, "session_id": session_id, "count": len(ledgers), "ledgers": ledgers}
        for (session_id, owner), ledgers in sorted(by_session.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
