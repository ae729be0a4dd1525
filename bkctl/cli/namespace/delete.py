"""`bkctl namespace delete`: removes an empty namespace."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespace, namespace_name
from bkctl.cli.pulsar_admin import Admin
from bkctl.errors import Refused

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl namespace delete public/orders",),
    columns=("namespace", "deleted", "by"),
)


async def run(env: Env, namespace: Namespace) -> dict[str, object]:
    """Deletes a namespace without topics and its policies; system topics (`__…`) go with it.

    A broker that owns a part of it does it. Where none does it goes straight in the metadata, and topics of the
    system must be deleted before.
    """
    from bkdaemon.broker.own_backend import Stores

    from bkctl.meta.brokers import BrokerStore

    name, by = namespace_name(namespace), "metadata"
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        await stores.namespaces.policies(name)
        topics = [str(topic) for topic in await stores.topics.topics(name)]
        owners = {owner.http_url: owner.broker_id for owner in (await BrokerStore(stores.store).owned(name)).values()}
        users = topics if not owners else [t for t in topics if "/__" not in t]
        if users:
            raise Refused(f"{name} has {len(users)} topics, {users[0]} among them", hint=f"bkctl topic list {name}")
        env.confirm(Plan(f"delete namespace {name}", subject=name))
        if owners:
            url, by = next(iter(owners.items()))
            await Admin.of(env, url).ask("DELETE", f"/namespaces/{name}")
        else:
            for topic in await stores.topics.partitioned_topics(name):
                await stores.topics.delete_partitioned(topic)
            await stores.namespaces.delete_namespace(name)
    return {"namespace": name, "deleted": True, "by": by}
