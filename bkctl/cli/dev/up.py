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
    bookies: Annotated[int, typer.Option("--bookies", metavar="N", help="number of bookies")] = 3,
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", help="number of Pulsar brokers")] = 0,
    directory: Directory = None,
) -> list[dict[str, object]]:
    """Start a local cluster: ZooKeeper, bookies and, with --brokers, Pulsar brokers.

    Each service is a process of its own. Ports are free ports of 127.0.0.1 and stay the same across restarts. If the
    directory contains a cluster, its stopped services are started with their data. Later commands without -m use this
    cluster.
    """
    from bkdaemon.local.cluster import LocalCluster

    cluster = LocalCluster.plan(directory_of(env, directory), bookies, env.environ, broker_count=brokers)
    await cluster.up()
    announce(env, cluster)
    env.note(f"metadata URI: {cluster.metadata_uri}")
    if cluster.brokers:
        env.note(f"service URL: pulsar://{','.join(f'127.0.0.1:{s.port}' for s in cluster.brokers)}")
    return [row(service) for service in cluster.services]
