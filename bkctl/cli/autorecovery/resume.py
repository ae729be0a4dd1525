"""`bkctl autorecovery resume`: ends a pause."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.autorecovery._notes import open_switch, switch_item, whoever
from bkctl.cli.autorecovery._queue import cluster_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.errors import Refused

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery resume", "bkctl autorecovery resume --reason 'done early' --yes"),
    columns=("enabled", "changed", "reason", "by"),
)


async def run(
    env: Env,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="reason to store; shown by `status`")] = "",
) -> dict[str, object]:
    """End a pause of auto recovery. Refused after `autorecovery disable`: use `enable`."""
    async with cluster_of(env) as cluster:
        switch = open_switch(cluster)
        state = await switch.state()
        if state.enabled:
            return {**switch_item(state), "changed": False}
        if state.until_ms is None:
            by = f" by {state.last.who}" if state.in_force and state.last is not None else ""
            raise Refused(f"auto recovery is not paused, it was disabled{by}", hint="bkctl autorecovery enable")
        env.confirm(Plan("end the pause of auto recovery"))
        changed = await switch.turn_on(whoever(env), reason)
        return {**switch_item(await switch.state()), "changed": changed}
