"""`bkctl namespace create`: creates namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one
from bkctl.cli.namespace._names import Namespaces, namespace_name
from bkctl.cli.several import all_of, attempt
from bkctl.errors import AlreadyExists, NotFound, UsageError

if TYPE_CHECKING:
    from bkctl.meta.namespaces import NamespaceStore

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl namespace create public/orders --yes", "bkctl namespace create public/orders --bundles 16 --yes"),
    columns=("namespace", "bundles", "replication_clusters", "created"),
)
BUNDLES_MAX = 128 * 1024


async def run(
    env: Env,
    namespaces: Namespaces,
    bundles: Annotated[int, typer.Option("--bundles", metavar="N", help="number of bundles")] = 4,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", help="clusters to replicate to; default: the tenant's"),
    ] = None,
) -> object:
    """Create namespaces with the default policies of Pulsar 4.0.7. Needs no broker."""
    from bkctl.meta.namespaces import NamespaceStore

    names = [namespace_name(name) for name in env.names(namespaces)]
    if not 1 <= bundles <= BUNDLES_MAX:
        raise UsageError(f"{bundles} bundles: not in 1 to {BUNDLES_MAX}")
    where: dict[str, list[str]] = {}
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        for name in dict.fromkeys(names):
            await attempt(env, namespaces, name, _check(store, name, clusters, where))
        if where:
            steps = tuple(f"create {name} in {', '.join(wanted) or 'no cluster'}" for name, wanted in where.items())
            env.confirm(Plan(f"create {all_of(where, 'namespaces')} with {bundles} bundles each", steps))
        for name, wanted in where.items():
            await attempt(env, namespaces, name, _create(store, name, wanted, bundles, rows))
    return rows[0] if is_one(namespaces) else rows


async def _check(store: NamespaceStore, name: str, clusters: list[str] | None, where: dict[str, list[str]]) -> None:
    tenant = name.partition("/")[0]
    allowed = list((await store.tenant(tenant)).get("allowedClusters") or ())
    wanted = list(clusters or allowed)
    if unknown := [one for one in wanted if one not in allowed]:
        raise NotFound(f"tenant {tenant} may not use cluster {unknown[0]}: {', '.join(allowed)}")
    if await store.exists(name):
        raise AlreadyExists(f"namespace {name} exists already", namespace=name)
    where[name] = wanted


async def _create(
    store: NamespaceStore, name: str, wanted: list[str], bundles: int, rows: list[dict[str, object]]
) -> None:
    await store.create_namespace(name, wanted, bundles)
    rows.append({"namespace": name, "bundles": bundles, "replication_clusters": wanted, "created": True})
