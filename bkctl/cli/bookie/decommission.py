"""`bkctl bookie decommission`: removes a bookie from the cluster permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.cli.bookie._draining import claimed, drained, make_read_only
from bkctl.cli.bookie._items import bookie_ids
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.jobs import (
    COLUMNS,
    JobArguments,
    Session,
    blocked_item,
    job_session,
)
from bkctl.errors import Exit, NotFound, Refused
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.meta.store import Version

COMMAND = Command(
    effect=Effect.DELETES,
    examples=(
        "bkctl bookie decommission 10.0.0.1:3181 --dry-run",
        "bkctl bookie decommission 10.0.0.1:3181 --yes",
        "bkctl bookie decommission 10.0.0.1:3181 --drain --rate 200MB --yes",
    ),
    columns=COLUMNS,
    name="ledger_id",
    timeout_s=None,
)
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="time to wait for writers, and for the bookie to stop; default: no limit",
    ),
]


async def run(
    env: Env,
    bookie: Annotated[str, typer.Argument(metavar="BOOKIE", help="bookie id")],
    drain: Annotated[
        bool, typer.Option("--drain", help="drain a running bookie, then wait until it is stopped")
    ] = False,
    fence_open: Annotated[
        bool, typer.Option("--fence-open", help="with --drain: fence open ledgers instead of waiting for their writers")
    ] = False,
    wait: Wait = None,
    *,
    arguments: JobArguments,
) -> list[dict[str, object]]:
    """Move all ledgers off a bookie, verify it, and delete the bookie's cookie.

    A stopped bookie is recovered from the other replicas, as by `bookie recover`. A running bookie is refused (exit 3)
    without --drain, which drains it as `bookie drain` does; stop it afterwards, and the command continues when its
    registration is gone. The cookie stays if any ledger still names the bookie: exit 1 with the ledgers and reasons;
    repeat the command to continue. It stays also (exit 1) if a stopped bookie runs again by then: it may have received
    new entries.
    """
    from bkrecovery.job import JobOptions
    from bkrecovery.plan import OpenLedgers

    (bookie_id,) = bookie_ids(env, [bookie])
    async with env.cluster() as cluster:
        registered = await cluster.bookies.registered()
        alive = bookie_id in registered.writable | registered.read_only
        if alive and not drain:
            raise Refused(
                f"bookie {bookie_id} is running", hint="stop it first, or use --drain to empty it while it runs"
            )
        options = JobOptions(OpenLedgers.WAIT if alive and not fence_open else OpenLedgers.FENCE)
        async with job_session(env, cluster, "bookie decommission", [bookie_id], arguments, options) as session:
            return await _decommission(env, cluster, session, bookie_id, alive, wait)


async def _decommission(
    env: Env, cluster: ClusterAccess, session: Session, bookie_id: BookieId, alive: bool, wait_s: float | None
) -> list[dict[str, Any]]:
    plan = await session.plan()
    version = await _cookie_version(cluster, bookie_id)
    if version is None and not plan.moves and not plan.blocked:
        raise NotFound(
            f"bookie {bookie_id} does not exist: it has no cookie and no ledger names it", bookie_id=bookie_id
        )
    first = (f"make {bookie_id} read-only",) if alive else ()
    last: tuple[str, ...] = ("wait until it is stopped",) if alive else ()
    if version is not None:
        last += (f"delete the cookie of {bookie_id}",)
    env.confirm(session.words(f"decommission {bookie_id}", plan, last, first))
    session.begin()
    if alive:
        async with claimed(env, cluster, [bookie_id]) as claims:
            await make_read_only(env, cluster, [bookie_id])
            items = await drained(env, session, claims, plan, wait_s)
            if all(item["error"] is None for item in items) and not await _stopped(env, cluster, bookie_id, wait_s):
                env.exit = Exit.FINDINGS
                env.note(f"{bookie_id} is empty but still running: stop it and repeat the command")
                session.record.save()
                return items
    else:
        items = await session.work(plan)
    left = set(await session.job.verify())
    known = {item["ledger_id"] for item in items if item["error"] is not None}
    items += [blocked_item(e, "it was placed on the bookie meanwhile") for e in sorted(left - known)]
    session.finish(items)
    if env.exit is not Exit.OK:
        env.note(f"ledgers still name {bookie_id}, so its cookie stays")
        return items
    registered = await cluster.bookies.registered()
    if bookie_id in registered.writable | registered.read_only:
        env.exit = Exit.FINDINGS
        env.note(f"{bookie_id} is running again, so its cookie stays: stop it and repeat the command")
        return items
    await _take_out(env, cluster, bookie_id)
    return items


async def _stopped(env: Env, cluster: ClusterAccess, bookie_id: BookieId, wait_s: float | None) -> bool:
    """Waits, by a watch, until the bookie's registration is gone."""
    from bkrecovery.drain import until_registered

    env.note(f"no ledger names {bookie_id} any more: stop it now")
    return await until_registered(
        cluster.bookies, lambda found: bookie_id not in found.writable | found.read_only, wait_s
    )


async def _take_out(env: Env, cluster: ClusterAccess, bookie_id: BookieId) -> None:
    from bkrecovery.drain import DrainClaims

    version = await _cookie_version(cluster, bookie_id)
    if version is not None:
        await cluster.bookies.delete_cookie(bookie_id, version)
    await DrainClaims(cluster.store, cluster.root).forget(bookie_id)
    env.note(f"{bookie_id} is decommissioned")


async def _cookie_version(cluster: ClusterAccess, bookie_id: BookieId) -> Version | None:
    try:
        _, version = await cluster.bookies.cookie(bookie_id)
    except NotFound:
        return None
    return version
