"""The form of a cluster, shared by the verbs of `cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess


async def cluster_item(cluster: ClusterAccess) -> dict[str, object]:
    """Reads the state of the cluster from the metadata store."""
    from bkctl.meta.cluster import cluster_info
    from bkctl.meta.election import Election
    from bkctl.meta.underreplication import Underreplication
    from bkctl.world import SystemClock

    info = await cluster_info(cluster.store, cluster.root)
    repairs = Underreplication(cluster.store, cluster.root, SystemClock())
    return {
        "metadata_uri": str(cluster.uri),
        "root": info.root,
        "instance_id": info.instance_id,
        "layout": info.layout.manager.value if info.layout is not None else None,
        "layout_class": info.layout.manager.java_class if info.layout is not None else None,
        "layout_format": info.layout.format if info.layout is not None else None,
        "writable_bookies": info.writable_bookies,
        "read_only_bookies": info.read_only_bookies,
        "known_bookies": info.known_bookies,
        "autorecovery_enabled": await repairs.enabled(),
        "lost_bookie_recovery_delay_s": await repairs.delay_s(),
        "auditor": await Election(cluster.store, cluster.root).auditor(),
    }
