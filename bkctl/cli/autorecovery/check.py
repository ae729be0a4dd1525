"""`bkctl autorecovery check`: runs an auditor's check, or shows how the last one ended."""

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
    "bookies": "mark every ledger that names a bookie which is not registered",
    "all": "mark every ledger that lacks copies",
    "placement": "mark ledgers that lie on too few racks, where their repair is enabled",
    "replicas": "ask every bookie for the entries it has; nothing is marked",
}


async def run(
    env: Env,
    what: Annotated[str | None, typer.Argument(metavar="CHECK", help="bookies, all, placement or replicas")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="by the running auditor, which must be one of bkctl's")] = False,
    last: Annotated[bool, typer.Option("--last", help="runs nothing: shows how the last run ended")] = False,
) -> object:
    """Runs one of the auditor's checks and waits for its end; exit 1 if ledgers were marked, or anything was found.

    `bookies` reads all metadata and marks every ledger that names a bookie which is not registered. `all` asks the
    bookies for the first and last entry of every part of every ledger, and marks those that lack copies. `placement`
    finds closed ledgers on too few racks; it marks them where repairedPlacementPolicyNotAdheringBookieEnabled says so.
    `replicas` asks for lists of all entries and only reports. The last three leave their time, from which auditors
    count. The check runs in this process, with the settings of -c; with --wait in the running auditor, with its own.
    The result is kept: --last shows it, without CHECK that of all four.
    """
    async with cluster_of(env) as cluster:
        board = open_board(cluster)
        if last:
            return await _last(board, what)
        if what is None:
            raise UsageError("no check is named", hint=", ".join(PLANS))
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
    """The check in this process."""
    from bkrecovery.auditor import Auditor
    from bkrecovery.settings import RecoverySettings

    from bkctl.cli.autorecovery._notes import whoever

    await queue.ensure()
    auditor = Auditor(client, queue, RecoverySettings.of(env.properties), f"{whoever(env)}, by hand")
    return await auditor.run_check(check)


async def _last(board: RecoveryBoard, what: str | None) -> object:
    """The results that are kept."""
    from bkctl.codec.recovery_notes import CheckName

    wanted = [parse_check(what)] if what is not None else list(CheckName)
    found = [result for result in [await board.result(check) for check in wanted] if result is not None]
    if not found and what is not None:
        raise NotFound(f"no run of the check {what} is known")
    items = [result_item(result) for result in found]
    return items if what is None else items[0]
