"""`bkctl tenant create`: creates tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one
from bkctl.cli.namespace._names import Tenants, tenant_name
from bkctl.cli.several import all_of, attempt
from bkctl.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from bkctl.meta.namespaces import NamespaceStore

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl tenant create shop --yes", "bkctl tenant create shop --cluster c1 --role admin --yes"),
    columns=("tenant", "admin_roles", "allowed_clusters", "created"),
)


async def run(
    env: Env,
    tenants: Tenants,
    clusters: Annotated[
        list[str] | None, typer.Option("--cluster", metavar="NAME", help="clusters that they may use; default: all")
    ] = None,
    roles: Annotated[
        list[str] | None, typer.Option("--role", metavar="NAME", help="roles that may administer them")
    ] = None,
) -> object:
    """Create tenants in the metadata. Needs no broker."""
    from bkctl.meta.namespaces import NamespaceStore, tenant_value
    from bkctl.meta.pulsar_cluster import CLUSTERS, GLOBAL_CLUSTER

    names = [tenant_name(name) for name in env.names(tenants)]
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        pulsar = await cluster.pulsar()
        store = NamespaceStore(pulsar)
        try:
            known = [one for one in await pulsar.children(CLUSTERS) if one != GLOBAL_CLUSTER]
        except NotFound:
            raise NotFound("this metadata store contains no Pulsar cluster", hint="bkctl broker start") from None
        if unknown := [one for one in clusters or () if one not in known]:
            raise NotFound(f"cluster {unknown[0]} does not exist; known clusters: {', '.join(known)}")
        there = await store.tenants()
        if is_one(tenants) and names[0] in there:
            raise AlreadyExists(f"tenant {names[0]} exists already", tenant=names[0])
        wanted = list(clusters or known)
        value = tenant_value(wanted, roles or ())
        env.confirm(Plan(f"create {all_of(names, 'tenants')} for {', '.join(wanted)}", tuple(names)))
        for name in names:
            await attempt(env, tenants, name, _create(store, name, value, rows))
    return rows[0] if is_one(tenants) else rows


async def _create(store: NamespaceStore, name: str, value: dict[str, object], rows: list[dict[str, object]]) -> None:
    await store.create_tenant(name, value)
    rows.append(
        {
            "tenant": name,
            "admin_roles": value["adminRoles"],
            "allowed_clusters": value["allowedClusters"],
            "created": True,
        }
    )
