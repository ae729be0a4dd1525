"""`bkctl audit repair`: repairs the copies that a run found missing or damaged, or marks their ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.audit._runs import Run, SparkConf, run_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.errors import Exit

if TYPE_CHECKING:
    from bkrecovery.restore import RestorePlan

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl audit repair --dry-run",
        "bkctl audit repair monday --code BKC401 --yes",
        "bkctl audit repair monday --mark --yes -o json",
    ),
    columns=("action", "ledger_id", "bookie_id", "code", "copied", "error"),
    wide=("first_entry_id", "last_entry_id", "next"),
    name="ledger_id",
    timeout_s=None,
)
STEPS_SHOWN_MAX = 20


async def run(
    env: Env,
    name: Run = None,
    mark: Annotated[
        bool, typer.Option("--mark", help="mark the ledgers under-replicated instead of copying entries")
    ] = False,
    code: Annotated[list[str] | None, typer.Option("--code", metavar="CODE", help="only these codes")] = None,
    spark_conf: SparkConf = None,
) -> list[dict[str, object]]:
    """Repair copies that an audit found missing, damaged, different or unindexed.

    Each entry is read from the other bookies of its write set, its digest checked, and added to the bookie that should
    have it; ensembles do not change and no ledger is fenced. --mark marks the ledgers under-replicated instead,
    including those of lost bookies and with misplaced copies; replication workers check the ends of fragments and lost
    bookies only, so a gap in the middle needs copying. Audit again afterwards. Exit 1: some findings remain, with the
    next step for each.
    """
    from bkinspect.audit.results import find_run, opened
    from bkrecovery.restore import Restorer, plan_of

    with opened(find_run(run_of(env, name, spark_conf))) as results:
        plan = plan_of(results.findings(code or ()), mark=mark)
    left = [_left(one.code, one.ledger_id, one.subject, one.next) for one in plan.left]
    if left:
        env.exit = Exit.FINDINGS
    if not plan.holes and not plan.marks and not plan.lost_bookies:
        env.note("no finding can be repaired by copying")
        return left
    env.confirm(_words(plan))
    async with env.cluster() as cluster, cluster.bookkeeper() as bookkeeper:
        restorer = Restorer(bookkeeper)
        items: list[dict[str, object]] = []
        progress = env.progress("places", len(plan.holes))
        filled = await restorer.apply(plan, lambda _: progress.add(1))
        progress.end()
        for one in filled:
            hole = one.hole
            ends = {"first_entry_id": hole.first_entry_id, "last_entry_id": hole.last_entry_id, "next": None}
            place = {"action": "copy", "ledger_id": hole.ledger_id, "bookie_id": hole.bookie, "code": hole.code}
            items.append({**place, "copied": one.copied, "error": one.error, **ends})
            if one.error is not None:
                env.exit = Exit.FINDINGS
        if mark:
            from bkctl.cli.autorecovery._queue import open_queue

            marked = await restorer.mark(plan, open_queue(cluster))
            items += [_marked(ledger_id, missing) for ledger_id, missing in marked.items()]
    return items + left


def _words(plan: RestorePlan) -> Plan:
    holes, ledgers = len(plan.holes), len(plan.ledger_ids)
    steps = [
        f"ledger {hole.ledger_id}: entries from {hole.first_entry_id} to {_end(hole.last_entry_id)} to {hole.bookie}"
        for hole in plan.holes[:STEPS_SHOWN_MAX]
    ]
    if holes > STEPS_SHOWN_MAX:
        steps.append(f"and {holes - STEPS_SHOWN_MAX} more")
    steps += [f"mark ledger {ledger_id}" for ledger_id in list(plan.marks)[:STEPS_SHOWN_MAX]]
    if len(plan.marks) > STEPS_SHOWN_MAX:
        steps.append(f"and {len(plan.marks) - STEPS_SHOWN_MAX} more")
    steps += [f"mark every ledger that names {bookie}" for bookie in plan.lost_bookies]
    summary = f"restore copies in {holes} entry ranges of {ledgers} ledgers"
    if plan.marks or plan.lost_bookies:
        summary = f"mark {len(plan.marks)} ledgers, and those of {len(plan.lost_bookies)} lost bookies"
    return Plan(summary, tuple(steps))


def _end(last_entry_id: int | None) -> str:
    return "the end" if last_entry_id is None else str(last_entry_id)


def _marked(ledger_id: int, missing: tuple[str, ...]) -> dict[str, object]:
    place = {"action": "mark", "ledger_id": ledger_id, "bookie_id": ", ".join(missing) or None, "code": None}
    return {**place, "copied": None, "error": None, "first_entry_id": None, "last_entry_id": None, "next": None}


def _left(code: str, ledger_id: int | None, subject: str, step: str) -> dict[str, object]:
    place = {"action": "left", "ledger_id": ledger_id, "bookie_id": None, "code": code}
    return {**place, "copied": None, "error": subject, "first_entry_id": None, "last_entry_id": None, "next": step}
