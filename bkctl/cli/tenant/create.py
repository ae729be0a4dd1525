"""`bkctl tenant create`: makes a tenant."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Tenant, tenant_name
from bkctl.errors import AlreadyExists, NotFound

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl tenant create shop --yes", "bkctl tenant create shop --cluster c1 --role admin --yes"),
    columns=("tenant", "admin_roles", "allowed_clusters", "created"),
)


async def run(
    env: Env,
    tenant: Tenant,
    clusters: Annotated[
        list[str] | None, typer.Option("--cluster", metavar="NAME", help="that it may use; all where none is given")
    ] = None,
    roles: Annotated[list[str] | None, typer.Option("--role", metavar="NAME", help="that may administer it")] = None,
) -> dict[str, object]:
    """Makes a tenant in the metadata; brokers need not run."""
    from bkctl.meta.namespaces import NamespaceStore, tenant_value
    from bkctl.meta.pulsar_cluster import CLUSTERS, GLOBAL_CLUSTER

    name = tenant_name(tenant)
    async with env.cluster() as cluster:
        pulsar = await cluster.pulsar()
        store = NamespaceStore(pulsar)
        try:
            known = [one for one in await pulsar.children(CLUSTERS) if one != GLOBAL_CLUSTER]
        except NotFound:
            raise NotFound("there is no Pulsar cluster in this metadata store", hint="bkctl broker start") from None
        if unknown := [one for one in clusters or () if one not in known]:
            raise NotFound(f"there is no cluster {unknown[0]}: {', '.join(known)}")
        if name in await store.tenants():
            raise AlreadyExists(f"tenant {name} is there already", tenant=name)
        wanted = list(clusters or known)
        env.confirm(Plan(f"create tenant {name} for {', '.join(wanted)}"))
        await store.create_tenant(name, tenant_value(wanted, roles or ()))
    return {"tenant": name, "admin_roles": list(roles or ()), "allowed_clusters": wanted, "created": True}
