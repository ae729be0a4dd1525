"""Steps of scenarios that tests of the broker share: topics, publishing, received messages, counted writes."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, SubscriptionType
from bkctl.codec.pulsar_entry import encode_entry, split_entry
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin
from tests.broker.raw import PORT, RawClient, Said, Stage

TOPIC = "persistent://public/default/t"
NON_PERSISTENT_TOPIC = "non-persistent://public/default/t"
EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED
FIRST_ID = api.MessageIdData(ledgerId=-1, entryId=-1)
HOST = "client"


def open_topic(stage: Stage, name: str | None = None) -> Topic:
    """Returns the only persistent topic that is open, or the one of that name."""
    every = stage.server.topics.open
    found = [every[TopicName.parse(name)]] if name else [topic for topic in every.values() if topic.persistent]
    (topic,) = found
    assert isinstance(topic, Topic)
    return topic


async def connected(admin: Admin) -> RawClient:
    """Returns a client of a broker with a REST interface, and opens the broker's port for it."""
    await admin.service.server.start(HOST, PORT)
    _, protocol = await admin.service.world.network.connect(HOST, PORT, RawClient)
    client = cast("RawClient", protocol)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    return client


# -- producers -------------------------------------------------------------------------------------------------------


async def producing(stage: Stage, count: int = 0, topic: str = TOPIC, **metadata: Any) -> RawClient:
    """Returns a client with producer 0 of a topic, to which it has published that many messages."""
    client = await stage.client()
    await client.produce(topic)
    await publish(client, 0, count, **metadata)
    return client


async def publish(client: RawClient, start: int, count: int, keys: int = 0, **metadata: Any) -> None:
    """Publishes messages whose payloads are their numbers, with keys k0, k1, …, and waits for their receipts."""
    for i in range(start, start + count):
        if keys:
            metadata["partition_key"] = f"k{i % keys}"
        client.publish(i, b"%d" % i, **metadata)
    for _ in range(count):
        await client.next(Command.SEND_RECEIPT)


async def publish_chunk(client: RawClient, sequence_id: int, chunk_id: int, count: int = 3, *, at_ms: int = 1) -> bool:
    """Publishes a chunk of a message; true if it is stored, false if it is a duplicate."""
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=at_ms,
        uuid=f"p-{sequence_id}",
        chunk_id=chunk_id,
        num_chunks_from_msg=count,
        total_chunk_msg_size=count,
    )
    client.send(Command.SEND, encode_entry(metadata, b"x"), producer_id=0, sequence_id=sequence_id, is_chunk=True)
    return await is_stored(client)


async def is_stored(client: RawClient) -> bool:
    """Takes the next receipt; true if it has a position, false for a duplicate."""
    return bool((await client.next(Command.SEND_RECEIPT)).message.message_id.entryId >= 0)


# -- consumers -------------------------------------------------------------------------------------------------------


def take_messages(client: RawClient) -> list[Said]:
    """Takes the MESSAGEs that have arrived."""
    found = [s for s in client.said if s.kind == Command.MESSAGE]
    client.said[:] = [s for s in client.said if s.kind != Command.MESSAGE]
    return found


def redeliver(client: RawClient, *said: Said, consumer_id: int = 0) -> None:
    """Asks for messages again."""
    ids = [s.message.message_id for s in said]
    client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=consumer_id, message_ids=ids)


def payload_number(said: Said) -> int:
    """Returns the number that `publish` gave a message."""
    return int(split_entry(said.entry)[1])


def key_of(said: Said) -> str:
    """Returns the key of a message."""
    return str(split_entry(said.entry)[0].partition_key)


def entry_ids(said: list[Said]) -> list[int]:
    """Returns the entry ids of messages."""
    return [s.message.message_id.entryId for s in said]


class NamedConsumer:
    """A consumer as far as the division of slots knows it."""

    def __init__(self, name: str) -> None:
        self.name = name


# -- connections -----------------------------------------------------------------------------------------------------


class CountedTransport:
    """A transport that counts what is written to it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.writes: list[int] = []
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(len(data))
        self._transport.write(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.writes.append(sum(map(len, parts)))
        self.parts += parts
        self._transport.writelines(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def counted_transports(stage: Stage) -> list[CountedTransport]:
    """Counts the writes of every connection that the broker has now."""
    found = []
    for connection in stage.server.connections:
        transport: Any = CountedTransport(connection._transport)
        connection._transport = transport
        found.append(transport)
    return found


def damaged_frame(random: Random, raw: bytes) -> bytes:
    """Returns a frame with a few bytes changed, mostly after its sizes, so that the decoder accepts most of them."""
    data = bytearray(raw)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        low = 8 if random.random() < 0.9 else 0
        if len(data) > low:
            data[random.randrange(low, len(data))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(data)
