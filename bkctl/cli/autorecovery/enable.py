"""`bkctl autorecovery enable`: enables auto recovery."""

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
    examples=("bkctl autorecovery enable", "bkctl autorecovery enable --reason 'all is well' --yes -o json"),
    columns=("enabled", "changed", "reason", "by"),
)


async def run(
    env: Env,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="reason to store; shown by `status`")] = "",
) -> dict[str, object]:
    """Enable auto recovery of the whole cluster, and end a pause.

    It does not matter which client disabled it. The auditor resumes its checks, workers resume repairs.
    """
    async with cluster_of(env) as cluster:
        switch = open_switch(cluster)
        state = await switch.state()
        if state.enabled:
            return {**switch_item(state), "changed": False}
        env.confirm(Plan("enable auto recovery of the cluster"))
        changed = await switch.turn_on(whoever(env), reason)
        return {**switch_item(await switch.state()), "changed": changed}
