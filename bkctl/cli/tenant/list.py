"""`bkctl tenant list`: the tenants of a cluster."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl tenant list", "bkctl tenant list -o json"),
    columns=("tenant", "namespaces", "admin_roles", "allowed_clusters"),
)


async def run(env: Env) -> list[dict[str, object]]:
    """List tenants with the number of their namespaces."""
    from bkctl.meta.namespaces import NamespaceStore

    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        namespaces = NamespaceStore(await cluster.pulsar())
        for tenant in await namespaces.tenants():
            value = await namespaces.tenant(tenant)
            rows.append(
                {
                    "tenant": tenant,
                    "namespaces": len(await namespaces.namespaces(tenant)),
                    "admin_roles": value.get("adminRoles") or [],
                    "allowed_clusters": value.get("allowedClusters") or [],
                }
            )
    return rows
