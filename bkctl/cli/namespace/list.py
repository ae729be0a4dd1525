"""`bkctl namespace list`: the namespaces of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl namespace list", "bkctl namespace list public -o name"),
    columns=("namespace", "topics", "bundles", "owned_bundles"),
)


async def run(
    env: Env,
    tenants: Annotated[
        list[str] | None, typer.Argument(metavar="[TENANT…]", help="tenants to list; default: all")
    ] = None,
) -> list[dict[str, object]]:
    """List namespaces with the number of their persistent topics and bundles."""
    from bkctl.meta.brokers import BrokerStore
    from bkctl.meta.pulsar import Stores

    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        brokers = BrokerStore(stores.store)
        for tenant in list(env.names(tenants or ())) or await stores.namespaces.tenants():
            rows += [
                {
                    "namespace": namespace,
                    "topics": len(await stores.topics.topics(namespace)),
                    "bundles": len(await stores.namespaces.bundles(namespace)),
                    "owned_bundles": len(await brokers.owned(namespace)),
                }
                for namespace in await stores.namespaces.namespaces(tenant)
            ]
    return rows
