"""`bkctl bookie set`: makes a bookie read-only, or writable again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.bookie._items import Bookies, admin_of, bookie_ids, check_known
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.errors import Refused, UsageError
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl bookie set read-only 10.0.0.1:3181 --why 'disk is replaced'",
        "bkctl bookie set writable 10.0.0.1:3181",
    ),
    columns=("bookie_id", "read_only", "reasons"),
)
MODES = ("read-only", "writable")


async def run(
    env: Env,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="read-only or writable")],
    bookies: Bookies,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="the reason, shown by status")] = "",
) -> list[dict[str, object]]:
    """Make bookies of bkctl read-only, or writable again.

    A bookie that is being drained is made writable only with --yes (exit 3): writers would use it again, and the drain
    would not end; `bookie drain --cancel` ends the drain too. Reads and fences are still served. A bookie stays
    read-only for any other reason, such as a full disk; `bookie status` shows it. The mode survives a restart if
    persistBookieStatusEnabled is set.
    """
    if mode not in MODES:
        raise UsageError(f"{mode!r} is not a valid bookie mode", hint="read-only or writable")
    names = bookie_ids(env, bookies)
    who = env.environ.get("USER") or env.environ.get("LOGNAME") or "bkctl"
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        await check_known(cluster, names)
        clients = [(name, await admin_of(cluster, name)) for name in names]
        for name, client in clients:
            if client is None:
                raise Refused(
                    f"bookie {name} has no admin port reachable from this machine",
                    hint="a Java bookie has none; one of bkctl listens on loopback unless adminGrpcAddress is set",
                    bookie_id=name,
                )
        drained = await _drained(env, cluster, names) if mode == MODES[1] else ()
        env.confirm(Plan(f"make {len(names)} bookies {mode}", (*(f"{name}: {mode}" for name in names), *drained)))
        for name, client in clients:
            assert client is not None
            async with client:
                status = await (client.set_read_only(who, why) if mode == MODES[0] else client.set_writable(who))
            reasons = [{"kind": r.kind, "text": r.text} for r in status.reasons]
            rows.append({"bookie_id": name, "read_only": status.read_only, "reasons": reasons})
    return rows


async def _drained(env: Env, cluster: ClusterAccess, names: Sequence[BookieId]) -> tuple[str, ...]:
    """The plan's warnings about bookies that a drain has claimed.

    Raises:
        Refused: a bookie is claimed, and neither --yes nor --dry-run was given.
    """
    from bkrecovery.drain import DrainClaims

    claims = await DrainClaims(cluster.store, cluster.root).all()
    words = [
        f"{name} was drained by {claims[name].by}: writers may use it again"
        if claims[name].done
        else f"{name} is being drained by {claims[name].by}: writers use it again, and the drain will not end"
        for name in names
        if name in claims
    ]
    if words and not (env.options.yes or env.options.dry_run):
        raise Refused(words[0], hint="bkctl bookie drain --cancel ends the drain; --yes overrides")
    return tuple(words)
