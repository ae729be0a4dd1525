"""`bkctl topic create`: creates topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import attempt
from bkctl.cli.topic._topics import Topics, topic_name
from bkctl.errors import AlreadyExists, UsageError

if TYPE_CHECKING:
    from bkctl.meta.pulsar import Stores
    from bkctl.model.topic import TopicName

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl topic create my-topic --yes", "bkctl topic create tenant/namespace/t --partitions 8 --yes"),
    columns=("topic", "partitions", "created"),
)
PARTITIONS_MAX = 10_000


async def run(
    env: Env,
    topics: Topics,
    partitions: Annotated[int, typer.Option("--partitions", metavar="N", help="0: not partitioned")] = 0,
) -> list[dict[str, object]]:
    """Create empty topics in the metadata."""
    from bkctl.meta.pulsar import Stores

    if not 0 <= partitions <= PARTITIONS_MAX:
        raise UsageError(f"{partitions} partitions: not in 0 to {PARTITIONS_MAX}")
    wanted = list(dict.fromkeys(topic_name(name) for name in env.names(topics)))
    found: list[TopicName] = []
    rows: list[dict[str, object]] = []
    if partitions and (parts := [topic for topic in wanted if topic.partition >= 0]):
        raise UsageError(f"{parts[0]} is already the name of a partition")
    async with env.cluster() as cluster:
        stores = Stores.of(await cluster.pulsar())
        for topic in wanted:
            await attempt(env, topics, str(topic), _check(stores, topic, found))
        if found:
            kind = f" of {partitions} partitions" if partitions else ""
            env.confirm(Plan(f"create {len(found)} topics", tuple(f"create {topic}{kind}" for topic in found)))
        for topic in found:
            await attempt(env, topics, str(topic), _create(stores, topic, partitions, rows))
    return rows


async def _check(stores: Stores, topic: TopicName, found: list[TopicName]) -> None:
    await stores.namespaces.policies(topic.namespace_name)
    if await stores.topics.exists(topic) or await stores.topics.partitions(topic):
        raise AlreadyExists(f"topic {topic} exists already", topic=str(topic))
    found.append(topic)


async def _create(stores: Stores, topic: TopicName, partitions: int, rows: list[dict[str, object]]) -> None:
    if partitions:
        await stores.topics.create_partitioned(topic, partitions)
    for log in [topic.partition_name(index) for index in range(partitions)] or [topic]:
        try:
            await stores.ledgers.create(log.path)
        except AlreadyExists:
            if not partitions:
                raise
            # A client created the partition between the two writes, with the same result.
    rows.append({"topic": str(topic), "partitions": partitions, "created": True})
