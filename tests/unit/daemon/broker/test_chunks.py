"""Chunked messages: which of their chunks are stored, over fail-overs and snapshots, and in what order they go out."""

from __future__ import annotations

import pytest
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic import deduplication
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import encode_entry, split_entry
from tests.broker.raw import RawClient, Stage, on_stage

TOPIC = "persistent://public/default/t"


def chunk(client: RawClient, sequence_id: int, chunk_id: int, count: int = 3, *, at_ms: int = 1) -> None:
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


async def stored(client: RawClient) -> bool:
    """True if what was sent is stored by this, false for a duplicate."""
    return bool((await client.next(Command.SEND_RECEIPT)).message.message_id.entryId >= 0)


async def next_owner(stage: Stage, client: RawClient) -> int:
    """Closes the topic; the producer comes back, and is told its last number."""
    (name,) = stage.server.topics.open
    await stage.server.topics.unload(name)
    await client.next(Command.CLOSE_PRODUCER)
    return int((await client.produce(TOPIC, producer_name="p")).last_sequence_id)


def entries(stage: Stage) -> int:
    (topic,) = stage.server.topics.open.values()
    assert isinstance(topic, Topic)
    return topic.ledger.ledgers.entries_total


@pytest.mark.parametrize("snapshot_entries", [1, 2, 1000])
@pytest.mark.parametrize("sent", [1, 2])
def test_of_a_message_that_is_not_whole_the_next_owner_takes_the_chunks_that_are_missing(
    sent: int, snapshot_entries: int
) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        client.publish(4)
        assert await stored(client)
        for chunk_id in range(sent):
            chunk(client, 7, chunk_id)
            assert await stored(client)
        for _ in range(2):
            assert await next_owner(stage, client) == 4, "message 7 is not whole"
        for chunk_id in range(3):
            chunk(client, 7, chunk_id)
            assert await stored(client) == (chunk_id >= sent)
        assert await next_owner(stage, client) == 7
        for chunk_id in range(3):
            chunk(client, 7, chunk_id)
            assert not await stored(client)
        assert entries(stage) == 4

    on_stage(scenario, rules=TopicRules(deduplication=True, deduplication_entries=snapshot_entries))


def test_another_attempt_at_a_message_that_is_not_whole_is_stored_from_its_first_chunk() -> None:
    """A producer's process that comes back may cut, compress or encrypt it otherwise: old and new do not mix."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        for chunk_id in range(2):
            chunk(client, 7, chunk_id)
            assert await stored(client)
        for chunk_id in range(3):
            chunk(client, 7, chunk_id, at_ms=2)
            assert await stored(client)
        chunk(client, 7, 2, at_ms=3)
        assert not await stored(client)
        assert entries(stage) == 5

    on_stage(scenario, rules=TopicRules(deduplication=True))


def test_a_message_that_never_becomes_whole_does_not_hold_snapshots_back_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deduplication, "UNFINISHED_ENTRIES_MAX", 20)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        await client.produce(TOPIC, 1, producer_name="q")
        chunk(client, 7, 0)
        marks: list[int] = []
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        for sequence_id in range(30):
            client.publish(sequence_id, producer_id=1, producer="q")
            await client.next(Command.SEND_RECEIPT)
            marks.append(topic.ledger.cursors[deduplication.CURSOR].mark_delete.entry_id)
        assert marks[10] == -1
        assert marks[-1] > 20

    on_stage(scenario, rules=TopicRules(deduplication=True, deduplication_entries=2))


def test_a_chunk_does_not_pass_one_of_its_message_that_waits_to_be_sent_again() -> None:
    """A consumer came back to life between the read of what waits and that of what is new."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        await client.subscribe(TOPIC, kind=1)
        for chunk_id in range(3):
            chunk(client, 0, chunk_id)
            assert await stored(client)
        (topic,) = stage.server.topics.open.values()
        assert isinstance(topic, Topic)
        subscription = topic.subscriptions["s"]
        dispatcher = subscription.dispatcher
        assert isinstance(dispatcher, Shared)
        first = topic.ledger.first_position
        dispatcher._again_later(first)
        subscription.consumers[0].permits = 10
        (second,) = await topic.ledger.read(topic.ledger.next_position(first), 1, 1)
        subscription.cursor.read_position = topic.ledger.next_position(second[0])
        dispatcher._hand_out([second])
        dispatcher.wake()
        assert [split_entry(s.entry)[0].chunk_id for s in await client.messages(3)] == [0, 1, 2]

    on_stage(scenario)
