"""`bkctl namespace create`: makes a namespace."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespace, namespace_name
from bkctl.errors import AlreadyExists, NotFound, UsageError

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl namespace create public/orders --yes", "bkctl namespace create public/orders --bundles 16 --yes"),
    columns=("namespace", "bundles", "replication_clusters", "created"),
)
BUNDLES_MAX = 128 * 1024


async def run(
    env: Env,
    namespace: Namespace,
    bundles: Annotated[int, typer.Option("--bundles", metavar="N", help="parts that brokers own one by one")] = 4,
    clusters: Annotated[
        list[str] | None, typer.Option("--cluster", metavar="NAME", help="where it is replicated; the tenant's if none")
    ] = None,
) -> dict[str, object]:
    """Makes a namespace with the policies of Java's 4.0.7, in the metadata; brokers need not run."""
    from bkctl.meta.namespaces import NamespaceStore

    name = namespace_name(namespace)
    if not 1 <= bundles <= BUNDLES_MAX:
        raise UsageError(f"{bundles} bundles: 1 to {BUNDLES_MAX} can be had")
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        tenant = await store.tenant(name.partition("/")[0])
        allowed = list(tenant.get("allowedClusters") or ())
        wanted = list(clusters or allowed)
        if unknown := [one for one in wanted if one not in allowed]:
            raise NotFound(f"tenant {name.partition('/')[0]} may not use cluster {unknown[0]}: {', '.join(allowed)}")
        if await store.exists(name):
            raise AlreadyExists(f"namespace {name} is there already", namespace=name)
        env.confirm(Plan(f"create namespace {name} with {bundles} bundles in {', '.join(wanted) or 'no cluster'}"))
        await store.create_namespace(name, wanted, bundles)
    return {"namespace": name, "bundles": bundles, "replication_clusters": wanted, "created": True}
