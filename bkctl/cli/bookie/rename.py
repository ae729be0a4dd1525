"""`bkctl bookie rename`: changes a bookie's id in all ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.jobs import Controlled, JobMemory, remembered, started_by
from bkctl.cli.render import rfc3339
from bkctl.errors import Exit, NotFound, Refused, UsageError
from bkctl.model.ids import BookieId, parse_bookie_id

if TYPE_CHECKING:
    from bkrecovery.job import JobRecord
    from bkrecovery.job_state import JobFile, JobState
    from bkrecovery.rename import Rename, RenamePlan

    from bkctl.cli.access import ClusterAccess

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl bookie rename --from 10.0.0.1:3181 --to bk1.example.org:3181 --dry-run",
        "bkctl bookie rename --from 10.0.0.1:3181 --to bk1.example.org:3181 --rate 500 --move-cookie --yes",
    ),
    columns=("ledger_id", "segments", "error"),
    name="ledger_id",
    timeout_s=None,
)
SHOWN_MAX = 20
FINISHED = "finished_ms"
"""Key in a job's state: the time when all ledgers were renamed."""


async def run(
    env: Env,
    old: Annotated[str, typer.Option("--from", metavar="OLD", help="the current id")],
    new: Annotated[str, typer.Option("--to", metavar="NEW", help="the new id of the same bookie")],
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="LEDGERS", min=0.001, help="limit in ledgers per second")
    ] = None,
    open_too: Annotated[
        bool, typer.Option("--open-too", help="include open ledgers that write to OLD: a running writer loses them")
    ] = False,
    while_registered: Annotated[
        bool, typer.Option("--while-registered", help="rename although a bookie is registered as OLD")
    ] = False,
    move_cookie: Annotated[
        bool, typer.Option("--move-cookie", help="move OLD's cookie in the metadata store to NEW")
    ] = False,
    *,
    arguments: JobMemory,
) -> list[dict[str, Any]]:
    """Change a bookie's id in the metadata of all ledgers.

    For a bookie whose address or bookieId has changed. No entry is moved: NEW must be the same bookie, with the same
    data. Each ledger is changed by one compare-and-set. Refused (exit 3) while OLD is registered; exit 4 if neither a
    ledger nor a cookie names it. Skipped, with reasons (exit 1): ledgers that name both NEW and OLD, and open ledgers
    that write to OLD, whose writer would lose them. The cookie in the metadata store is moved with --move-cookie; those
    in the bookie's directories (current/VERSION: the line bookieHost) must be changed on its machine before it starts
    as NEW. After ^C or a crash the same command continues after the last renamed ledger.
    """
    from bkrecovery.job import JobRecord
    from bkrecovery.rename import Rename

    before, after = parse_bookie_id(old), parse_bookie_id(new)
    if before == after:
        raise UsageError("--from and --to are the same id")
    async with env.cluster() as cluster:
        await _check(cluster, before, while_registered)
        file, found = remembered(env, cluster, "bookie rename", [before, after], arguments)
        record = JobRecord(found, file)
        rename = Rename(
            await cluster.ledgers(), before, after, rate=rate or 0.0, open_too=open_too,
            max_errors=arguments.max_errors, record=record,
        )  # fmt: skip
        if found.cursor is not None:
            env.note(
                f"resuming after ledger {found.cursor}, {found.done} done ({file.path}; --restart starts from scratch)"
            )
        plan = await rename.plan(found.cursor)
        if found.cursor is None and not plan.ledgers and not plan.blocked:
            await _check_known(env, cluster, before, found)
        found.note.pop(FINISHED, None)
        env.confirm(_words(plan, before, after, rate, move_cookie))
        file.acquire()
        found.note |= started_by(env, rate or 0.0, None)
        try:
            items = await _work(env, rename, plan, record, file)
            await _finish(env, cluster, items, before, after, move_cookie, record)
        finally:
            file.close()
    return items


async def _check(cluster: ClusterAccess, old: BookieId, while_registered: bool) -> None:
    registered = await cluster.bookies.registered()
    if old in registered.writable | registered.read_only and not while_registered:
        raise Refused(
            f"a bookie is registered as {old}: renamed ledgers would become unreadable",
            hint="stop it, change its id and its cookies, rename, start it; --while-registered overrides",
        )


async def _check_known(env: Env, cluster: ClusterAccess, old: BookieId, state: JobState) -> None:
    """Checks an id that no ledger names: it must be a bookie's id, or this job must have completed before.

    Raises:
        NotFound: neither is the case.
    """
    finished_ms = state.note.get(FINISHED)
    if finished_ms is not None:
        env.note(f"already renamed at {rfc3339(int(finished_ms))}: no ledger names {old} any more")
    elif old not in await cluster.bookies.known():
        raise NotFound(
            f"bookie {old} does not exist: no ledger names it, and it has no cookie",
            hint="bkctl bookie list; bkctl ledger list -o wide",
            bookie_id=old,
        )


def _words(plan: RenamePlan, old: BookieId, new: BookieId, rate: float | None, move_cookie: bool) -> Plan:
    steps = [f"change the metadata of ledger {e}" for e in plan.ledgers[:SHOWN_MAX]]
    if len(plan.ledgers) > SHOWN_MAX:
        steps.append(f"and of {len(plan.ledgers) - SHOWN_MAX} more ledgers")
    if plan.open_ledgers:
        steps.append(f"{plan.open_ledgers} of them are open: a writer that is still running loses its ledger")
    if rate:
        steps.append(f"{rate:g} ledgers a second: about {len(plan.ledgers) / rate:.0f} s")
    steps += [f"ledger {e} is skipped: {reason}" for e, reason in plan.blocked[:SHOWN_MAX]]
    if len(plan.blocked) > SHOWN_MAX:
        steps.append(f"and {len(plan.blocked) - SHOWN_MAX} more ledgers are skipped")
    if move_cookie:
        steps.append(f"the cookie of {old} in the metadata store becomes that of {new}")
    else:
        steps.append(f"the cookie of {old} stays as it is (--move-cookie)")
    steps.append(
        f"manual step: set bookieHost in current/VERSION of the bookie's directories to {new} before it starts"
    )
    return Plan(f"rename {old} to {new} in {len(plan.ledgers)} ledgers", tuple(steps), subject=old)


async def _work(env: Env, rename: Rename, plan: RenamePlan, record: JobRecord, file: JobFile) -> list[dict[str, Any]]:
    progress = env.progress("ledgers", len(plan.ledgers))
    record.begin(plan.ledgers)
    try:
        with Controlled(env, file, record, rename.set_rate, None):
            results = await rename.apply(plan, lambda _: progress.add(1))
    except BaseException:
        env.note("stopped; the same command continues from here")
        raise
    finally:
        progress.end()
        record.save()
    items = [{"ledger_id": r.ledger_id, "segments": r.fragments, "error": r.error} for r in results]
    tried = {r.ledger_id for r in results}
    items += [
        {"ledger_id": e, "segments": 0, "error": "not tried: too many ledgers failed"}
        for e in plan.ledgers
        if e not in tried
    ]
    return items + [{"ledger_id": e, "segments": 0, "error": reason} for e, reason in plan.blocked]


async def _finish(
    env: Env,
    cluster: ClusterAccess,
    items: list[dict[str, Any]],
    old: BookieId,
    new: BookieId,
    move_cookie: bool,
    record: JobRecord,
) -> None:
    """Reads all metadata again; the cookie goes last."""
    from bkrecovery.rename import Rename
    from bkrecovery.rename import move_cookie as move

    from bkctl.world import real_world

    known = {item["ledger_id"] for item in items if item["error"] is not None}
    left = await Rename(await cluster.ledgers(), old, new).plan()
    failed_before = record.state.failed  # Failed in the interrupted run; this run continued after them.
    reasons = {e: failed_before.get(e, "the old id was added meanwhile") for e in left.ledgers}
    reasons |= dict(left.blocked)
    items += [{"ledger_id": e, "segments": 0, "error": reasons[e]} for e in sorted(set(reasons) - known)]
    failed = [item for item in items if item["error"] is not None]
    record.state.cursor = None  # Failed ledgers may be anywhere: the next run scans all.
    record.save()
    env.note(f"{len(items) - len(failed)} ledgers renamed, {len(failed)} not")
    if failed:
        env.exit = Exit.FINDINGS
    else:  # Kept, so that a repeated command reports success.
        record.state.note[FINISHED], record.state.left = real_world().clock.now_ms(), None
        record.save()
    if move_cookie:
        if failed:
            env.note(f"ledgers still name {old}, so its cookie stays")
            return
        try:
            moved = await move(cluster.bookies, old, new)
        except NotFound:
            env.warn(f"neither {old} nor {new} has a cookie")
            return
        env.note(f"the cookie of {old} is that of {new} now" if moved else f"{new} has its cookie already")
