"""`bkctl autorecovery queue purge`: removes ledgers from the queue."""

from __future__ import annotations

from bkctl.cli.autorecovery._notes import open_board
from bkctl.cli.autorecovery._queue import cluster_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery queue purge 5", "bkctl autorecovery queue purge 5 6 --yes"),
    columns=("ledger_id", "purged", "reason"),
    name="ledger_id",
)


async def run(env: Env, ledgers: Ledgers) -> list[dict[str, object]]:
    """Remove ledgers from the queue without repairing them.

    The next check marks those that still lack copies. Ledgers that a worker has locked, or that were marked again
    meanwhile, stay in the queue: exit 1.
    """
    async with cluster_of(env) as cluster:
        queue, board = open_queue(cluster), open_board(cluster)
        ids = list(env.ledger_ids(ledgers))
        env.confirm(Plan(f"remove {len(ids)} ledgers from the queue of under-replicated ledgers"))
        items: list[dict[str, object]] = []
        for ledger_id in ids:
            lock = await queue.lock(ledger_id, "bkctl autorecovery queue purge")
            reason: str | None = "it was marked again"
            if lock is None:
                marked = await queue.store.exists(queue.marker_path(ledger_id)) is not None
                reason = "a worker has locked it" if marked else "it is not in the queue"
            elif await queue.complete(lock):
                reason = None
                await board.forget_lost(ledger_id)
            if reason is not None:
                env.exit = Exit.FINDINGS
            items.append({"ledger_id": ledger_id, "purged": reason is None, "reason": reason})
        return items
