"""`bkctl bookie decommission`: takes a stopped bookie out of the cluster for good."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.bookie._items import bookie_ids
from bkctl.cli.bookie._moving import COLUMNS, moving, plan_words, work
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import Exit, NotFound, Refused

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl bookie decommission 10.0.0.1:3181 --dry-run", "bkctl bookie decommission 10.0.0.1:3181 --yes"),
    columns=COLUMNS,
    name="ledger_id",
    timeout_s=None,
)


async def run(
    env: Env,
    bookie: Annotated[str, typer.Argument(metavar="BOOKIE", help="bookie id; it must be stopped")],
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="BYTES", min=1, help="copy so many bytes a second")
    ] = None,
) -> list[dict[str, object]]:
    """Moves everything off a stopped bookie as `bookie recover` does, verifies it, and deletes the bookie's cookie.

    Refused while the bookie is registered (exit 3). The cookie stays where any ledger still names the bookie: then
    exit 1 with the ledgers and reasons, and the same command goes on from there.
    """
    (bookie_id,) = bookie_ids(env, [bookie])
    async with env.cluster() as cluster, moving(env, cluster, [bookie_id], rate, False) as job:
        registered = await cluster.bookies.registered()
        if bookie_id in registered.writable | registered.read_only:
            raise Refused(f"bookie {bookie_id} is running", hint="stop it first: it would be given new entries")
        plan = await job.plan()
        try:
            _, version = await cluster.bookies.cookie(bookie_id)
        except NotFound:
            if not plan.moves:
                raise
            version = None
        last = () if version is None else (f"delete the cookie of {bookie_id}",)
        env.confirm(plan_words(f"decommission {bookie_id}", plan, last))
        items = await work(env, job, plan)
        if await job.verify() or any(item["error"] is not None for item in items):
            env.exit = Exit.FINDINGS
            env.note(f"ledgers still name {bookie_id}, so its cookie stays")
        elif version is not None:
            await cluster.bookies.delete_cookie(bookie_id, version)
            env.note(f"{bookie_id} is out of the cluster")
    return items
