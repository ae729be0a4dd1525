"""`bkctl autorecovery delay`: the delay before a lost bookie's ledgers are marked."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.autorecovery._queue import cluster_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl autorecovery delay",
        "bkctl autorecovery delay --set 600",
        "bkctl autorecovery delay --set 0 --yes",
    ),
    columns=("delay_s", "changed"),
)


async def run(
    env: Env,
    seconds: Annotated[
        int | None, typer.Option("--set", metavar="SECONDS", min=0, help="seconds to wait for a lost bookie")
    ] = None,
) -> dict[str, object]:
    """Show or set the delay in seconds before the ledgers of a lost bookie are marked.

    If two bookies are lost at the same time, their ledgers are marked without delay. 0 marks at once. null: no auditor
    has ever started.
    """
    async with cluster_of(env) as cluster:
        queue = open_queue(cluster)
        known = await queue.delay_s()
        if seconds is None or seconds == known:
            return {"delay_s": known, "changed": False}
        env.confirm(Plan(f"wait {seconds} s for a lost bookie (now: {known})"))
        await queue.set_delay(seconds)
        return {"delay_s": seconds, "changed": True}
