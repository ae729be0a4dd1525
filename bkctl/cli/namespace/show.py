"""`bkctl namespace show`: the policies of a namespace, and who owns its bundles."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespace, namespace_name

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl namespace show public/default", "bkctl namespace show public/default -o json"),
    columns=("namespace", "topics", "bundles", "policies"),
)


async def run(env: Env, namespace: Namespace) -> dict[str, object]:
    """Shows a namespace: its policies as they are stored, its bundles with their owners (null: nobody)."""
    from bkdaemon.broker.own_backend import Stores

    from bkctl.meta.brokers import BrokerStore

    namespace_name(namespace)
    async with env.cluster() as cluster:
        stores = Stores.of(cluster.store)
        policies = await stores.namespaces.policies(namespace)
        owners = await BrokerStore(cluster.store).owned(namespace)
        bundles = (await stores.namespaces.bundles(namespace)).all()
        return {
            "namespace": namespace,
            "topics": len(await stores.topics.topics(namespace)),
            "bundles": {b.range: owners[b].native_url if b in owners else None for b in bundles},
            "policies": policies,
        }
