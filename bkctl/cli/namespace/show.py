"""`bkctl namespace show`: shows the policies and bundles of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one, some_failed
from bkctl.cli.namespace._names import Namespaces, namespace_name
from bkctl.errors import NotFound

if TYPE_CHECKING:
    from bkctl.meta.pulsar import Stores

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl namespace show public/default", "bkctl namespace show a/b a/c -o json"),
    columns=("namespace", "topics", "bundles", "policies"),
)


async def run(env: Env, namespaces: Namespaces) -> object:
    """Show the stored policies of namespaces, and their bundles with their owners (null: no owner)."""
    from bkctl.meta.pulsar import Stores

    names = [namespace_name(name) for name in env.names(namespaces)]
    items: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        for name in names:
            try:
                items.append(await _item(stores, name))
            except NotFound as error:
                if is_one(namespaces):
                    raise
                some_failed(env, error)
    return items[0] if is_one(namespaces) else items


async def _item(stores: Stores, namespace: str) -> dict[str, object]:
    from bkctl.meta.brokers import BrokerStore

    policies = await stores.namespaces.policies(namespace)
    owners = await BrokerStore(stores.store).owned(namespace)
    bundles = (await stores.namespaces.bundles(namespace)).all()
    return {
        "namespace": namespace,
        "topics": len(await stores.topics.topics(namespace)),
        "bundles": {b.range: owners[b].native_url if b in owners else None for b in bundles},
        "policies": policies,
    }
