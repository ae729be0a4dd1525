"""What the verbs that take ledgers off bookies share: the client, the plan in words, the work with its progress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.progress import size_words
from bkctl.errors import Exit
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkrecovery.job import MoveJob, MovePlan

    from bkctl.cli.access import ClusterAccess

SHOWN_MAX: Final = 20
"""Ledgers named one by one in a plan."""
COLUMNS: Final = ("ledger_id", "fragments", "fenced", "error")


@asynccontextmanager
async def moving(
    env: Env, cluster: ClusterAccess, bookies: list[BookieId], rate: int | None, skip_open: bool
) -> AsyncIterator[MoveJob]:
    """A job on a client of its own, which speaks v2 for its batch reads."""
    from bkrecovery.job import MoveJob
    from bkrecovery.pace import ByteRate
    from bkrecovery.rereplicate import Replicator

    from bkctl.client.client import BookKeeper
    from bkctl.client.config import ClientConfig
    from bkctl.world import real_world

    config = replace(ClientConfig.of(env.properties), version=2)
    async with BookKeeper(await cluster.ledgers(), cluster.bookies, real_world(), config) as client:
        replicator = Replicator(client.context, ByteRate(rate or 0))
        yield MoveJob(client, frozenset(bookies), replicator, skip_open)


def plan_words(what: str, plan: MovePlan, last_steps: tuple[str, ...] = ()) -> Plan:
    """The plan of a job, for a person."""
    fences = plan.fences
    steps = [
        f"ledger {move.ledger_id}: "
        + ("fence and close it; " if move.fence else "")
        + f"{len(move.fragments)} fragments, about {move.entries} entries"
        for move in plan.moves[:SHOWN_MAX]
    ]
    if len(plan.moves) > SHOWN_MAX:
        steps.append(f"and {len(plan.moves) - SHOWN_MAX} ledgers more")
    steps += [f"ledger {ledger_id} is left: {reason}" for ledger_id, reason in plan.blocked[:SHOWN_MAX]]
    fencing = f", {len(fences)} of them open: their writers are stopped" if fences else ""
    size = f", {size_words(plan.size_bytes)} of closed ones" if plan.size_bytes else ""
    return Plan(
        f"{what}: copy what {len(plan.moves)} ledgers have there to other bookies{fencing}{size}",
        (*steps, *last_steps),
        subject=", ".join(sorted(plan.bookies)),
    )


async def work(env: Env, job: MoveJob, plan: MovePlan) -> list[dict[str, object]]:
    """Applies a plan; one item a ledger, with what stopped it. Exit 1 if any is left."""
    progress = env.progress("ledgers", len(plan.moves))
    written = 0

    def done(_: object) -> None:
        nonlocal written
        now = job.replicator.counts.bytes_written
        progress.add(1, now - written)
        written = now

    try:
        results = await job.apply(plan, done)
    finally:
        progress.end()
    items: list[dict[str, object]] = [
        {"ledger_id": r.ledger_id, "fragments": r.fragments, "fenced": r.fenced, "error": r.error} for r in results
    ]
    items += [{"ledger_id": e, "fragments": 0, "fenced": False, "error": reason} for e, reason in plan.blocked]
    if any(item["error"] is not None for item in items):
        env.exit = Exit.FINDINGS
    counts = job.replicator.counts
    env.note(f"copied {counts.entries_written} entries, {size_words(counts.bytes_written)}")
    return items
