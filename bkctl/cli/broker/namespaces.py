"""`bkctl broker namespaces`: lists the bundles that brokers own."""

from __future__ import annotations

from bkctl.cli.broker._brokers import Brokers
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl broker namespaces", "bkctl broker namespaces 10.0.0.1:8080 -o json"),
    columns=("broker", "namespace", "bundle", "unloading"),
    name="namespace",
)


async def run(env: Env, brokers: Brokers = None) -> list[dict[str, object]]:
    """List the bundles that brokers own, from the metadata store."""
    from bkctl.meta.brokers import BrokerStore
    from bkctl.meta.namespaces import NamespaceStore

    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        pulsar = await cluster.pulsar()
        store, namespaces = BrokerStore(pulsar), NamespaceStore(pulsar)
        wanted, there = list(env.names(brokers or ())), await store.brokers()
        if unknown := [broker_id for broker_id in wanted if broker_id not in there]:
            raise NotFound(f"no broker {unknown[0]} is registered", hint="bkctl broker list")
        for tenant in await namespaces.tenants():
            for namespace in await namespaces.namespaces(tenant):
                owned = await store.owned(namespace)
                rows += [
                    {"broker": one.broker_id, "namespace": namespace, "bundle": bundle.range, "unloading": one.disabled}
                    for bundle, one in sorted(owned.items())
                    if not wanted or one.broker_id in wanted
                ]
    return sorted(rows, key=lambda row: str(row["broker"]))
