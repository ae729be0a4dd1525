"""`bkctl tenant delete`: removes a tenant without namespaces."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Tenant, tenant_name
from bkctl.errors import Refused

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl tenant delete shop",),
    columns=("tenant", "deleted"),
)


async def run(env: Env, tenant: Tenant) -> dict[str, object]:
    """Deletes a tenant that has no namespaces any more."""
    from bkctl.meta.namespaces import NamespaceStore

    name = tenant_name(tenant)
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        if namespaces := await store.namespaces(name):
            raise Refused(f"tenant {name} has {len(namespaces)} namespaces, {namespaces[0]} among them")
        env.confirm(Plan(f"delete tenant {name}", subject=name))
        await store.delete_tenant(name)
    return {"tenant": name, "deleted": True}
