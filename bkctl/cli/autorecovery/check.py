"""`bkctl autorecovery check`: runs a check of the auditor, or shows its last result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.autorecovery._notes import open_board, parse_check, result_item
from bkctl.cli.autorecovery._queue import cluster_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.errors import Exit, NotFound, Refused, Unavailable, UsageError

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.codec.recovery_notes import CheckName, CheckResult
    from bkctl.meta.recovery_board import RecoveryBoard
    from bkctl.meta.underreplication import Underreplication

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl autorecovery check bookies",
        "bkctl autorecovery check all --yes -o json",
        "bkctl autorecovery check placement --wait --yes",
        "bkctl autorecovery check --last",
    ),
    columns=("check", "ended", "seconds", "ledgers_checked", "marked", "findings_count", "error"),
    wide=("by", "figures", "lost_bookies", "broken_ledgers", "findings"),
    timeout_s=None,
)
PLANS = {
    "bookies": "mark every ledger that has a replica on an unregistered bookie",
    "all": "mark every ledger that lacks copies",
    "placement": "mark ledgers whose replicas are on too few racks, if their repair is enabled",
    "replicas": "compare the entries of every bookie with the metadata; marks nothing",
}


async def run(
    env: Env,
    what: Annotated[str | None, typer.Argument(metavar="CHECK", help="bookies, all, placement or replicas")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="run it in the running auditor, which must be a bkctl process")
    ] = False,
    last: Annotated[bool, typer.Option("--last", help="show the result of the last run; run nothing")] = False,
) -> object:
    """Run a check of the auditor. Exit 1: ledgers were marked, or problems were found.

    `bookies` reads all metadata and marks every ledger that has a replica on an unregistered bookie. `all` reads the
    first and last entry of every fragment from the bookies, and marks ledgers that lack copies. `placement` finds
    closed ledgers on too few racks; it marks them if repairedPlacementPolicyNotAdheringBookieEnabled is set. `replicas`
    compares the entry lists of all bookies and only reports. The last three store the time of the run, from which
    auditors schedule the next one. The check runs in this process, with the settings of -c; with --wait it runs in the
    running auditor, with the auditor's settings. The result is stored: --last shows it, or without CHECK the results of
    all four.
    """
    async with cluster_of(env) as cluster:
        board = open_board(cluster)
        if last:
            return await _last(board, what)
        if what is None:
            raise UsageError("missing argument CHECK", hint=", ".join(PLANS))
        check = parse_check(what)
        queue = open_queue(cluster)
        if wait:
            from bkctl.cli.autorecovery._request import ask, check_can_ask, wait_for

            env.confirm(Plan(f"check {what}, by the auditor: {PLANS[what]}"))
            await check_can_ask(queue, board)
            result = await wait_for(board, check, await ask(env, board, check))
        else:
            if not await queue.enabled():
                raise Refused("auto recovery is disabled", hint="bkctl autorecovery enable")
            env.confirm(Plan(f"check {what}: {PLANS[what]}"))
            async with cluster.bookkeeper() as client:
                result = await _here(env, client, queue, check)
    if result.error is not None:
        raise Unavailable(f"the check {what} failed: {result.error}", **result_item(result))
    if result.figures.get("marked") or result.findings_count:
        env.exit = Exit.FINDINGS
    return result_item(result)


async def _here(env: Env, client: BookKeeper, queue: Underreplication, check: CheckName) -> CheckResult:
    """Runs the check in this process."""
    from bkrecovery.auditor import Auditor
    from bkrecovery.settings import RecoverySettings

    from bkctl.cli.autorecovery._notes import whoever

    await queue.ensure()
    auditor = Auditor(client, queue, RecoverySettings.of(env.properties), f"{whoever(env)}, manual")
    return await auditor.run_check(check)


async def _last(board: RecoveryBoard, what: str | None) -> object:
    """The stored results."""
    from bkctl.codec.recovery_notes import CheckName

    wanted = [parse_check(what)] if what is not None else list(CheckName)
    found = [result for result in [await board.result(check) for check in wanted] if result is not None]
    if not found and what is not None:
        raise NotFound(f"no result of check {what} is stored")
    items = [result_item(result) for result in found]
    return items if what is None else items[0]
