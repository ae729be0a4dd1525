"""`bkctl namespace delete`: deletes empty namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one
from bkctl.cli.namespace._names import Namespaces, namespace_name
from bkctl.cli.pulsar_admin import Admin
from bkctl.cli.several import all_of, attempt
from bkctl.errors import Refused

if TYPE_CHECKING:
    from bkctl.meta.pulsar import Stores

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl namespace delete public/orders", "bkctl namespace delete shop/a shop/b --yes"),
    columns=("namespace", "deleted", "by"),
)


async def run(env: Env, namespaces: Namespaces) -> object:
    """Delete namespaces without topics, their policies and system topics (`__…`).

    A broker that owns a bundle of the namespace deletes it. Without such a broker the command deletes it in the
    metadata; system topics must be deleted before.
    """
    from bkctl.meta.pulsar import Stores

    names = [namespace_name(name) for name in env.names(namespaces)]
    found: dict[str, dict[str | None, str]] = {}
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        for name in dict.fromkeys(names):
            await attempt(env, namespaces, name, _check(stores, name, found))
        if found:
            what = all_of(found, "namespaces")
            env.confirm(Plan(f"delete {what}", tuple(found), subject=what))
        for name, owners in found.items():
            await attempt(env, namespaces, name, _delete(env, stores, name, owners, rows))
    return rows[0] if is_one(namespaces) else rows


async def _check(stores: Stores, name: str, found: dict[str, dict[str | None, str]]) -> None:
    """Checks that it may be deleted; adds its owners' web addresses with their names."""
    from bkctl.meta.brokers import BrokerStore

    await stores.namespaces.policies(name)
    topics = [str(topic) for topic in await stores.topics.topics(name)]
    brokers = BrokerStore(stores.store)
    every = [*(await brokers.owned(name)).values(), await brokers.spokesman()]
    owners = {owner.http_url: owner.broker_id for owner in every if owner is not None}
    users = topics if not owners else [t for t in topics if "/__" not in t]
    if users:
        raise Refused(f"{name} has {len(users)} topics, including {users[0]}", hint=f"bkctl topic list {name}")
    found[name] = owners


async def _delete(
    env: Env, stores: Stores, name: str, owners: dict[str | None, str], rows: list[dict[str, object]]
) -> None:
    by = "metadata"
    if owners:
        url, by = next(iter(owners.items()))
        await Admin.of(env, url).ask("DELETE", f"/namespaces/{name}")
    else:
        for topic in await stores.topics.partitioned_topics(name):
            await stores.topics.delete_partitioned(topic)
        await stores.namespaces.delete_namespace(name)
    rows.append({"namespace": name, "deleted": True, "by": by})
