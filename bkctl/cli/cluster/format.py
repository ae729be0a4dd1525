"""`bkctl cluster format`: delete all ledgers of a cluster."""

from __future__ import annotations

from bkctl.cli.backup import BackupFile, NoBackup, back_up_cluster, backup_path
from bkctl.cli.cluster._items import cluster_item
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.owned import Owned, cluster_owners

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl cluster format --dry-run", "bkctl cluster format -m zk://127.0.0.1:2181/ledgers --yes"),
    name="instance_id",
    timeout_s=None,
)


async def run(
    env: Env,
    owned: Owned = False,
    backup: BackupFile = None,
    no_backup: NoBackup = False,
) -> object:
    """Delete all ledgers, marks and cookies of a cluster, and create a new instance id.

    What bookies have on their disks is garbage then: they do not start again before their directories are emptied.
    Registrations stay, and so do the switch and the settings of auto recovery. The layout becomes the one that the
    metadata URI names, and stays where it names none. Refused (exit 3) while topics, cursors, schemas, DistributedLog
    streams or other applications use ledgers. The metadata is written to a file first, which `ledger undelete` reads.
    """
    from bkctl.meta.cluster import cluster_info, format_cluster

    file = backup_path(env, backup, no_backup, "cluster format")
    async with env.cluster() as cluster:
        info = await cluster_info(cluster.store, cluster.root)
        ledgers = await cluster.ledgers() if cluster.uri.manager is None else None
        count = 0
        if ledgers is not None:
            async for found in ledgers.ids():
                count += len(found)
        running = info.writable_bookies + info.read_only_bookies
        used = await cluster_owners(env, cluster, owned=owned)
        steps = (
            *used,
            *([f"write the metadata to {file}"] if file is not None else []),
            f"delete all ledgers of {cluster.root}" + (f" ({count})" if ledgers is not None else ""),
            f"delete the cookies of {info.known_bookies} bookies, all markers and locks",
            f"replace instance {info.instance_id} by a new one",
            f"{running} bookies are running; the entries that they store become unreachable",
        )
        subject = info.instance_id or cluster.root
        env.confirm(Plan(f"format the cluster at {cluster.root} of {cluster.store.where}", steps, subject=subject))
        await back_up_cluster(env, cluster, file, "cluster format")
        await format_cluster(cluster.store, cluster.root, cluster.uri.manager)
        return await cluster_item(cluster)
