"""`bkctl dev start`: starts one stopped service."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.dev._local import COLUMNS, WIDE, Directory, Kind, Number, check_kind, open_local, row
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl dev start bookie 2", "bkctl dev start zookeeper"),
    columns=COLUMNS,
    wide=WIDE,
    timeout_s=120,
    asks=False,
    takes_back=True,
)


async def run(env: Env, kind: Kind, number: Number = 1, directory: Directory = None) -> dict[str, object]:
    """Start one stopped service of the local cluster, and wait until it is ready."""
    cluster = open_local(env, directory)
    return row(await cluster.start(check_kind(kind), number))
