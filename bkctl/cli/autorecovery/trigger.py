"""`bkctl autorecovery trigger`: has the auditor look at all bookies now."""

from __future__ import annotations

from bkctl.cli.autorecovery._queue import open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery trigger", "bkctl autorecovery trigger --yes"),
    columns=("auditor",),
)


async def run(env: Env) -> dict[str, object]:
    """Makes the auditor, ours or Java's, look for lost bookies now, whatever it waits for.

    It is told by writing lostBookieRecoveryDelay with the value it has. Refused where auto recovery is disabled.
    """
    async with env.cluster() as cluster:
        env.confirm(Plan("trigger an audit of all bookies"))
        return {"auditor": await open_queue(cluster).trigger_audit()}
