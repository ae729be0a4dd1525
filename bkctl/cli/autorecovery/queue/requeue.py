"""`bkctl autorecovery queue requeue`: adds ledgers to the queue."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.autorecovery._notes import open_board
from bkctl.cli.autorecovery._queue import open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers
from bkctl.errors import Exit, NoSuchLedger
from bkctl.model.ids import parse_bookie_id

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl autorecovery queue requeue 5",
        "bkctl ledger list -o name | bkctl autorecovery queue requeue - --yes",
    ),
    columns=("ledger_id", "marked"),
    name="ledger_id",
)


async def run(
    env: Env,
    ledgers: Ledgers,
    missing: Annotated[
        list[str] | None, typer.Option("--missing", metavar="BOOKIE", help="bookie to record in the mark")
    ] = None,
) -> list[dict[str, object]]:
    """Mark ledgers as under-replicated, so that a worker checks and repairs them.

    The worker removes a ledger that has all its copies from the queue. `marked` is false if the ledger was marked
    already; this does not shorten a worker's pause after a failure, but a ledger with lost entries is retried at once.
    """
    bookies = [parse_bookie_id(bookie) for bookie in missing or ()]
    async with env.cluster() as cluster:
        found = await cluster.ledgers()
        wanted = list(env.ledger_ids(ledgers))
        records = [record async for record in found.read_many(wanted)]
        absent = sorted(set(wanted) - {record.ledger_id for record in records})
        if absent and not records:
            raise NoSuchLedger(f"not in the metadata store: ledger {', '.join(map(str, absent))}")
        for ledger_id in absent:
            env.warn(f"ledger {ledger_id} is not in the metadata store")
            env.exit = Exit.FINDINGS
        env.confirm(Plan(f"mark {len(records)} ledgers as under-replicated"))
        queue = open_queue(cluster)
        await queue.ensure()
        board = open_board(cluster)
        items: list[dict[str, object]] = []
        for record in records:
            await board.forget_lost(record.ledger_id)
            items.append({"ledger_id": record.ledger_id, "marked": await queue.mark(record.ledger_id, bookies)})
        return items
