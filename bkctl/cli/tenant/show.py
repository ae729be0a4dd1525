"""`bkctl tenant show`: one tenant."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Tenant, tenant_name

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl tenant show public",),
    columns=("tenant", "namespaces", "admin_roles", "allowed_clusters"),
)


async def run(env: Env, tenant: Tenant) -> dict[str, object]:
    """Shows a tenant with the names of its namespaces."""
    from bkctl.meta.namespaces import NamespaceStore

    name = tenant_name(tenant)
    async with env.cluster() as cluster:
        store = NamespaceStore(cluster.store)
        value = await store.tenant(name)
        return {
            "tenant": name,
            "namespaces": await store.namespaces(name),
            "admin_roles": value.get("adminRoles") or [],
            "allowed_clusters": value.get("allowedClusters") or [],
        }
