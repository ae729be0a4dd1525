"""What a broker keeps in memory for clients that do not take, ask for too much, or are very many, in objects."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from bkdaemon.broker.protocol.connection import WRITE_BUFFER_HIGH
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.errors import UsageError
from bkctl.log.log import Log
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import ENTRY_HEADROOM
from tests.broker.raw import RawClient, Stage, on_stage
from tests.unit.log.logs import Broker, on_brokers

TOPIC = "persistent://public/default/t"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
PERMITS_MAX = 2**31 - 1
MIB = 1 << 20


def transport_of(client: RawClient) -> Any:
    return client._transport


def buffered(stage: Stage) -> int:
    """Bytes that connections have written and the network has not taken."""
    transports = [c._transport for c in stage.server.connections if c._transport is not None]
    return max(transport.get_write_buffer_size() for transport in transports)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_a_client_that_does_not_read_is_sent_no_more_than_its_buffers_hold(kind: int) -> None:
    async def scenario(stage: Stage) -> None:
        client, slow = await stage.client(), await stage.client()
        await client.produce(TOPIC)
        await slow.subscribe(TOPIC, kind=kind)
        transport_of(slow).pause_reading()
        slow.flow(PERMITS_MAX)
        most = 0
        for i in range(60):
            client.publish(i, bytes(MIB), partition_key=f"k{i % 5}")
            await client.next(Command.SEND_RECEIPT)
            most = max(most, buffered(stage))
        await asyncio.sleep(5)
        most = max(most, buffered(stage))
        assert WRITE_BUFFER_HIGH / 4 < most <= WRITE_BUFFER_HIGH + 2 * TopicRules().read_bytes_max
        (connection,) = (c for c in stage.server.connections if not c.writable)
        assert sum(map(len, connection._out)) == 0
        transport_of(slow).resume_reading()
        assert len(await slow.messages(60)) == 60

    on_stage(scenario)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
def test_the_largest_number_of_permits_is_accepted(kind: int) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind)
        client.flow(PERMITS_MAX)
        client.flow(PERMITS_MAX)
        for i in range(500):
            client.publish(i, b"%d" % i)
        found = await client.messages(500)
        assert len({s.message.message_id.entryId for s in found}) == 500

    on_stage(scenario)


def test_the_largest_number_of_permits_does_not_exceed_the_unacknowledged_limit() -> None:
    most = 200

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(PERMITS_MAX)
        for i in range(1000):
            client.publish(i)
        await asyncio.sleep(10)
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        (consumer,) = topic.subscriptions["s"].consumers
        assert most <= len(consumer.pending) < most + TopicRules().read_entries_max

    on_stage(scenario, rules=TopicRules(unacked_per_consumer_max=most))


def test_500_topics_leave_nothing_behind() -> None:
    topics = [f"{TOPIC}{i}" for i in range(500)]

    def opened() -> int:
        """Counts this test's topics in memory; another test of the process may have a broker with topics."""
        return len([o for o in gc.get_objects() if isinstance(o, Topic) and str(o.name) in topics])

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        tasks = len(asyncio.all_tasks())
        for number, topic in enumerate(topics):
            assert (await client.produce(topic, number)).producer_ready
            client.publish(0, b"x" * 1000, number)
        for _ in topics:
            await client.next(Command.SEND_RECEIPT)
        assert len(stage.server.topics.open) == len(topics) == opened()
        assert len(asyncio.all_tasks()) <= tasks + 3 * len(topics)
        assert stage.broker.context.cache.tail_bytes < 2000 * len(topics)
        for name in list(stage.server.topics.open):
            await stage.server.topics.unload(name)
        await client.until(lambda: len([s for s in client.said if s.kind == Command.CLOSE_PRODUCER]) == len(topics))
        client.said.clear()
        await asyncio.sleep(60)
        assert stage.server.topics.open == {}
        assert stage.broker.context.cache.tail_bytes == 0
        assert len(asyncio.all_tasks()) <= tasks + 5
        loop = asyncio.get_running_loop()
        loop._tasks = [t for t in loop._tasks if not t.done()]  # type: ignore[attr-defined] # as the simulator does at times
        gc.collect()
        assert opened() <= 1

    on_stage(scenario)


def test_1000_closed_connections_leave_nothing_behind() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.client()
        await first.produce(TOPIC)
        clients = [await stage.client() for _ in range(1000)]
        for number, client in enumerate(clients):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=number)
            client.flow(1, number)
        for i in range(1000):
            first.publish(i)
        for client in clients:
            await client.messages(1)
        assert len(stage.server.connections) == 1001
        for client in clients:
            client.cut()
        await asyncio.sleep(1)
        assert len(stage.server.connections) == 1
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        assert topic.subscriptions["s"].consumers == []
        assert topic.subscriptions["s"].cursor.backlog() == 1000

    on_stage(scenario)


@pytest.mark.parametrize("reason", ["producer_request_hold", "producer_exception"])
def test_a_producer_over_quota_is_refused_with_a_reason(reason: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        refused = await client.produce(TOPIC)
        assert "quota exceeded" in refused.message
        held = reason == "producer_request_hold"
        code = ErrorCode.PRODUCER_BLOCKED_QUOTA_ERROR if held else ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION
        assert refused.error == code

    on_stage(scenario, rules=TopicRules(backlog_exceeded=reason))


def test_an_entry_above_the_limit_of_bookies_is_refused_before_it_is_written() -> None:
    """Bookies end the connection of who sends them a frame above their limit; a writer tried one after another."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        most = stage.broker.context.entry_size_max
        client.publish(0, b"before")
        client.publish(1, bytes(most))
        client.publish(2, b"behind")
        said = [await client.next() for _ in range(3)]
        assert [s.kind for s in said] == [Command.SEND_RECEIPT, Command.SEND_ERROR, Command.SEND_RECEIPT]
        refused = said[1].message
        assert (refused.sequence_id, refused.error) == (1, ErrorCode.NOT_ALLOWED)
        assert "nettyMaxFrameSizeBytes" in refused.message
        client.publish(3, bytes(most - 100))
        assert (await client.next()).kind == Command.SEND_RECEIPT
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        assert topic.ledger.last_confirmed.entry_id == 2
        assert len(topic.ledger.ledgers.ids) == 1

    on_stage(scenario, max_message_size=8 * MIB)


def test_bookies_accept_an_entry_of_maximum_size_and_no_longer_one() -> None:
    async def scenario(broker: Broker) -> None:
        most = broker.context.entry_size_max
        assert most == broker.context.bookkeeper.context.config.entry_size_max - ENTRY_HEADROOM
        log = Log(
            await ManagedLedger.open(broker.context, "public/default/persistent/big", (await broker.open()).settings)
        )
        with pytest.raises(UsageError, match="bookies take"):
            await log.append([b"", bytes(most + 1)])
        (position,) = await log.append([bytes(most)])
        assert position.entry_id == 0
        await log.close()

    on_brokers(scenario)


def test_a_long_frame_before_connect_allocates_no_memory() -> None:
    async def scenario(stage: Stage) -> None:
        for size, ends in ((65_536, False), (65_537, True), (4 * MIB, True)):
            client = await stage.client(connect=False)
            client.write(size.to_bytes(4, "big") + bytes(100))
            await asyncio.sleep(5)
            assert client.ended == ends
        client = await stage.client(connect=False)
        client.send(Command.CONNECT, client_version="raw", protocol_version=20, auth_data=bytes(60_000))
        assert (await client.next()).kind == Command.CONNECTED
        await client.produce(TOPIC)
        client.publish(0, bytes(4 * MIB))
        assert (await client.next()).kind == Command.SEND_RECEIPT

    on_stage(scenario)


@pytest.mark.parametrize(
    "frame",
    [
        b"\x7f\xff\xff\xff" + bytes(100),  # two gigabytes are announced
        b"\xff\xff\xff\xff" + bytes(100),
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x7f\xff\xff\xff\x08\x12\x00\x00",  # a command longer than its frame
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        bytes(range(64, 256)) * 10,
    ],
)
@pytest.mark.parametrize("connected", [True, False])
def test_an_invalid_frame_closes_its_connection_and_no_other(frame: bytes, connected: bool) -> None:
    async def scenario(stage: Stage) -> None:
        good = await stage.client()
        bad = await stage.client(connect=connected)
        bad.write(frame)
        await bad.end()
        good.write(encode_command(Command.PING))
        assert (await good.next()).kind == Command.PONG
        assert len(stage.server.connections) == 1

    on_stage(scenario)
