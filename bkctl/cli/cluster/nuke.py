"""`bkctl cluster nuke`: delete a cluster from the metadata store."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.backup import BackupFile, NoBackup, back_up_cluster, backup_path
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.owned import Owned, cluster_owners

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
        str | None,
        typer.Option("--instance-id", metavar="ID", help="the cluster's instance id, as shown by `cluster info`"),
    ] = None,
    any_instance: Annotated[bool, typer.Option("--any-instance", help="do not check the instance id")] = False,
    owned: Owned = False,
    backup: BackupFile = None,
    no_backup: NoBackup = False,
) -> object:
    """Delete all metadata of a cluster, the root too.

    Refused (exit 3) while a bookie is registered, if the instance id differs, if the root contains nodes that are not
    BookKeeper's, and while topics, cursors, schemas, DistributedLog streams or other applications use its ledgers. The
    metadata is written to a file first.
    """
    from bkctl.errors import UsageError
    from bkctl.meta.cluster import check_nuke, nuke_cluster

    if (instance_id is None) is not any_instance:
        raise UsageError("either --instance-id ID or --any-instance", hint="bkctl cluster info shows the instance id")
    file = backup_path(env, backup, no_backup, "cluster nuke")
    async with env.cluster() as cluster:
        if root != cluster.root:
            raise UsageError(f"the metadata URI's root is {cluster.root}, not {root}")
        await check_nuke(cluster.store, root, instance_id)
        summary = f"delete the cluster at {root} of {cluster.store.where}"
        used = await cluster_owners(env, cluster, owned=owned)
        steps = [f"write the metadata to {file}"] if file is not None else []
        env.confirm(Plan(summary, (*used, *steps, f"delete {root} and everything below it"), subject=root))
        await back_up_cluster(env, cluster, file, "cluster nuke")
        await nuke_cluster(cluster.store, root, instance_id)
    return {"root": root, "deleted": True}
