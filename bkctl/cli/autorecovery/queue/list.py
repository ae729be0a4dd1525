"""`bkctl autorecovery queue list`: lists under-replicated ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from bkctl.cli.autorecovery._queue import cluster_of, items_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl autorecovery queue list",
        "bkctl autorecovery queue list --missing bookie3:3181 -o name | bkctl ledger show -",
        "bkctl autorecovery queue list --locked -o jsonl",
        "bkctl autorecovery queue list --lost -o wide",
    ),
    columns=("ledger_id", "missing_bookies", "ctime", "lock"),
    wide=("ctime_ms", "lost"),
    name="ledger_id",
)


async def run(
    env: Env,
    missing: Annotated[
        str | None, typer.Option("--missing", metavar="BOOKIE", help="only ledgers that lack copies on this bookie")
    ] = None,
    locked: Annotated[
        bool | None, typer.Option("--locked/--not-locked", help="only ledgers with, or without, a worker's lock")
    ] = None,
    lost: Annotated[
        bool | None, typer.Option("--lost/--not-lost", help="only ledgers with, or without, lost entries")
    ] = None,
) -> AsyncIterator[list[dict[str, object]]]:
    """List under-replicated ledgers by id.

    `lock` is the worker that holds the ledger: a worker keeps its lock also during the pause after a failure and the
    grace period of an open ledger. `lost` lists entries that bkctl's workers found on none of their bookies, with the
    bookies' replies and the time of the next attempt; after several failed attempts the ledger is not retried until
    `queue requeue`. An unreadable mark or lock causes a warning and exit 1; `queue purge` deletes such a mark.
    """
    async with cluster_of(env) as cluster:
        queue = open_queue(cluster)
        async for items in items_of(env, queue):
            yield [
                item
                for item in items
                if (missing is None or missing in item["missing_bookies"])
                and (locked is None or locked == (item["lock"] is not None))
                and (lost is None or lost == (item["lost"] is not None))
            ]
