"""`bkctl autorecovery disable`: disables auto recovery."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.autorecovery._notes import open_switch, switch_item, whoever
from bkctl.cli.autorecovery._queue import cluster_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery disable", "bkctl autorecovery disable --reason 'new switches' --yes -o json"),
    columns=("enabled", "changed", "reason", "by"),
)


async def run(
    env: Env,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="reason to store; shown by `status`")] = "",
) -> dict[str, object]:
    """Disable auto recovery of the whole cluster until `autorecovery enable`.

    The auditor runs no checks and workers start no ledger; repairs in progress are completed. Java's auditors and
    workers respect it too. `autorecovery pause` disables auto recovery for a limited time.
    """
    async with cluster_of(env) as cluster:
        switch = open_switch(cluster)
        state = await switch.state()
        if not state.enabled and state.until_ms is None:
            return {**switch_item(state), "changed": False}
        env.confirm(Plan("disable auto recovery of the cluster"))
        changed = await switch.turn_off(whoever(env), reason)
        return {**switch_item(await switch.state()), "changed": changed}
