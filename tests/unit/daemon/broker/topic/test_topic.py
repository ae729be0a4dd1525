"""A persistent topic: receipts in order, refused sends, failures, termination, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.model.topic import Position, TopicName
from bkctl.protocol.bookie_client import BookieConversation
from tests.broker.raw import Stage, batch_of, entry_of, on_stage
from tests.broker.scenarios import (
    TOPIC,
    CountedTransport,
    open_topic,
    producing,
    publish,
)
from tests.unit.log.logs import until
from tests.unit.log.store_faults import HeldWrites


def test_terminating_a_topic_closes_its_producers_before_pending_sends_fail() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        topic = open_topic(stage)
        held = HeldWrites(stage.broker.ledgers.store, "/t")
        terminating = asyncio.ensure_future(topic.terminate())
        await until(lambda: held.waiting)
        for number in range(2):
            client.publish(number)
        await until(lambda: topic.ledger.waiting == 2)
        held.release()
        await terminating
        await until(lambda: len(client.said) == 3)
        kinds = [said.kind for said in client.said]
        assert kinds == [Command.CLOSE_PRODUCER, Command.SEND_ERROR, Command.SEND_ERROR]

    on_stage(scenario)


def test_receipts_are_sent_in_order_with_errors_in_their_place() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        good, bad = entry_of(0), bytearray(entry_of(1))
        bad[-1] ^= 1
        frames = [
            encode_command(Command.SEND, bytes(bad) if i == 3 else good, producer_id=0, sequence_id=i) for i in range(6)
        ]
        client.write(b"".join(frames))
        client.send(Command.CLOSE_PRODUCER, producer_id=0, request_id=99)
        said = [await client.next() for _ in range(7)]
        kinds = [Command.SEND_RECEIPT] * 3 + [Command.SEND_ERROR] + [Command.SEND_RECEIPT] * 2 + [Command.SUCCESS]
        assert [s.kind for s in said] == kinds
        assert [s.message.sequence_id for s in said[:6]] == list(range(6))
        assert said[3].message.error == ErrorCode.CHECKSUM
        stored = [s.message.message_id.entryId for s in said[:6] if s.kind == Command.SEND_RECEIPT]
        assert stored == list(range(5))

    on_stage(scenario)


def test_entries_are_delivered_byte_for_byte() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC)
        with_unknown = entry_of(0, b"\x00\xff payload", properties=[api.KeyValue(key="k", value="v")])
        without_checksum = entry_of(1, b"no checksum")[6:]
        batch = batch_of(2, [b"a", b"", b"c"])
        for sequence_id, entry in enumerate((with_unknown, without_checksum, batch)):
            client.send(Command.SEND, entry, producer_id=0, sequence_id=sequence_id)
        client.flow(10)
        said = await client.messages(3)
        assert [s.entry for s in said] == [with_unknown, without_checksum, batch]

    on_stage(scenario)


def test_a_batch_is_not_copied_between_its_frame_and_its_consumers() -> None:
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
            link.transport = CountedTransport(link.transport)
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


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_message_over_the_topic_s_size_limit_is_refused_unless_it_is_a_chunk(domain: str) -> None:
    """As AbstractTopic.isExceedMaximumMessageSize: with its metadata; chunks are let through."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(f"{domain}://public/default/t")
        most = len(entry_of(0, b"x" * 100))
        stage.server.topics.open[TopicName.parse(f"{domain}://public/default/t")].rules = TopicRules(
            message_size_max=most
        )
        client.publish(0, b"x" * 100)
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 0
        client.publish(1, b"x" * 101)
        told = (await client.next(Command.SEND_ERROR)).message
        words = (1, ErrorCode.NOT_ALLOWED, "Exceed maximum message size")
        assert (told.sequence_id, told.error, told.message) == words
        entry = entry_of(2, b"x" * 101, num_chunks_from_msg=2, chunk_id=0, uuid="u", total_chunk_msg_size=202)
        client.send(Command.SEND, entry, producer_id=0, sequence_id=2, is_chunk=True)
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 2

    on_stage(scenario)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", ErrorCode.PRODUCER_BLOCKED_QUOTA_ERROR),
        ("producer_exception", ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION),
    ],
)
def test_producers_are_closed_and_refused_while_the_backlog_quota_is_exceeded(policy: str, error: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        (topic,) = stage.server.topics.open.values()
        topic.rules = replace(topic.rules, backlog_exceeded=policy)
        assert (await client.next()).kind == Command.CLOSE_PRODUCER
        assert (await client.produce(TOPIC)).error == error
        topic.rules = replace(topic.rules, backlog_exceeded=None)
        assert (await client.produce(TOPIC)).producer_ready

    on_stage(scenario)


def test_a_subscription_deleted_twice_at_once_is_deleted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC)
        topic = open_topic(stage)
        subscription = topic.subscriptions["s"]
        await asyncio.gather(*(topic.delete_subscription(subscription) for _ in range(2)))
        assert (topic.subscriptions, topic.ledger.cursors) == ({}, {})

    on_stage(scenario)


def test_the_last_message_id_is_not_that_of_a_marker() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.publish(0)
        client.publish(1, marker_type=10)
        client.publish(2, marker_type=10)
        for _ in range(3):
            await client.next(Command.SEND_RECEIPT)
        last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
        assert last.last_message_id.entryId == 0
        await client.produce(f"{TOPIC}2", 1)
        await client.subscribe(f"{TOPIC}2", consumer_id=1)
        client.publish(0, producer_id=1, marker_type=10)
        await client.next(Command.SEND_RECEIPT)
        last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
        assert Position(last.last_message_id.ledgerId, last.last_message_id.entryId) == (-1, -1)

    on_stage(scenario)


def test_a_topic_whose_ledger_fails_closes_its_clients_without_send_errors() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        (topic,) = stage.server.topics.open.values()
        topic.ledger.failed(__import__("bkctl.errors").errors.Conflict("another owner"))
        client.publish(0)
        said = {(await client.next()).kind for _ in range(2)}
        assert said == {Command.CLOSE_PRODUCER, Command.CLOSE_CONSUMER}
        await asyncio.sleep(1)
        assert client.said == []
        assert not client.ended, "what it sent before it heard is ignored"
        assert not (await client.produce(TOPIC)).HasField("topic_epoch"), "it comes back"

    on_stage(scenario)


def test_a_terminated_topic_refuses_producers_and_reports_its_end() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 2)
        cpp = await stage.client(client_version="Pulsar-CPP-v4.2.0")
        await client.subscribe(TOPIC)
        await cpp.subscribe(TOPIC, "cpp")
        (topic,) = stage.server.topics.open.values()
        await topic.terminate()
        assert (await client.next()).kind == Command.CLOSE_PRODUCER
        assert (await client.produce(TOPIC, producer_id=9)).error == ErrorCode.TOPIC_TERMINATED
        for each in (client, cpp):
            each.flow(10)
            each.ack(*await each.messages(2))
        assert (await client.next()).kind == Command.REACHED_END_OF_TOPIC
        await asyncio.sleep(1)
        assert cpp.said == []

    on_stage(scenario)


def test_pending_sends_are_refused_when_the_topic_is_terminated() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await publish(client, 0, 3)
        topic = open_topic(stage)
        held = HeldWrites(stage.broker.ledgers.store, "/t")
        terminating = asyncio.ensure_future(topic.terminate())
        await until(lambda: held.waiting)
        for i in range(3, 6):
            client.publish(i)
        await until(lambda: topic.ledger.waiting == 3)
        held.release()
        last = await terminating
        assert last.entry_id == 2
        told = [await client.next(Command.SEND_ERROR) for _ in range(3)]
        assert [(t.message.sequence_id, t.message.error) for t in told] == [
            (i, ErrorCode.TOPIC_TERMINATED) for i in range(3, 6)
        ]
        (connection,) = stage.server.connections
        assert (connection.pending, topic.ledger.waiting, stage.backend.unconfirmed_bytes) == (0, 0, 0)

    on_stage(scenario)


def test_a_terminated_topic_keeps_its_last_ledger() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        ledger = open_topic(stage).ledger
        await ledger.roll()
        client.publish(1)
        place = (await client.next(Command.SEND_RECEIPT)).message.message_id
        await open_topic(stage).terminate()
        await client.subscribe(TOPIC)
        client.send(Command.ACK, consumer_id=0, ack_type=1, message_id=[place], request_id=80)
        await client.next(Command.ACK_RESPONSE)
        ledger.settings = replace(ledger.settings, retention_s=0, retention_bytes=0)
        await ledger.trim()
        assert ledger.ledgers.ids == [place.ledgerId]

    on_stage(scenario)
