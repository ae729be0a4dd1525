"""`bkctl bookie recover`: gives every ledger of a bookie another one in its place."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.bookie._items import Bookies, bookie_ids
from bkctl.cli.bookie._moving import COLUMNS, moving, plan_words, work
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl bookie recover 10.0.0.1:3181 --dry-run",
        "bkctl bookie recover 10.0.0.1:3181 10.0.0.2:3181 --rate 50000000 --yes",
        "bkctl bookie recover 10.0.0.1:3181 --ledger 5 --skip-open --yes -o json",
    ),
    columns=COLUMNS,
    name="ledger_id",
    timeout_s=None,
)


async def run(
    env: Env,
    bookies: Bookies,
    ledger: Annotated[list[str] | None, typer.Option("--ledger", metavar="LEDGER", help="only these ledgers")] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="BYTES", min=1, help="copy so many bytes a second")
    ] = None,
    skip_open: Annotated[bool, typer.Option("--skip-open", help="leave ledgers that would have to be fenced")] = False,
) -> list[dict[str, object]]:
    """Copies what lost bookies stored from the other replicas to other bookies, and changes the ledgers' ensembles.

    Open ledgers that write to one of the bookies are recovered first, which stops their writers for good; --skip-open
    leaves them. Entries are checked by their digests. Works whether or not auto recovery is enabled. After ^C or a
    crash start it again: what is done is not done twice. Exit 1: some ledgers still name the bookies, with reasons.
    """
    ids = bookie_ids(env, bookies)
    only = list(env.ledger_ids(ledger)) if ledger else None
    async with env.cluster() as cluster, moving(env, cluster, ids, rate, skip_open) as job:
        plan = await job.plan(only)
        if not plan.moves and not plan.blocked:
            env.note(f"no ledger names {', '.join(ids)}")
            return []
        env.confirm(plan_words(f"recover {', '.join(ids)}", plan))
        items = await work(env, job, plan)
        left = set(await job.verify()) if only is None else set()
        known = {item["ledger_id"] for item in items if item["error"] is not None}
        for ledger_id in sorted(left - known):
            why = "it came to the bookie meanwhile"
            items.append({"ledger_id": ledger_id, "fragments": 0, "fenced": False, "error": why})
            env.exit = Exit.FINDINGS
    return items
