"""Duplicates and chunks of producers, also over a change of the topic's owner, in virtual time."""

from __future__ import annotations

import pytest
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic import deduplication
from bkdaemon.broker.topic.deduplication import INCOMPLETE_ENTRIES_MAX, Deduplication, DuplicateStatus
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command, encode_command
from bkctl.model.topic import Position
from tests.broker.raw import RawClient, Stage, entry_of, on_stage
from tests.broker.scenarios import TOPIC, is_stored, publish_chunk
from tests.unit.log.logs import Broker, on_brokers


async def next_owner(stage: Stage, client: RawClient) -> int:
    """Closes the topic; the producer comes back, and is told its last number."""
    (name,) = stage.server.topics.open
    await stage.server.topics.unload(name)
    await client.next(Command.CLOSE_PRODUCER)
    return int((await client.produce(TOPIC, producer_name="p")).last_sequence_id)


def entries_stored(stage: Stage) -> int:
    (topic,) = stage.server.topics.open.values()
    assert isinstance(topic, Topic)
    return topic.ledger.ledgers.entries_total


def test_deduplication_survives_a_reload_of_the_topic() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        for sequence_id in (0, 1, 1, 0, 5):
            client.publish(sequence_id)
            await client.next(Command.SEND_RECEIPT, Command.SEND_ERROR)
        (name,) = stage.server.topics.open
        for _ in range(2):
            await stage.server.topics.unload(name)
            await client.next(Command.CLOSE_PRODUCER)
            assert (await client.produce(TOPIC, producer_name="p")).last_sequence_id == 5
        client.publish(5)
        duplicate = (await client.next(Command.SEND_RECEIPT)).message
        assert (duplicate.message_id.ledgerId, duplicate.message_id.entryId) == (-1, -1)
        client.publish(6)
        stored = (await client.next(Command.SEND_RECEIPT)).message
        assert stored.message_id.entryId >= 0

    on_stage(scenario, rules=TopicRules(deduplication=True, deduplication_entries=2))


def test_thousands_of_duplicates_at_once_are_dropped() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        client.publish(5)
        await client.next(Command.SEND_RECEIPT)
        sends = [encode_command(Command.SEND, entry_of(i % 6), producer_id=0, sequence_id=i % 6) for i in range(3000)]
        client.write(b"".join(sends))
        client.publish(6)
        await client.until(lambda: len(client.said) == 3001)
        stored = [s.message.message_id.entryId for s in client.said]
        assert stored == [-1] * 3000 + [1]

    on_stage(scenario, rules=TopicRules(deduplication=True))


def test_chunks_of_a_message_share_a_sequence_id_and_are_not_duplicates() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        chunks = {"uuid": "p-7", "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
        for chunk_id in range(3):
            client.send(
                Command.SEND,
                entry_of(7, b"x", chunk_id=chunk_id, **chunks),
                producer_id=0,
                sequence_id=7,
                is_chunk=True,
            )
        places = [(await client.next(Command.SEND_RECEIPT)).message.message_id.entryId for _ in range(3)]
        assert places == [0, 1, 2]
        client.publish(8)
        assert (await client.next(Command.SEND_RECEIPT)).message.message_id.entryId == 3

    on_stage(scenario, rules=TopicRules(deduplication=True))


@pytest.mark.parametrize("snapshot_entries", [1, 2, 1000])
@pytest.mark.parametrize("sent", [1, 2])
def test_the_next_owner_stores_the_missing_chunks_of_an_incomplete_message(sent: int, snapshot_entries: int) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        client.publish(4)
        assert await is_stored(client)
        for chunk_id in range(sent):
            assert await publish_chunk(client, 7, chunk_id)
        for _ in range(2):
            assert await next_owner(stage, client) == 4, "message 7 is not whole"
        for chunk_id in range(3):
            assert await publish_chunk(client, 7, chunk_id) == (chunk_id >= sent)
        assert await next_owner(stage, client) == 7
        for chunk_id in range(3):
            assert not await publish_chunk(client, 7, chunk_id)
        assert entries_stored(stage) == 4

    on_stage(scenario, rules=TopicRules(deduplication=True, deduplication_entries=snapshot_entries))


def test_another_attempt_at_an_incomplete_message_is_stored_from_its_first_chunk() -> None:
    """A producer's process that comes back may cut, compress or encrypt it otherwise: old and new do not mix."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        for chunk_id in range(2):
            assert await publish_chunk(client, 7, chunk_id)
        for chunk_id in range(3):
            assert await publish_chunk(client, 7, chunk_id, at_ms=2)
        assert not await publish_chunk(client, 7, 2, at_ms=3)
        assert entries_stored(stage) == 5

    on_stage(scenario, rules=TopicRules(deduplication=True))


def test_an_incomplete_message_delays_snapshots_for_a_bounded_number_of_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deduplication, "INCOMPLETE_ENTRIES_MAX", 20)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        await client.produce(TOPIC, 1, producer_name="q")
        assert await publish_chunk(client, 7, 0)
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


def test_a_chunk_that_a_snapshot_has_dropped_is_new_again() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        known = await Deduplication.recover(log, INCOMPLETE_ENTRIES_MAX)
        chunk = entry_of(0, uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=2)
        assert known.status_of("p", 0, 0, chunk) is DuplicateStatus.NEW
        known.stored("p", [(0, 0, 1, chunk, True)], Position(0, 0))
        assert known.status_of("p", 0, 0, chunk) is DuplicateStatus.DUPLICATE
        for i in range(INCOMPLETE_ENTRIES_MAX + 1):
            known.status_of("q", i, i, None)
            known.stored("q", [(i, i, 1, b"", False)], Position(0, i + 1))
        known.snapshot(Position(0, INCOMPLETE_ENTRIES_MAX + 1))
        assert known.status_of("p", 0, 0, chunk) is DuplicateStatus.NEW

    on_brokers(scenario)
