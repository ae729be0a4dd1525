"""`bkctl autorecovery enable`: switches auto recovery on."""

from __future__ import annotations

from bkctl.cli.autorecovery._queue import open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery enable", "bkctl autorecovery enable --yes -o json"),
    columns=("enabled", "changed"),
)


async def run(env: Env) -> dict[str, object]:
    """Switches auto recovery of the whole cluster on.

    Auditors look for lost bookies again, workers pick ledgers again.
    """
    async with env.cluster() as cluster:
        queue = open_queue(cluster)
        if await queue.enabled() is True:
            return {"enabled": True, "changed": False}
        env.confirm(Plan("switch auto recovery of the cluster on"))
        return {"enabled": True, "changed": await queue.enable()}
