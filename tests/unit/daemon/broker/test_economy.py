"""What the hot paths may cost, counted: writes to sockets, requests to bookies, reads of ledgers, tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.protocol.connection import OUT_BYTES_MAX
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.topic import Topic

from bkctl.client.bookie import BookieConnection
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, encode_command
from bkctl.errors import BadBytes
from bkctl.model.topic import TopicName
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.protocol.broker import BrokerConversation, Sends
from tests.broker.raw import Stage, batch_of, entry_of, on_stage
from tests.unit.log.logs import until

TOPIC = "persistent://public/default/t"


class Counted:
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


def counted(stage: Stage) -> list[Counted]:
    """Every connection that the broker has now, with its writes counted."""
    found = []
    for connection in stage.server.connections:
        transport: Any = Counted(connection._transport)
        connection._transport = transport
        found.append(transport)
    return found


def fetches(stage: Stage) -> list[int]:
    """How many entries each read of a ledger fetches from now on."""
    topic: Any
    (topic,) = stage.server.topics.open.values()
    reads, found = topic.ledger._reads, []
    fetch = reads._fetch

    async def counting(ledger_id: int, first: int, last: int) -> list[bytes]:
        found.append(last - first + 1)
        return await fetch(ledger_id, first, last)

    reads._fetch = counting
    return found


def test_a_long_entry_is_written_to_bookies_without_a_copy() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        topic: Any
        (topic,) = stage.server.topics.open.values()
        writer = topic.ledger._writer
        links: list[Any] = []
        for bookie in writer.core.ensemble:
            link: Any = writer.context.pool.connection(bookie, ledger_id=writer.ledger_id)._link
            link.transport = Counted(link.transport)
            links.append(link.transport)
        client.publish(1, b"x" * 200_000)
        await client.until(lambda: all(link.parts for link in links))
        assert [len(link.writes) for link in links] == [1, 1]
        await client.next(Command.SEND_RECEIPT)

    on_stage(scenario)
    entry = b"e" * 1000
    tokens, parts = BookieConversation(2).add_parts(5, b"k" * 20, [(7, entry), (8, entry)])
    assert len(tokens) == 2
    assert sum(part is entry for part in parts) == 2
    assert b"".join(parts) == BookieConversation(2).add_many(5, b"k" * 20, [(7, entry), (8, entry)])[1]


def dispatchers_tasks() -> list[str]:
    """The tasks that dispatchers make from now on."""
    found: list[str] = []

    def made(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        if "dispatch" in work.cr_code.co_filename:
            found.append(work.__name__)
        return asyncio.Task(work, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(made)
    return found


def test_what_arrives_together_goes_to_each_bookie_and_is_confirmed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    send_adds = BookieConnection.send_adds

    def counting(self: BookieConnection, ledger_id: int, key: bytes, entry_ids: Any, *rest: Any) -> None:
        batches.append(len(entry_ids))
        send_adds(self, ledger_id, key, entry_ids, *rest)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        (writes,) = counted(stage)
        monkeypatch.setattr(BookieConnection, "send_adds", counting)
        client.write(
            b"".join(encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i) for i in range(200))
        )
        said = [await client.next(Command.SEND_RECEIPT) for _ in range(200)]
        assert [s.message.sequence_id for s in said] == list(range(200))
        assert batches == [200, 200]  # two bookies
        assert len(writes.writes) <= 3  # as answers of bookies came in

    on_stage(scenario)


def test_ten_subscriptions_at_the_tail_read_no_ledger_and_get_one_write_a_read() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for number in range(10):
            await client.subscribe(TOPIC, f"s{number}", consumer_id=number)
            client.flow(1000, consumer_id=number)
        await asyncio.sleep(1)
        read = fetches(stage)
        tasks = dispatchers_tasks()
        (writes,) = counted(stage)
        frames = [encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i) for i in range(50)]
        client.write(b"".join(frames))
        await client.until(lambda: sum(s.kind == Command.MESSAGE for s in client.said) == 500)
        assert read == []
        assert tasks == []
        assert len(writes.writes) <= 6  # receipts, then what ten subscriptions were given in the same turn

    on_stage(scenario)


def test_a_backlog_in_memory_goes_out_a_megabyte_at_a_time_until_the_client_takes_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        big = [entry_of(i, b"x" * 300_000) for i in range(40)]
        for number, entry in enumerate(big):
            client.send(Command.SEND, entry, producer_id=0, sequence_id=number)
            await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC)
        (writes,) = counted(stage)
        most: list[int] = []
        connection: Any
        (connection,) = stage.server.connections
        flush = connection._flush
        connection._flush = lambda: (most.append(connection._out_bytes), flush())
        client.flow(1000)
        assert [s.entry for s in await client.messages(40)] == big
        assert max(most) <= OUT_BYTES_MAX + TopicRules().read_bytes_max
        assert len(writes.writes) >= 3

    on_stage(scenario)


def test_a_batch_stays_one_object_from_its_frame_to_its_consumers() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.flow(2000)
        topic: Any
        (topic,) = stage.server.topics.open.values()
        added: list[bytes] = []
        add_many = topic.ledger.add_many
        topic.ledger.add_many = lambda entries: (added.extend(entries), add_many(entries))
        delivered: list[bytes] = []
        (consumer,) = topic.subscriptions["s"].consumers
        queue = consumer.connection.queue
        consumer.connection.queue = lambda parts: (delivered.extend(parts), queue(parts))
        body = batch_of(0, [b"m"] * 1000)
        client.send(Command.SEND, body, producer_id=0, sequence_id=0, num_messages=1000)
        said = await client.next(Command.MESSAGE)
        assert said.entry == body
        assert len(added) == 1
        assert any(part is added[0] for part in delivered)

    on_stage(scenario)


def test_a_send_is_the_same_however_its_command_is_written() -> None:
    usual = encode_command(Command.SEND, b"entry", producer_id=7, sequence_id=300, num_messages=2)
    send = api.CommandSend(producer_id=7, sequence_id=300, num_messages=2).SerializeToString()
    other_order = b"\x32" + bytes((len(send),)) + send + b"\x08\x06"
    with_more = b"\x08\x06\x32" + bytes((len(send),)) + send + b"\xf8\x7f\x01"  # a field nobody knows
    events = []
    for command in (None, other_order, with_more):
        conversation = BrokerConversation()
        conversation.accept(api.CommandConnect(client_version="c", protocol_version=20), server_version="s")
        frame = usual
        if command is not None:
            size = len(command).to_bytes(4, "big")
            frame = (4 + len(command) + 5).to_bytes(4, "big") + size + command + b"entry"
        events.append(conversation.feed(frame))
        assert conversation.failed is None
    assert events[0] == events[1] == events[2] == [Sends(7, [(300, 0, 2, b"entry", False)], 5)]


@pytest.mark.parametrize("send", [b"\x08\x07", b"\x10\x01", b"\x08", b"\x08\x07\x10\x01\x1f"])
def test_a_send_that_lacks_something_or_is_damaged_ends_the_conversation(send: bytes) -> None:
    conversation = BrokerConversation()
    conversation.accept(api.CommandConnect(client_version="c", protocol_version=20), server_version="s")
    command = b"\x08\x06\x32" + bytes((len(send),)) + send
    frame = (4 + len(command) + 1).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + b"e"
    assert conversation.feed(frame) == []
    assert isinstance(conversation.failed, BadBytes)


def test_who_has_many_producers_is_asked_about_none_of_them_while_little_waits_to_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for i in range(50):
            await client.produce(f"{TOPIC}{i}", producer_id=i)
        asked: list[Topic] = []
        congested: Any = Topic.congested

        def counting(topic: Topic) -> bool:
            asked.append(topic)
            return bool(congested.fget(topic))

        monkeypatch.setattr(Topic, "congested", property(counting))
        for i in range(20):
            client.publish(i)
        for _ in range(20):
            await client.next(Command.SEND_RECEIPT)
        assert asked == []
        topic = stage.server.topics.open[TopicName.parse(f"{TOPIC}0")]
        assert isinstance(topic, Topic)
        monkeypatch.setattr(topic.ledger, "_drain", lambda: None)
        topic.ledger.add_many([bytes(1 << 20)] * 17)
        client.publish(20)
        await until(lambda: topic in asked)
        (connection,) = stage.server.connections
        assert not connection.reading

    on_stage(scenario)
