"""`bkctl autorecovery enable`: switches auto recovery on."""

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
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept, and shown by `status`")] = "",
) -> dict[str, object]:
    """Switches auto recovery of the whole cluster on, whoever switched it off, and ends a pause.

    Auditors look for lost bookies again, workers pick ledgers again.
    """
    async with cluster_of(env) as cluster:
        switch = open_switch(cluster)
        state = await switch.state()
        if state.enabled:
            return {**switch_item(state), "changed": False}
        env.confirm(Plan("switch auto recovery of the cluster on"))
        changed = await switch.turn_on(whoever(env), reason)
        return {**switch_item(await switch.state()), "changed": changed}
