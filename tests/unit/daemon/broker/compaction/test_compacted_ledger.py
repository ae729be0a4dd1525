"""Reads of a compacted ledger by positions and times of its topic, in virtual time."""

from __future__ import annotations

import pytest
from bkdaemon.broker.compaction.compacted_ledger import PLACES_MAX, CompactedLedger

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.errors import NotFound
from bkctl.model.topic import EARLIEST, Position
from tests.broker.compacting import RULES, compact, fill, topic_of
from tests.broker.raw import RawClient, Stage, on_stage
from tests.broker.scenarios import TOPIC, producing

SIZE_MAX = 1_000_000


async def publish_at(client: RawClient, sequence_id: int, key: str, at_ms: int, payload: bytes = b"x") -> None:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=at_ms,
        partition_key=key,
        uncompressed_size=len(payload),
    )
    client.send(Command.SEND, encode_entry(metadata, payload), producer_id=0, sequence_id=sequence_id)
    await client.next(Command.SEND_RECEIPT)


async def compacted(stage: Stage) -> CompactedLedger:
    topic = await topic_of(stage)
    await compact(topic)
    found = await topic.compaction.ledger()
    assert found is not None
    return found


def test_entries_are_read_from_a_position_of_the_topic() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(await producing(stage), 30)
        ledger = await compacted(stage)
        assert (ledger.entries, ledger.horizon.entry_id) == (3, 29)
        assert ledger.size > 0
        topic_id = ledger.horizon.ledger_id

        async def read(start: Position, entries_max: int = 10) -> list[int]:
            return [position.entry_id for position, _ in await ledger.read(start, entries_max, SIZE_MAX)]

        assert await read(EARLIEST) == [27, 28, 29]
        assert await read(EARLIEST, 2) == [27, 28]
        assert await read(Position(topic_id, 29)) == [29]
        assert await read(Position(topic_id, 5)) == [27, 28, 29]
        assert await read(Position(topic_id, 30)) == []
        assert await read(Position(topic_id + 1, -1)) == []
        assert len(await ledger.read(EARLIEST, 10, 1)) == 1, "one entry at least"

    on_stage(scenario, rules=RULES)


def test_the_index_of_a_position_is_the_number_of_entries_before_it() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        count = PLACES_MAX + 50
        for i in range(count):
            client.publish(i, b"v", partition_key=f"k{i}")
        for _ in range(count):
            await client.next(Command.SEND_RECEIPT)
        ledger = await compacted(stage)
        topic_id = ledger.horizon.ledger_id
        for entry_id in (0, 1, count // 2, count - 1, count, 0):
            assert await ledger.index(Position(topic_id, entry_id)) == entry_id
        assert await ledger.index(EARLIEST) == 0
        assert await ledger.index(Position(topic_id + 1, 0)) == count

    on_stage(scenario, rules=RULES)


def test_consecutive_reads_return_every_entry_once_also_after_the_cache_is_dropped() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        for i in range(20):
            client.publish(i, b"v", partition_key=f"k{i}")
            await client.next(Command.SEND_RECEIPT)
        ledger = await compacted(stage)
        for _ in range(2):
            found: list[int] = []
            start = EARLIEST
            while entries := await ledger.read(start, 7, SIZE_MAX):
                found += [position.entry_id for position, _ in entries]
                start = Position(entries[-1][0].ledger_id, entries[-1][0].entry_id + 1)
            assert found == list(range(20))
            ledger.forget()

    on_stage(scenario, rules=RULES)


def test_a_time_is_found_at_the_first_entry_published_then_or_later() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        for number, (key, at_ms) in enumerate([("a", 5), ("a", 10), ("b", 20), ("c", 30)]):
            await publish_at(client, number, key, at_ms)
        ledger = await compacted(stage)

        async def entry_at(ms: int) -> int | None:
            position = await ledger.at_time(ms)
            return None if position is None else position.entry_id

        assert [await entry_at(ms) for ms in (1, 10, 11, 20, 21, 30, 31)] == [1, 1, 2, 2, 3, 3, None]
        last = await ledger.last()
        assert last is not None
        assert last[0].entry_id == 3

    on_stage(scenario, rules=RULES)


def test_a_compacted_ledger_without_entries_has_nothing_to_read() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await publish_at(client, 0, "a", 10)
        await publish_at(client, 1, "a", 20, b"")
        ledger = await compacted(stage)
        assert (ledger.entries, ledger.horizon.entry_id) == (0, 1)
        assert await ledger.read(EARLIEST, 10, SIZE_MAX) == []
        assert await ledger.last() is None
        assert await ledger.at_time(1) is None

    on_stage(scenario, rules=RULES)


def test_a_deleted_compacted_ledger_cannot_be_opened() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        log = (await topic_of(stage)).ledger
        with pytest.raises(NotFound):
            await CompactedLedger.open(log.context, log.settings, 999_999, Position(0, 0))

    on_stage(scenario, rules=RULES)
