"""`bkctl autorecovery queue show`: shows under-replicated ledgers."""

from __future__ import annotations

from bkctl.cli.autorecovery._notes import open_board
from bkctl.cli.autorecovery._queue import cluster_of, item_of, locks_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers, is_one
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery queue show 5", "bkctl autorecovery queue show 5 6 -o json"),
    columns=("ledger_id", "missing_bookies", "ctime", "lock", "lost"),
    name="ledger_id",
)


async def run(env: Env, ledgers: Ledgers) -> object:
    """Show why ledgers are in the queue, their locks and their lost entries.

    Exit 4: a ledger is not marked.
    """
    items = []
    async with cluster_of(env) as cluster:
        queue = open_queue(cluster)
        locks = {lock.ledger_id: lock for lock in await locks_of(env, queue)}
        board = open_board(cluster)
        for ledger_id in env.ledger_ids(ledgers):
            found = await queue.marker(ledger_id)
            if found is None:
                raise NotFound(f"ledger {ledger_id} is not in the queue", ledger_id=ledger_id)
            items.append(
                item_of(ledger_id, found[0], locks.get(ledger_id), (await board.lost([ledger_id])).get(ledger_id))
            )
    return items[0] if is_one(ledgers) else items
