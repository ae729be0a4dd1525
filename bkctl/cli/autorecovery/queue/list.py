"""`bkctl autorecovery queue list`: the ledgers that lack copies."""

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
        str | None, typer.Option("--missing", metavar="BOOKIE", help="only ledgers that lost it")
    ] = None,
    locked: Annotated[
        bool | None, typer.Option("--locked/--not-locked", help="only ledgers that somebody works on, or nobody does")
    ] = None,
    lost: Annotated[
        bool | None, typer.Option("--lost/--not-lost", help="only ledgers with entries that no bookie has, or others")
    ] = None,
) -> AsyncIterator[list[dict[str, object]]]:
    """Lists the ledgers that were marked as under-replicated, in the order of their ids.

    `lock` says who works on a ledger now, or waits with it: a worker holds the lock also through the pauses after a
    failure and the grace period of an open ledger. `lost` tells of entries that every bookie which should have them
    does not have, as bkctl's workers found: which, what the bookies said, and when the next try is; after some tries
    there is none, until `queue requeue`. A mark or a lock that cannot be read is a warning, and exit 1; `queue purge`
    takes such a mark away.
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
