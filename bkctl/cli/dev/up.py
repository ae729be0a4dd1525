"""`bkctl dev up`: starts a local cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.dev._local import COLUMNS, WIDE, Directory, announce, directory_of, row
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl dev up",
        "bkctl dev up --bookies 5 --dir /tmp/cluster",
        "bkctl dev up --brokers 1",
        "bkctl dev up -o json",
    ),
    columns=COLUMNS,
    wide=WIDE,
    timeout_s=180,
    asks=False,
    takes_back=True,
)


async def run(
    env: Env,
    bookies: Annotated[int, typer.Option("--bookies", metavar="N", help="how many bookies")] = 3,
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", help="how many Pulsar brokers")] = 0,
    directory: Directory = None,
) -> list[dict[str, object]]:
    """Starts a local cluster: the real ZooKeeper, bookies, and Pulsar brokers if wanted, each its own process.

    Ports are free ones of 127.0.0.1 and stay the same from start to start. Where a cluster has been before, its
    services that do not run are started again with their data. From then on commands without -m use this cluster.
    """
    from bkdaemon.local.cluster import LocalCluster

    cluster = LocalCluster.plan(directory_of(env, directory), bookies, env.environ, broker_count=brokers)
    await cluster.up()
    announce(env, cluster)
    env.note(f"metadata URI: {cluster.metadata_uri}")
    if cluster.brokers:
        env.note(f"service URL: pulsar://{','.join(f'127.0.0.1:{s.port}' for s in cluster.brokers)}")
    return [row(service) for service in cluster.services]
