"""`bkctl autorecovery disable`: switches auto recovery off."""

from __future__ import annotations

from bkctl.cli.autorecovery._queue import open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery disable", "bkctl autorecovery disable --yes -o json"),
    columns=("enabled", "changed"),
)


async def run(env: Env) -> dict[str, object]:
    """Switches auto recovery of the whole cluster off.

    Nobody audits and no worker picks a ledger until `autorecovery enable`; ledgers in work are finished. Java's
    auditors and workers keep to it too.
    """
    async with env.cluster() as cluster:
        queue = open_queue(cluster)
        if await queue.enabled() is False:
            return {"enabled": False, "changed": False}
        env.confirm(Plan("switch auto recovery of the cluster off"))
        return {"enabled": False, "changed": await queue.disable()}
