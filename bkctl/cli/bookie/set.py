"""`bkctl bookie set`: makes a bookie read-only, or writable again."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.bookie._items import Bookies, admin_of, bookie_ids
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.errors import Refused, UsageError

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
    """Makes bookies of bkctl take no adds (reads and fences go on), or takes that back.

    A bookie stays read-only for other reasons it has, such as a full disk; `bookie status` shows them. It is kept
    across a restart where persistBookieStatusEnabled is set.
    """
    if mode not in MODES:
        raise UsageError(f"{mode!r} is no mode of a bookie", hint="read-only or writable")
    names = bookie_ids(env, bookies)
    who = env.environ.get("USER") or env.environ.get("LOGNAME") or "bkctl"
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        clients = [(name, await admin_of(cluster, name)) for name in names]
        for name, client in clients:
            if client is None:
                raise Refused(f"bookie {name} has no admin port: is it one of Java's?", bookie_id=name)
        env.confirm(Plan(f"make {len(names)} bookies {mode}", tuple(f"{name}: {mode}" for name in names)))
        for name, client in clients:
            assert client is not None
            async with client:
                status = await (client.set_read_only(who, why) if mode == MODES[0] else client.set_writable(who))
            reasons = [{"kind": r.kind, "text": r.text} for r in status.reasons]
            rows.append({"bookie_id": name, "read_only": status.read_only, "reasons": reasons})
    return rows
