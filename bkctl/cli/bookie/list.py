"""`bkctl bookie list`: the bookies of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.bookie._items import IN_FLIGHT_MAX, Directory, bookie_item
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl bookie list", "bkctl bookie list --state rw -o name", "bkctl bookie list -o json"),
    columns=("bookie_id", "state", "address"),
    wide=("http_port", "grpc_port", "cookie"),
)


async def run(
    env: Env,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="only rw, ro or down")] = None,
) -> object:
    """List bookies.

    States: registered writable (rw), registered read-only (ro), not registered but with a cookie (down). Reads the
    metadata store and contacts no bookie.
    """
    import asyncio

    from bkctl.errors import UsageError
    from bkctl.model.bookie import BookieState

    if state is not None and state not in list(BookieState):
        raise UsageError(f"{state!r} is not a valid bookie state", hint="one of " + ", ".join(BookieState))
    async with env.cluster() as cluster:
        directory = await Directory.read(cluster)
        wanted = [b for b in directory.all() if state is None or directory.state(b) == state]
        gate = asyncio.Semaphore(IN_FLIGHT_MAX)

        async def one(bookie_id: str) -> object:
            async with gate:
                return await bookie_item(env, cluster, directory, bookie_id)  # type: ignore[arg-type]

        return list(await asyncio.gather(*map(one, wanted)))
