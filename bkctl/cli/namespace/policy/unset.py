"""`bkctl namespace policy unset`: removes one policy of a namespace."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespace, namespace_name
from bkctl.cli.namespace.policy._kinds import kind_of

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl namespace policy unset public/default ttl --yes",),
    columns=("namespace", "policy", "before"),
    name="policy",
)


async def run(
    env: Env,
    namespace: Namespace,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="a name from `namespace policy get`")],
) -> dict[str, object]:
    """Remove one policy of a namespace, so that broker.conf applies again."""
    from bkctl.meta.namespaces import NamespaceStore

    name, kind = namespace_name(namespace), kind_of(policy)
    async with env.cluster() as cluster:
        store = NamespaceStore(await cluster.pulsar())
        before = (await store.policies(name)).get(kind.key)
        env.confirm(Plan(f"unset {policy} of namespace {name}", (f"{kind.key}: {json.dumps(before)} → unset",)))

        def change(old: dict[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in old.items() if key != kind.key}

        await store.update_policies(name, change)
    return {"namespace": name, "policy": policy, "before": before}
