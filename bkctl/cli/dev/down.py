"""`bkctl dev down`: stops the local cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.dev._local import COLUMNS, WIDE, Directory, open_local, row, withdraw
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl dev down", "bkctl dev down --delete --yes"),
    columns=COLUMNS,
    wide=WIDE,
    asks=False,
)


async def run(
    env: Env,
    delete: Annotated[bool, typer.Option("--delete", help="remove the data too (asks)")] = False,
    directory: Directory = None,
) -> list[dict[str, object]]:
    """Stop the local cluster.

    Its data stays. --delete deletes the data too, after showing a plan and asking for the directory's name (or with
    --yes).
    """
    cluster = open_local(env, directory)
    if delete:
        steps = [f"stop {s.name} (process {s.pid})" for s in cluster.services if s.running]
        steps += [f"remove {s.directory}" for s in cluster.services]
        name = cluster.directory.name
        env.confirm(Plan(f"stop the cluster in {cluster.directory} and remove its data", tuple(steps), subject=name))
    for service in await cluster.down():
        env.note(f"{service.name} did not stop in time and was killed")
    withdraw(env, cluster)
    rows = [row(service) for service in cluster.services]
    if delete:
        cluster.delete()
    return rows
