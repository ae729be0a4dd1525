"""`bkctl topic list`: the persistent topics of namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import namespace_name
from bkctl.model.topic import TopicName

if TYPE_CHECKING:
    from bkdaemon.broker.own_backend import Stores

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic list", "bkctl topic list public/default -o name", "bkctl topic list --partitions"),
    columns=("topic", "partitions", "ledgers", "entries", "size"),
    wide=("terminated", "open_ledger"),
    timeout_s=None,
)


async def run(
    env: Env,
    namespaces: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMESPACE…]", help="tenant/namespace; all where none is given")
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="list every partition by itself")] = False,
) -> AsyncIterator[list[dict[str, object]]]:
    """Lists the persistent topics of a cluster, loaded or not.

    entries and size are those of closed ledgers, as the topic's node tells them; `topic show` asks the bookies too.
    """
    from bkdaemon.broker.own_backend import Stores

    wanted = [namespace_name(name) for name in env.names(namespaces or ())]
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        if not namespaces:
            for tenant in await stores.namespaces.tenants():
                wanted += await stores.namespaces.namespaces(tenant)
        for namespace in wanted:
            await stores.namespaces.policies(namespace)
            rows = []
            if partitions:
                found = [(topic, 0) for topic in await stores.topics.topics(namespace)]
            else:
                found = [(t, n) for t, n in await stores.topics.all_topics(namespace) if t.persistent]
            for topic, count in found:
                rows.append(await _item(stores, topic, count))
            yield rows


async def _item(stores: Stores, topic: TopicName, partitions: int) -> dict[str, object]:
    logs = [topic.partition_name(index) for index in range(partitions)] or [topic]
    infos = [(await stores.ledgers.read(t.path)).info for t in logs if await stores.topics.exists(t)]
    ledgers = [ledger for info in infos for ledger in info.ledgers]
    return {
        "topic": str(topic),
        "partitions": partitions,
        "ledgers": len(ledgers),
        "entries": sum(ledger.entries or 0 for ledger in ledgers),
        "size": sum(ledger.size or 0 for ledger in ledgers),
        "terminated": any(info.terminated is not None for info in infos),
        "open_ledger": [info.ledgers[-1].ledger_id for info in infos if info.ledgers and not info.terminated],
    }
