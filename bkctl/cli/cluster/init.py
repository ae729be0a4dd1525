"""`bkctl cluster init`: creates a new cluster in the metadata store."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.cluster._items import cluster_item
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl cluster init -m zk+hierarchical://127.0.0.1:2181/ledgers --yes",
        "bkctl cluster init -m zk+longhierarchical://zk1:2181;zk2:2181/pulsar/ledgers --parents --yes",
    ),
    name="instance_id",
)


async def run(
    env: Env,
    parents: Annotated[bool, typer.Option("--parents", help="create the parents of the ledgers root too")] = False,
) -> object:
    """Create the metadata of a new cluster.

    Exit 5: the root exists. The layout is that of the metadata URI, by default hierarchical.
    """
    from bkctl.codec.layout import LedgerManager
    from bkctl.errors import AlreadyExists
    from bkctl.meta.cluster import init_cluster

    async with env.cluster() as cluster:
        if await cluster.store.exists(cluster.root) is not None:
            raise AlreadyExists(f"{cluster.root} exists already", hint="bkctl cluster info shows it")
        manager = cluster.uri.manager or LedgerManager.HIERARCHICAL
        steps = (f"create {cluster.root}, available, available/readonly, INSTANCEID", f"write LAYOUT: {manager.value}")
        env.confirm(Plan(f"create a cluster at {cluster.root} of {cluster.store.where}", steps, subject=cluster.root))
        await init_cluster(cluster.store, cluster.root, manager, parents=parents)
        return await cluster_item(cluster)
