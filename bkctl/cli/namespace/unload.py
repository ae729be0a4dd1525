"""`bkctl namespace unload`: unloads the bundles of namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespaces, namespace_name
from bkctl.cli.pulsar_admin import Admin
from bkctl.cli.several import attempt
from bkctl.errors import NotFound

if TYPE_CHECKING:
    from bkctl.meta.brokers import Owner
    from bkctl.meta.pulsar import Stores
    from bkctl.model.bundle import Bundle

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl namespace unload public/default --yes",
        "bkctl namespace unload public/default --bundle 0x00000000_0x10000000 --yes",
    ),
    columns=("namespace", "bundle", "unloaded", "by"),
    timeout_s=None,
)


async def run(
    env: Env,
    namespaces: Namespaces,
    bundle: Annotated[
        str | None, typer.Option("--bundle", metavar="RANGE", help="only this bundle, as in `namespace show`")
    ] = None,
) -> list[dict[str, object]]:
    """Unload the bundles of namespaces from their brokers.

    The owners close the topics and release the bundles; clients reconnect through a lookup. Bundles without an owner
    are skipped (unloaded: false).
    """
    from bkctl.meta.pulsar import Stores

    names = list(dict.fromkeys(namespace_name(name) for name in env.names(namespaces)))
    found: list[tuple[Bundle, Owner | None]] = []
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        for name in names:
            await attempt(env, namespaces, name, _find_bundles(stores, name, bundle, found))
        work = tuple(f"unload {one} by broker {owner.broker_id}" for one, owner in found if owner is not None)
        if work:
            env.confirm(Plan(f"unload {len(work)} bundles", work))
        for one, owner in found:
            await attempt(env, namespaces, str(one), _unload(env, one, owner, rows))
    return rows


async def _find_bundles(
    stores: Stores, name: str, wanted: str | None, found: list[tuple[Bundle, Owner | None]]
) -> None:
    from bkctl.meta.brokers import BrokerStore

    await stores.namespaces.policies(name)
    brokers = BrokerStore(stores.store)
    owners, spokesman = await brokers.owned(name), await brokers.spokesman()
    bundles = [one for one in (await stores.namespaces.bundles(name)).all() if wanted in (None, one.range)]
    if not bundles:
        raise NotFound(f"{name} has no bundle {wanted}", hint=f"bkctl namespace show {name}")
    found += [(one, owners.get(one, spokesman)) for one in bundles]


async def _unload(env: Env, bundle: Bundle, owner: Owner | None, rows: list[dict[str, object]]) -> None:
    if owner is not None:
        path = f"/namespaces/{bundle.namespace}/{bundle.range}/unload"
        await Admin.of(env, owner.http_url).ask("PUT", path)
    by = owner.broker_id if owner is not None else None
    rows.append({"namespace": bundle.namespace, "bundle": bundle.range, "unloaded": owner is not None, "by": by})
