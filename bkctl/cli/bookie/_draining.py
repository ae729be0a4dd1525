"""Shared by `drain` and `decommission`: claims, the mode of bookies, the drain itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bkctl.cli.env import Env
from bkctl.cli.jobs import Session, blocked_item, result_item, who
from bkctl.errors import Conflict, NotFound, Unavailable
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkrecovery.drain import DrainClaims
    from bkrecovery.plan import MovePlan

    from bkctl.cli.access import ClusterAccess
    from bkctl.cli.bookie._unloading import Unloading

MODE_WAIT_S = 60.0
"""How long a bookie may take to show in its registration that it is read-only."""


async def check_live(cluster: ClusterAccess, bookies: Sequence[BookieId]) -> None:
    """Checks that all bookies are registered.

    Raises:
        NotFound: the cluster does not know one. Unavailable: one is down.
    """
    registered = await cluster.bookies.registered()
    known = await cluster.bookies.known()
    for bookie in bookies:
        if bookie in registered.writable | registered.read_only:
            continue
        if bookie not in known:
            raise NotFound(f"bookie {bookie} does not exist", hint="bkctl bookie list", bookie_id=bookie)
        raise Unavailable(
            f"bookie {bookie} is down: it cannot be drained",
            hint=f"bkctl bookie recover {bookie}, or decommission, which recovers it",
            bookie_id=bookie,
        )


@asynccontextmanager
async def claimed(env: Env, cluster: ClusterAccess, bookies: Sequence[BookieId]) -> AsyncIterator[DrainClaims]:
    """Locks the claims on these bookies for a block; a claim exists until its drain is cancelled.

    Raises:
        Conflict: another process drains one of them.
    """
    import asyncio

    from bkrecovery.drain import DrainClaim, DrainClaims
    from bkrecovery.mode import NoWay

    from bkctl.world import real_world

    claims = DrainClaims(cluster.store, cluster.root)
    registered = await cluster.bookies.registered()
    held: list[BookieId] = []
    fresh: list[BookieId] = []
    begun = False
    try:
        for bookie in bookies:
            new = DrainClaim(who(env), real_world().clock.now_ms(), bookie in registered.read_only)
            found = await claims.take(bookie, new)
            held.append(bookie)
            if found.since_ms != new.since_ms:
                env.note(f"resuming the drain of {bookie}")
            else:
                fresh.append(bookie)
        begun = True
        yield claims
    except BaseException as e:
        if isinstance(e, NoWay) or not begun:  # They are unchanged: a cancel would have no effect.
            for bookie in fresh:
                await claims.forget(bookie)
        raise
    finally:
        for bookie in held:
            await asyncio.shield(claims.leave(bookie, done=False))


async def make_read_only(env: Env, cluster: ClusterAccess, bookies: Sequence[BookieId]) -> None:
    """Makes the bookies read-only, and waits until their registrations show it.

    Raises:
        Refused: a bookie has no reachable admin interface (NoWay), or refuses. Unavailable: it does not change its
            mode.
    """
    from bkrecovery.drain import until_registered
    from bkrecovery.mode import set_mode

    for bookie in bookies:
        if bookie in await cluster.bookies.read_only():
            continue
        way = await set_mode(cluster.bookies, bookie, read_only=True, who=who(env), why="it is being drained")
        env.detail(f"{bookie} was made read-only through {way}")
    asked = frozenset(bookies)
    if not await until_registered(cluster.bookies, lambda found: asked.isdisjoint(found.writable), MODE_WAIT_S):
        raise Unavailable(f"{', '.join(bookies)} did not become read-only within {MODE_WAIT_S:.0f} s")


async def drained(
    env: Env,
    session: Session,
    claims: DrainClaims,
    plan: MovePlan,
    wait_s: float | None,
    unloading: Unloading | None = None,
) -> list[dict[str, Any]]:
    """Drains the bookies; yields one item a ledger. It stops when another command cancels it.

    unloading: unloads the topics of open ledgers; None unloads no topic.

    Raises:
        Conflict: it was cancelled.
    """
    import asyncio

    from bkrecovery.drain import Drain

    def waiting(ledger_ids: list[int]) -> None:
        shown = ", ".join(map(str, ledger_ids[:5])) + (" …" if len(ledger_ids) > 5 else "")
        env.note(f"waiting for the writers of {len(ledger_ids)} open ledgers: {shown}")
        if unloading is not None:
            unloading.want(ledger_ids)

    drain = Drain(session.job, wait_s, waiting)
    with session.progress(len(plan.moves)) as done:
        work = asyncio.ensure_future(drain.run(plan, done))
        watches = [asyncio.ensure_future(claims.until_cancelled(bookie)) for bookie in sorted(plan.bookies)]
        try:
            await asyncio.wait([work, *watches], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                by = next(watch.result() for watch in watches if watch.done())
                raise Conflict(f"the drain was cancelled by {by}")
            results = work.result()
        finally:
            for task in (work, *watches):
                task.cancel()
            await asyncio.gather(work, *watches, return_exceptions=True)
            if unloading is not None:
                await unloading.close()
    items = [result_item(result) for result in results]
    left = set(await session.job.verify())
    known = {item["ledger_id"] for item in items if item["error"] is not None}
    return items + [blocked_item(e, "it was placed on the bookie meanwhile") for e in sorted(left - known)]
