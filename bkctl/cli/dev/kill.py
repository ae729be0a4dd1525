"""`bkctl dev kill`: kills one service."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.dev._local import COLUMNS, WIDE, Directory, Kind, Number, check_kind, open_local, row
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl dev kill bookie 2",),
    columns=COLUMNS,
    wide=WIDE,
    asks=False,
)


async def run(env: Env, kind: Kind, number: Number = 1, directory: Directory = None) -> dict[str, object]:
    """Kill one service of the local cluster with SIGKILL, as if its machine had failed.

    The process is identified by its id and start time, so that another process with a reused id is never killed.
    """
    cluster = open_local(env, directory)
    if not await cluster.kill(check_kind(kind), number):
        env.note(f"{kind} {number} was not running")
    return row(cluster.find(kind, number))
