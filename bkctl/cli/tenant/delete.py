"""`bkctl tenant delete`: deletes tenants without namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one
from bkctl.cli.namespace._names import Tenants, tenant_name
from bkctl.cli.several import all_of, attempt
from bkctl.errors import Refused

if TYPE_CHECKING:
    from bkctl.meta.namespaces import NamespaceStore

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl tenant delete shop", "bkctl tenant delete shop other --yes"),
    columns=("tenant", "deleted"),
)


async def run(env: Env, tenants: Tenants) -> object:
    """Delete tenants that have no namespaces."""
    from bkctl.meta.namespaces import NamespaceStore

    names = [tenant_name(name) for name in env.names(tenants)]
    free: list[str] = []
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        for name in dict.fromkeys(names):
            await attempt(env, tenants, name, _check(store, name, free))
        if free:
            what = all_of(free, "tenants")
            env.confirm(Plan(f"delete {what}", tuple(free), subject=what))
        for name in free:
            await attempt(env, tenants, name, _delete(store, name, rows))
    return rows[0] if is_one(tenants) else rows


async def _check(store: NamespaceStore, name: str, free: list[str]) -> None:
    if namespaces := await store.namespaces(name):
        raise Refused(f"tenant {name} has {len(namespaces)} namespaces, including {namespaces[0]}")
    free.append(name)


async def _delete(store: NamespaceStore, name: str, rows: list[dict[str, object]]) -> None:
    await store.delete_tenant(name)
    rows.append({"tenant": name, "deleted": True})
