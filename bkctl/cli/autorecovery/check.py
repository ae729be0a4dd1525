"""`bkctl autorecovery check`: runs an auditor's check here and now."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.autorecovery._queue import open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.errors import Exit, UsageError

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl autorecovery check bookies", "bkctl autorecovery check all --yes -o json"),
    columns=("check", "marked", "ledgers_checked", "lost_bookies", "broken_ledgers", "seconds"),
    timeout_s=None,
)
CHECKS = ("bookies", "all")


async def run(
    env: Env, what: Annotated[str, typer.Argument(metavar="CHECK", help="bookies or all")]
) -> dict[str, object]:
    """Runs one of the auditor's checks in this process and waits for its end; exit 1 if ledgers were newly marked.

    `bookies` reads all metadata and marks every ledger that names a bookie which is not registered. `all` asks the
    bookies for the first and last entry of every part of every ledger, and marks those that lack copies; it leaves its
    time, so that auditors count from it.
    """
    if what not in CHECKS:
        raise UsageError(f"{what!r} is no check", hint=" or ".join(CHECKS))
    from bkrecovery.auditor import Auditor
    from bkrecovery.settings import RecoverySettings

    async with env.cluster() as cluster, cluster.bookkeeper() as client:
        env.confirm(Plan(f"check {what}: mark every ledger that lacks copies"))
        queue = open_queue(cluster)
        await queue.ensure()
        auditor = Auditor(client, queue, RecoverySettings.of(env.properties))
        await (auditor.check_bookies() if what == CHECKS[0] else auditor.check_ledgers())
    counts = auditor.counts
    if counts.marked:
        env.exit = Exit.FINDINGS
    return {
        "check": what,
        "marked": counts.marked,
        "ledgers_checked": counts.ledgers_checked,
        "lost_bookies": counts.last_lost,
        "broken_ledgers": counts.last_broken,
        "seconds": round(counts.last_bookie_check_s + counts.last_ledger_check_s, 3),
    }
