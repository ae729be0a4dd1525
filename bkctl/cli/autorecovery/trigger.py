"""`bkctl autorecovery trigger`: requests a check from the auditor."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.autorecovery._notes import open_board, parse_check
from bkctl.cli.autorecovery._queue import cluster_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery trigger", "bkctl autorecovery trigger --check placement --yes"),
    columns=("auditor", "check", "request"),
)


async def run(
    env: Env,
    check: Annotated[
        str, typer.Option("--check", metavar="CHECK", help="bookies, all, placement or replicas")
    ] = "bookies",
) -> dict[str, object]:
    """Request a check from the running auditor, without waiting for the result.

    `bookies`, the default, works with Java's auditors too: it rewrites lostBookieRecoveryDelay with its current value,
    which notifies the auditor. Only bkctl's auditors run the other checks on request; with a Java auditor they are
    refused. `autorecovery check --last` shows the result. Refused where auto recovery is disabled.
    """
    wanted = parse_check(check)
    async with cluster_of(env) as cluster:
        queue, board = open_queue(cluster), open_board(cluster)
        env.confirm(Plan(f"trigger the check {check}"))
        if check == "bookies":
            return {"auditor": await queue.trigger_audit(), "check": check, "request": None}
        from bkctl.cli.autorecovery._request import ask, check_can_ask
        from bkctl.meta.election import Election

        await check_can_ask(queue, board)
        auditor = await Election(cluster.store, cluster.root).auditor()
        return {"auditor": auditor, "check": check, "request": await ask(env, board, wanted)}
