"""`bkctl bookie recover`: re-replicates the ledgers of lost bookies."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.bookie._items import Bookies, bookie_ids, check_known
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.jobs import (
    COLUMNS,
    JobArguments,
    blocked_item,
    job_session,
    missing_item,
    missing_ledgers,
)
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl bookie recover 10.0.0.1:3181 --dry-run",
        "bkctl bookie recover 10.0.0.1:3181 10.0.0.2:3181 --rate 50MB --yes",
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
    skip_open: Annotated[bool, typer.Option("--skip-open", help="skip ledgers that would have to be fenced")] = False,
    *,
    arguments: JobArguments,
) -> list[dict[str, object]]:
    """Copy the entries of lost bookies from other replicas to other bookies.

    The plan shows sources, targets, bytes and estimated time, and which ledgers cannot be recovered and why. The
    ledgers' metadata then names the new bookies. Open ledgers that write to one of the lost bookies are recovered
    first, which stops their writers permanently; --skip-open skips them. The digest of every entry is checked. Works
    whether or not auto recovery is enabled. After ^C or a crash repeat the command to continue. Exit 1: some ledgers
    still name the bookies, with reasons.
    """
    from bkrecovery.job import JobOptions
    from bkrecovery.plan import OpenLedgers

    ids = bookie_ids(env, bookies)
    only = list(env.ledger_ids(ledger)) if ledger else None
    options = JobOptions(OpenLedgers.LEAVE if skip_open else OpenLedgers.FENCE)
    subjects = [*ids, *map(str, only or ())]
    async with (
        env.cluster() as cluster,
        job_session(env, cluster, "bookie recover", ids, arguments, options, subjects=subjects) as session,
    ):
        missing = await missing_ledgers(session.job.bookkeeper.ledgers, only) if only else []
        plan = await session.plan(only)
        if not plan.moves and not plan.blocked:
            await check_known(cluster, ids)
            env.note(f"no ledger names {', '.join(ids)}" if only is None else f"they do not name {', '.join(ids)}")
            env.exit = Exit.FINDINGS if missing else env.exit
            return [missing_item(ledger_id) for ledger_id in missing]
        env.confirm(session.words(f"recover {', '.join(ids)}", plan))
        session.begin()
        items = await session.work(plan)
        left = set(await session.job.verify()) if only is None else set()
        known = {item["ledger_id"] for item in items if item["error"] is not None}
        items += [blocked_item(e, "it was placed on the bookie meanwhile") for e in sorted(left - known)]
        items += [missing_item(ledger_id) for ledger_id in missing]
        session.finish(items)
    return items
