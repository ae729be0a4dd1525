"""`bkctl cluster info`: shows a cluster."""

from __future__ import annotations

from bkctl.cli.cluster._items import cluster_item
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl cluster info", "bkctl cluster info -o json"),
    columns=("root", "instance_id", "layout", "writable_bookies", "read_only_bookies", "known_bookies"),
    name="instance_id",
)


async def run(env: Env) -> object:
    """Show instance id, layout, bookies and auto recovery of a cluster.

    Reads the metadata store and contacts no bookie. known_bookies have a cookie, running or not.
    """
    async with env.cluster() as cluster:
        return await cluster_item(cluster)
