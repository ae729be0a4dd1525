"""`bkctl dev stop`: stops one service."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.dev._local import COLUMNS, WIDE, Directory, Kind, Number, check_kind, open_local, row
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl dev stop bookie 2",),
    columns=COLUMNS,
    wide=WIDE,
    asks=False,
)


async def run(env: Env, kind: Kind, number: Number = 1, directory: Directory = None) -> dict[str, object]:
    """Stop one service of the local cluster gracefully. Its data stays."""
    cluster = open_local(env, directory)
    if not await cluster.stop(check_kind(kind), number):
        env.note(f"{kind} {number} did not stop in time and was killed")
    return row(cluster.find(kind, number))
