"""`bkctl namespace policy get`: lists the policies of a namespace."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import Namespace, namespace_name
from bkctl.cli.namespace.policy._kinds import POLICIES, kind_of

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl namespace policy get public/default", "bkctl namespace policy get public/default retention"),
    columns=("policy", "key", "value"),
)


async def run(
    env: Env,
    namespace: Namespace,
    policies: Annotated[
        list[str] | None, typer.Argument(metavar="[POLICY…]", help="policies to show; default: all")
    ] = None,
) -> list[dict[str, object]]:
    """List the stored policies of a namespace; null: the setting of broker.conf applies."""
    from bkctl.meta.namespaces import NamespaceStore

    name = namespace_name(namespace)
    wanted = [kind_of(one) for one in policies or POLICIES]
    by_key = {kind.key: own for own, kind in POLICIES.items()}
    async with env.cluster() as cluster:
        stored = await NamespaceStore(await cluster.pulsar()).policies(name)
    return [{"policy": by_key[kind.key], "key": kind.key, "value": stored.get(kind.key)} for kind in wanted]
