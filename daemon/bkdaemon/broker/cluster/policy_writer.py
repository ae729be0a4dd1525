"""Writes the policies of single topics, as events in their namespace's topic `__change_events`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bkinspect.topic_policies import Policies, encode_event, policies_key, schema_text, system_topic

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.errors import Unavailable
from bkdaemon.broker.topic.backend import StoredSchema
from bkdaemon.broker.topic.compatibility import AVRO, encode_version
from bkdaemon.broker.topic.producers import Producer
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.cluster.broker import Broker

SCHEMA_PROPERTIES: Final = {"__jsr310ConversionEnabled": "false", "__alwaysAllowNull": "true"}
STORE_TIMEOUT_S: Final = 30.0


class _Local:
    """The part of a connection that a producer inside the broker needs."""

    def __init__(self) -> None:
        self.pending = 0
        self.stored = asyncio.Event()

    def queue(self, parts: object) -> None:
        """Drops receipts."""

    def confirmed(self, count: int) -> None:
        """Notes that the message is stored, or that its topic is closed."""
        self.stored.set()


async def write_policies(
    broker: Broker, topic: TopicName, policies: Policies | None, *, everywhere: bool = False
) -> None:
    """Stores the policies of a topic, None to remove them. This broker must own the namespace's system topic.

    Raises:
        Unavailable: they could not be stored.
    """
    where = system_topic(topic.namespace_name)
    found = await broker.server.topics.get(where, create=True)
    assert isinstance(found, Topic)
    schema = StoredSchema(-1, AVRO, schema_text().encode(), dict(SCHEMA_PROPERTIES))
    version = await broker.server.schemas.admit(where, schema)
    value = b"" if policies is None else encode_event(topic, policies, broker.config.cluster)
    metadata = api.MessageMetadata(
        producer_name=broker.backend.producer_name(),
        sequence_id=0,
        publish_time=broker.world.clock.now_ms(),
        partition_key=policies_key(str(topic), everywhere=everywhere),
        replicate_to=[] if everywhere else [broker.config.cluster],
        schema_version=encode_version(version),
        partition_key_b64_encoded=False,
    )
    if policies is None:
        metadata.null_value = True
    else:
        metadata.uncompressed_size = len(value)
    entry = encode_entry(metadata, value)
    connection = _Local()
    producer = Producer(connection, found, 0, metadata.producer_name)  # type: ignore[arg-type]
    found.publish(producer, [(0, 0, 1, entry, False)], len(entry))
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            await connection.stored.wait()
    except TimeoutError:
        raise Unavailable(f"{where} did not store the policies of {topic} within {STORE_TIMEOUT_S:.0f} s") from None
    found.check_open()
    await found.ledger.roll()
    broker.backend.policies.forget(topic.namespace_name)
