"""`bkctl bookie drain`: empties running bookies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.bookie._draining import check_live, claimed, drained, make_read_only
from bkctl.cli.bookie._items import Bookies, bookie_ids, check_known
from bkctl.cli.bookie._unloading import Unloading
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.jobs import (
    COLUMNS,
    JobArguments,
    JobMemory,
    job_session,
    remembered,
    who,
)
from bkctl.cli.ledger._items import some_failed
from bkctl.errors import BkctlError, Unavailable, UsageError
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkrecovery.drain import DrainClaim, DrainClaims
    from bkrecovery.job import JobOptions
    from bkrecovery.plan import MovePlan

    from bkctl.cli.access import ClusterAccess
    from bkctl.cli.jobs import Session

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl bookie drain 10.0.0.1:3181 --dry-run",
        "bkctl bookie drain 10.0.0.1:3181 10.0.0.2:3181 --rate 200MB --parallel 8 --yes",
        "bkctl bookie drain 10.0.0.1:3181 --unload-topics --yes",
        "bkctl bookie drain 10.0.0.1:3181 --cancel --yes",
    ),
    columns=COLUMNS,
    name="ledger_id",
    timeout_s=None,
)


async def run(
    env: Env,
    bookies: Bookies,
    fence_open: Annotated[
        bool, typer.Option("--fence-open", help="fence and close open ledgers instead of waiting for their writers")
    ] = False,
    unload_topics: Annotated[
        bool, typer.Option("--unload-topics", help="unload the topics whose open ledgers are on these bookies")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, help="time to wait for the writers of open ledgers; default: no limit"
        ),
    ] = None,
    leave_writable: Annotated[
        bool, typer.Option("--leave-writable", help="do not make the bookies read-only first")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="stop draining and make the bookies writable again")] = False,
    *,
    arguments: JobArguments,
) -> list[dict[str, object]]:
    """Move all ledgers off running bookies, so that they can be stopped.

    First the bookies are made read-only (bkctl's by the admin port, Java's by the HTTP server; not with
    --leave-writable), so that writers replace them at their next add. Closed fragments are copied, from the bookie
    itself if necessary. Open ledgers are watched until their writers have switched to another ledger. --unload-topics
    unloads the Pulsar topics among them: their clients reconnect, and the topic continues in a new ledger. --fence-open
    fences and closes open ledgers at once, which stops their writers permanently. At the end all metadata is read
    again. The bookies stay read-only until --cancel, which must be repeated for a bookie that was down (exit 6). Other
    commands see the drain: they copy nothing to the bookies, and a second drain is refused (exit 5). After ^C or a
    crash repeat the command to continue. Exit 1: some ledgers still name the bookies, with reasons.
    """
    ids = bookie_ids(env, bookies)
    if cancel:
        return await _cancel(env, ids, arguments)
    if unload_topics and fence_open:
        raise UsageError("--unload-topics and --fence-open exclude each other")
    async with (
        env.cluster() as cluster,
        job_session(env, cluster, "bookie drain", ids, arguments, _options(fence_open)) as session,
    ):
        await check_live(cluster, ids)
        plan = await session.plan()
        unloading = await Unloading.on(env, cluster) if unload_topics else None
        await _confirm(env, session, plan, unloading, () if leave_writable else (f"make {', '.join(ids)} read-only",))
        session.begin()
        async with claimed(env, cluster, ids) as claims:
            if not leave_writable:
                await make_read_only(env, cluster, ids)
            items = await drained(env, session, claims, plan, wait, unloading)
            session.finish(items)
            if all(item["error"] is None for item in items):
                await _note_done(env, claims, ids)
    return items


def _options(fence_open: bool) -> JobOptions:
    """How the drain handles open ledgers."""
    from bkrecovery.job import JobOptions
    from bkrecovery.plan import OpenLedgers

    return JobOptions(OpenLedgers.FENCE if fence_open else OpenLedgers.WAIT)


async def _confirm(
    env: Env, session: Session, plan: MovePlan, unloading: Unloading | None, first: tuple[str, ...]
) -> None:
    """Shows the plan, and returns once it is confirmed."""
    last = await unloading.steps(plan.waits) if unloading is not None else ()
    what = f"drain {', '.join(sorted(plan.bookies))}"
    env.confirm(session.words(what, plan, (*last, "read all metadata again"), first))


async def _note_done(env: Env, claims: DrainClaims, ids: list[BookieId]) -> None:
    """Records in the claims that no ledger names the bookies."""
    for bookie in ids:
        await claims.leave(bookie, done=True)
    env.note(f"no ledger names {', '.join(ids)} any more; `bkctl bookie decommission` removes them permanently")


async def _cancel(env: Env, ids: list[BookieId], arguments: JobMemory) -> list[dict[str, object]]:
    """Restores the mode of the bookies, and deletes the drain's claims."""
    from bkrecovery.drain import DrainClaims

    async with env.cluster() as cluster:
        claims = DrainClaims(cluster.store, cluster.root)
        file, _ = remembered(env, cluster, "bookie drain", ids, arguments)
        steps = []
        for bookie in ids:
            found = await claims.read(bookie)
            if found is None:
                await check_known(cluster, [bookie])
                steps.append(f"{bookie} is not being drained")
            else:
                back = (
                    "it was read-only before, and stays read-only" if found[0].was_read_only else "it is writable again"
                )
                if await _must_wait(cluster, bookie, found[0]):
                    back = "it is down: its claim stays; cancel again when the bookie is running"
                steps.append(f"stop the drain of {bookie} by {found[0].by}: {back}")
        env.confirm(Plan(f"cancel the drain of {', '.join(ids)}", tuple(steps)))
        rows: list[dict[str, object]] = []
        for bookie in ids:
            try:
                rows.append(await _cancel_one(env, cluster, claims, bookie))
            except BkctlError as error:
                if len(ids) == 1:
                    raise
                some_failed(env, error)
        if len(rows) == len(ids):
            file.remove()
    env.command = replace(env.command, columns=("bookie_id", "drained_by", "made_writable"), name="bookie_id")
    return rows


async def _cancel_one(env: Env, cluster: ClusterAccess, claims: DrainClaims, bookie: BookieId) -> dict[str, object]:
    """Restores the mode of one bookie. A claim that stays records that the drain is cancelled: copies may go to the
    bookie.

    Raises:
        Unavailable: it is down, or does not answer; its claim stays and records that the bookie must be made writable.
    """
    from bkrecovery.mode import set_mode

    async with claims.cancelling(bookie, who(env)) as was:
        if was is not None and await _must_wait(cluster, bookie, was):
            raise Unavailable(
                f"bookie {bookie} is down: its drain is cancelled, but it may restart read-only",
                hint=f"repeat `bkctl bookie drain {bookie} --cancel` when it is running",
                bookie_id=bookie,
            )
        writable = was is not None and not was.was_read_only and bookie in await cluster.bookies.read_only()
        if writable:
            await set_mode(cluster.bookies, bookie, read_only=False, who=who(env), why="")
    return {"bookie_id": bookie, "drained_by": was and was.by, "made_writable": writable}


async def _must_wait(cluster: ClusterAccess, bookie: BookieId, claim: DrainClaim) -> bool:
    """True if the drain made the bookie read-only, it belongs to the cluster and is down."""
    registered = await cluster.bookies.registered()
    here = bookie in registered.writable | registered.read_only
    return not claim.was_read_only and not here and bookie in await cluster.bookies.known()
