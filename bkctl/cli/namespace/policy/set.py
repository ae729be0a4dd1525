"""`bkctl namespace policy set`: sets one policy of a namespace."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespace, namespace_name
from bkctl.cli.namespace.policy._kinds import QUOTAS, check_room, kind_of, value_of

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl namespace policy set public/default ttl 3600 --yes",
        'bkctl namespace policy set a/b retention \'{"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}\' --yes',
    ),
    columns=("namespace", "policy", "before", "value"),
    name="policy",
)


async def run(
    env: Env,
    namespace: Namespace,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="a name from `namespace policy get`")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON; numbers and strings without quotes")],
) -> dict[str, object]:
    """Set one policy of a namespace in the metadata.

    Other policies are not changed. Brokers apply the change without a restart: bkctl's within seconds, Java's by a
    watch.
    """
    from bkctl.meta.namespaces import NamespaceStore

    name, kind = namespace_name(namespace), kind_of(policy)
    wanted = value_of(kind, value)
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        before = (await store.policies(name)).get(kind.key)
        step = f"{kind.key}: {json.dumps(before)} → {json.dumps(wanted)}"
        env.confirm(Plan(f"set {policy} of namespace {name}", (step,)))

        def change(old: dict[str, Any]) -> dict[str, Any]:
            new = old | {kind.key: wanted}
            if kind.key in ("retention_policies", QUOTAS):
                check_room(new)
            return new

        await store.update_policies(name, change)
    return {"namespace": name, "policy": policy, "before": before, "value": wanted}
