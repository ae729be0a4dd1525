"""`bkctl cluster nuke`: removes a cluster from the metadata store."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl cluster nuke /ledgers --instance-id 942201c5-f0f4-47d0-9977-c5329d9910f4",),
    columns=("root", "deleted"),
    timeout_s=None,
)


async def run(
    env: Env,
    root: Annotated[str, typer.Argument(metavar="ROOT", help="the ledgers root, the same as in the metadata URI")],
    instance_id: Annotated[
        str | None, typer.Option("--instance-id", metavar="ID", help="the cluster's, as `cluster info` shows it")
    ] = None,
    any_instance: Annotated[bool, typer.Option("--any-instance", help="whatever its instance id is")] = False,
) -> object:
    """Deletes all metadata of a cluster, the root too.

    Refuses (exit 3) while a bookie is registered, for another instance id, and where the root holds something that
    is not BookKeeper's.
    """
    from bkctl.errors import UsageError
    from bkctl.meta.cluster import check_nuke, nuke_cluster

    if (instance_id is None) is not any_instance:
        raise UsageError("either --instance-id ID or --any-instance", hint="bkctl cluster info shows the instance id")
    async with env.cluster() as cluster:
        if root != cluster.root:
            raise UsageError(f"the metadata URI's root is {cluster.root}, not {root}")
        await check_nuke(cluster.store, root, instance_id)
        summary = f"delete the cluster at {root} of {cluster.store.where}"
        env.confirm(Plan(summary, (f"delete {root} and everything below it",), subject=root))
        await nuke_cluster(cluster.store, root, instance_id)
    return {"root": root, "deleted": True}
