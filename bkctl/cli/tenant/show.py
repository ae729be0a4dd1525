"""`bkctl tenant show`: shows tenants."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one, some_failed
from bkctl.cli.namespace._names import Tenants, tenant_name
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl tenant show public", "bkctl tenant show public pulsar -o json"),
    columns=("tenant", "namespaces", "admin_roles", "allowed_clusters"),
)


async def run(env: Env, tenants: Tenants) -> object:
    """Show tenants with the names of their namespaces."""
    from bkctl.meta.namespaces import NamespaceStore

    names = [tenant_name(name) for name in env.names(tenants)]
    items: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        for name in names:
            try:
                value = await store.tenant(name)
            except NotFound as error:
                if is_one(tenants):
                    raise
                some_failed(env, error)
                continue
            items.append(
                {
                    "tenant": name,
                    "namespaces": await store.namespaces(name),
                    "admin_roles": value.get("adminRoles") or [],
                    "allowed_clusters": value.get("allowedClusters") or [],
                }
            )
    return items[0] if is_one(tenants) else items
