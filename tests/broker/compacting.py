"""Topics that are compacted in tests: their messages, and what readers get."""

from __future__ import annotations

import asyncio

from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import split_entry
from bkctl.model.topic import TopicName
from tests.broker.raw import RawClient, Said, Stage
from tests.broker.scenarios import TOPIC
from tests.unit.log.logs import until

NAME = TopicName.parse(TOPIC)
RULES = TopicRules(compaction_threshold=10**9)
"""No compaction starts by itself, but nothing is trimmed before one."""
LIVE = {"k0": "v27", "k1": "v28", "k2": "v29"}
"""The last values after `fill(client, 30)`."""


async def fill(client: RawClient, count: int, start: int = 0) -> None:
    """Publishes values v0, v1, … of three keys in turn, and waits for their receipts."""
    for i in range(start, start + count):
        client.publish(i, b"v%d" % i, partition_key=f"k{i % 3}")
    for _ in range(count):
        await client.next(Command.SEND_RECEIPT)


async def topic_of(stage: Stage) -> Topic:
    """Returns the topic, opened or created."""
    found = await stage.server.topics.get(NAME, create=True)
    assert isinstance(found, Topic)
    return found


async def compact(topic: Topic) -> None:
    """Runs a compaction to its end."""
    topic.compaction.trigger(topic.rules)
    await until(lambda: not topic.compaction.running)
    assert topic.compaction.status == {"status": "SUCCESS", "lastError": ""}


def key_values(said: list[Said]) -> list[tuple[str, str]]:
    """Returns key and value of messages."""
    parts = [split_entry(one.entry) for one in said]
    return [(metadata.partition_key, payload.decode()) for metadata, payload in parts]


async def take_everything(client: RawClient, consumer_id: int = 0) -> list[Said]:
    """Takes the messages that a consumer is sent until no more come."""
    client.flow(1000, consumer_id)
    await asyncio.sleep(3)  # of virtual time
    found = [one for one in client.said if one.kind == Command.MESSAGE and one.message.consumer_id == consumer_id]
    client.said = [one for one in client.said if one not in found]
    return found
