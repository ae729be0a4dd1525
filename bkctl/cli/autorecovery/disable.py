"""`bkctl autorecovery disable`: switches auto recovery off."""

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
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept, and shown by `status`")] = "",
) -> dict[str, object]:
    """Switches auto recovery of the whole cluster off, until somebody switches it on.

    Nobody audits and no worker picks a ledger until `autorecovery enable`; ledgers in work are finished. Java's
    auditors and workers keep to it too. For a time only: `autorecovery pause`.
    """
    async with cluster_of(env) as cluster:
        switch = open_switch(cluster)
        state = await switch.state()
        if not state.enabled and state.until_ms is None:
            return {**switch_item(state), "changed": False}
        env.confirm(Plan("switch auto recovery of the cluster off"))
        changed = await switch.turn_off(whoever(env), reason)
        return {**switch_item(await switch.state()), "changed": changed}
