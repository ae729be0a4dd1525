"""Ledgers and entries that are lost for good: skipped where that is wanted, waited for where not; nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from bkdaemon.broker.topic.topic import Topic
from bkdaemon.broker.upkeep import Upkeep

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.protobuf import bytes_field, varint_field
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import encode_entry, split_entry
from bkctl.errors import NoSuchEntry, NoSuchLedger
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.model.ids import EntryId
from bkctl.model.ledger import Ensemble
from bkctl.model.topic import EARLIEST, Position, TopicName
from tests.broker.backend import SETTINGS
from tests.broker.raw import RawClient, Said, Stage, on_stage
from tests.unit.client.cluster import bookie_id
from tests.unit.log.logs import EAGER, NAME, Broker, on_brokers, payloads, read_all, until

TOPIC = "persistent://public/default/t"
EXCLUSIVE, SHARED = 0, 1
SMALL = replace(SETTINGS, rollover_min_s=0, entries_max=10)


def numbers(said: list[Said]) -> list[int]:
    return [int(split_entry(s.entry)[1]) for s in said]


async def stored(stage: Stage, kind: int) -> tuple[RawClient, ManagedLedger]:
    """A client with 35 messages in four ledgers, none of them in memory, and a subscription."""
    client = await stage.client()
    await client.produce(TOPIC)
    await client.subscribe(TOPIC, kind=kind)
    log = stage.server.topics.open[TopicName.parse(TOPIC)].ledger
    assert isinstance(log, ManagedLedger)
    for i in range(35):
        client.publish(i, b"%d" % i)
    for _ in range(35):
        await client.next(Command.SEND_RECEIPT)
    await until(lambda: len(log.ledgers.ids) == 4)
    log._reads.tail.clear()
    return client, log


def on_stored(scenario: Callable[[Stage, RawClient, ManagedLedger], Awaitable[None]], kind: int, skips: bool) -> None:
    async def main(stage: Stage) -> None:
        client, log = await stored(stage, kind)
        await scenario(stage, client, log)

    on_stage(main, settings=replace(SMALL, skip_lost=skips))


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_lost_ledger_is_skipped_and_acknowledged(kind: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        other = await log.open_cursor("other", EARLIEST)
        lost = log.ledgers.ids[1]
        await stage.broker.context.bookkeeper.delete(lost)
        client.flow(100)
        said = await client.messages(25)
        assert numbers(said) == [*range(10), *range(20, 35)]
        assert other.backlog() == 25
        cursor = log.cursors["s"]
        client.ack(*said)
        await until(lambda: cursor.backlog() == 0)
        assert await log.read_on(Position(lost, 3), 100, 1_000_000)
        assert len([r for r in caplog.records if f"ledger {lost} is lost for good" in r.message]) == 1

    on_stored(scenario, kind, skips=True)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_lost_ledger_is_waited_for_where_nothing_else_was_said(kind: int) -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        await stage.broker.context.bookkeeper.delete(log.ledgers.ids[1])
        client.flow(100)
        assert numbers(await client.messages(10)) == [*range(10)]
        await asyncio.sleep(10)
        assert [s for s in client.said if s.kind == Command.MESSAGE] == []
        assert log.cursors["s"].backlog() == 35
        log.settings = replace(log.settings, skip_lost=True)  # as the dynamic key sets it
        assert numbers(await client.messages(15)) == [*range(20, 35)]

    on_stored(scenario, kind, skips=False)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_ledger_whose_bookies_are_away_is_never_skipped(kind: int) -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        cluster = stage.broker.cluster
        hosts = list(cluster.bookies)
        for host in hosts:
            cluster.machines[host].kill()
            cluster.stores[host].expire()
        client.flow(100)
        await asyncio.sleep(30)
        assert [s for s in client.said if s.kind == Command.MESSAGE] == []
        assert log.cursors["s"].backlog() == 35
        for host in hosts:
            await cluster.start_bookie(host)
        assert numbers(await client.messages(35)) == [*range(35)]

    on_stored(scenario, kind, skips=True)


def test_what_was_redelivered_of_a_lost_ledger_is_no_more() -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        client.flow(20)
        said = await client.messages(20)
        lost = log.ledgers.ids[1]
        await stage.broker.context.bookkeeper.delete(lost)
        log._reads.forget(lost)
        places = [s.message.message_id for s in said[5:]]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=places)
        client.flow(100)
        assert numbers(await client.messages(20)) == [*range(5, 10), *range(20, 35)]

    on_stored(scenario, SHARED, skips=True)


def test_who_asks_for_one_entry_is_told_that_it_is_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(replace(EAGER, skip_lost=True))
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 25 and len(log.ledgers.ids) == 3)
        log._reads.tail.clear()
        first, second, _ = log.ledgers.ids
        await broker.context.bookkeeper.delete(second)
        with pytest.raises(NoSuchLedger):
            await read_all(log)
        assert cursor.backlog() == 25
        await broker.context.bookkeeper.delete(first)
        log._reads.forget(first)
        assert [entry for _, entry in await log.read_on(EARLIEST, 100, 1_000_000)] == payloads(5, 20)
        assert cursor.mark_delete == Position(second, 9)
        await log.close()

    on_brokers(scenario)


async def lose(broker: Broker, log: ManagedLedger, ledger_id: int, first: int, end: int) -> list[str]:
    """Says that entries, up to end, are on bookies that never had them; returns the hosts of those."""
    ledgers = broker.context.bookkeeper.ledgers
    metadata, version = await ledgers.read(ledger_id)
    (whole,) = metadata.ensembles
    hosts = [host for host in broker.cluster.bookies if bookie_id(host) not in whole.bookies][:2]
    strangers = tuple(map(bookie_id, hosts))
    before = (whole,) if first else ()
    behind = (Ensemble(EntryId(end), whole.bookies),) if end <= metadata.last_entry_id else ()
    changed = (*before, Ensemble(EntryId(first), strangers), *behind)
    await ledgers.write(ledger_id, replace(metadata, ensembles=changed), version)
    log._reads.forget(ledger_id)
    return hosts


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
@pytest.mark.parametrize(("first", "end"), [(0, 1), (3, 5), (9, 10)])
def test_a_lost_entry_is_skipped_and_acknowledged(
    kind: int, first: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        other = await log.open_cursor("other", EARLIEST)
        ledger_id = log.ledgers.ids[1]
        await lose(stage.broker, log, ledger_id, first, end)
        client.flow(100)
        said = await client.messages(35 - (end - first))
        assert numbers(said) == [*range(10 + first), *range(10 + end, 35)], "those beside it are delivered"
        cursor = log.cursors["s"]
        assert [cursor.is_acked(Position(ledger_id, i)) for i in range(10)] == [first <= i < end for i in range(10)]
        assert other.backlog() == 35, "who has not come to it may find it there yet"
        client.ack(*said)
        await until(lambda: cursor.backlog() == 0)
        assert log.lost.skipped == log.context.cache.skipped == end - first
        assert await log.read_on(other.read_position, 100, 1_000_000, other)
        assert len([r for r in caplog.records if f"entry {first} of ledger {ledger_id} is lost" in r.message]) == 1

    on_stored(scenario, kind, skips=True)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_lost_entry_is_waited_for_where_nothing_else_was_said(kind: int) -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        await lose(stage.broker, log, log.ledgers.ids[1], 3, 5)
        client.flow(100)
        assert numbers(await client.messages(10)) == [*range(10)]
        await asyncio.sleep(10)
        assert log.cursors["s"].backlog() == 35
        assert [s for s in client.said if s.kind == Command.MESSAGE] == []
        log.settings = replace(log.settings, skip_lost=True)
        assert numbers(await client.messages(23)) == [10, 11, 12, *range(15, 35)]

    on_stored(scenario, kind, skips=False)


def test_an_entry_is_not_lost_while_one_of_its_bookies_is_away() -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        cluster = stage.broker.cluster
        _, away = await lose(stage.broker, log, log.ledgers.ids[1], 3, 5)
        cluster.machines[away].kill()
        cluster.stores[away].expire()
        client.flow(100)
        assert numbers(await client.messages(13)) == [*range(13)]
        await asyncio.sleep(30)
        assert [s for s in client.said if s.kind == Command.MESSAGE] == []
        assert log.lost.skipped == 0
        await cluster.start_bookie(away)
        assert numbers(await client.messages(20)) == [*range(15, 35)]

    on_stored(scenario, EXCLUSIVE, skips=True)


def test_a_lost_entry_that_was_to_be_redelivered_is_no_more() -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        client.flow(20)
        said = await client.messages(20)
        await lose(stage.broker, log, log.ledgers.ids[1], 5, 7)
        places = [s.message.message_id for s in said[5:]]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=places)
        client.flow(100)
        assert numbers(await client.messages(28)) == [*range(5, 15), *range(17, 35)]
        assert log.lost.skipped == 2

    on_stored(scenario, SHARED, skips=True)


def test_lost_entries_at_the_end_are_passed_once() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(replace(EAGER, skip_lost=True, entries_max=300))
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(250))
        await until(lambda: len(broker.confirmed) == 250)
        await log.roll()
        log._reads.tail.clear()
        ledger_id = log.ledgers.ids[0]
        await lose(broker, log, ledger_id, 20, 250)
        cursor.read_position = Position(ledger_id, 20)
        assert await log.read_on(cursor.read_position, 100, 1_000_000, cursor) == []
        assert not log.ledgers.contains(cursor.read_position)
        assert (cursor.backlog(), log.lost.skipped) == (20, 230)
        with pytest.raises(NoSuchEntry):
            await log.read(Position(ledger_id, 20), 1, 1)
        assert [entry for _, entry in await log.read_on(EARLIEST, 15, 1_000_000)] == payloads(15)
        found = await log.read_on(Position(ledger_id, 12), 100, 30)
        assert 1 <= len(found) < 8, "no more than was asked for"
        assert log.lost.skipped == 230
        await log.close()

    on_brokers(scenario)


def test_a_ledger_that_was_moved_to_tiered_storage_is_not_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(EAGER)
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 25 and len(log.ledgers.ids) == 3)
        await log.close()
        info, version = await broker.ledgers.read(NAME)
        moved, *others = info.ledgers
        complete_and_deleted = varint_field(3, 1) + varint_field(4, 1)
        moved = replace(moved, rest=bytes_field(5, complete_and_deleted))
        await broker.ledgers.write(NAME, replace(info, ledgers=(moved, *others)), version)
        await broker.context.bookkeeper.delete(moved.ledger_id)
        again = await broker.open(replace(EAGER, skip_lost=True))
        cursor = again.cursors["s"]
        with pytest.raises(NoSuchLedger):
            await again.read_on(EARLIEST, 100, 1_000_000, cursor)
        assert (cursor.backlog(), again.lost.skipped) == (25, 0)
        await again.close()

    on_brokers(scenario)


# -- searches by time -------------------------------------------------------------------------------------------------


async def of_times(broker: Broker, *, skips: bool, lost: tuple[int, int]) -> tuple[ManagedLedger, list[Position]]:
    """A log of entries that were published at 1000, 1010, …; of the second ledger some are lost."""
    log = await broker.open(replace(EAGER, skip_lost=skips))
    log.add_many([with_time(1000 + 10 * i) for i in range(35)])
    await until(lambda: len(broker.confirmed) == 35 and len(log.ledgers.ids) == 4)
    log._reads.tail.clear()
    await lose(broker, log, log.ledgers.ids[1], *lost)
    return log, broker.confirmed


def with_time(ms: int) -> bytes:
    return encode_entry(api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=ms), b"x")


@pytest.mark.parametrize("lost", [(0, 1), (3, 5), (5, 10), (0, 10)])
def test_lost_entries_are_no_hindrance_to_a_search_by_time(lost: tuple[int, int]) -> None:
    async def scenario(broker: Broker) -> None:
        log, places = await of_times(broker, skips=True, lost=lost)
        cursor = await log.open_cursor("s", EARLIEST)
        gone = {10 + i for i in range(*lost)}
        for at in range(36):
            found = await log.find_by_publish_time(1000 + 10 * at)
            first = min(i for i in range(at, 36) if i not in gone)
            behind = max((i + 1 for i in range(at) if i not in gone), default=0)  # the last that is too old
            assert behind <= (places.index(found) if found in places else 35) <= first
        assert (cursor.backlog(), log.lost.skipped) == (35, 0), "who looks acknowledges nothing"
        await log.close()

    on_brokers(scenario)


def test_a_search_by_time_passes_a_ledger_that_is_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log, places = await of_times(broker, skips=True, lost=(3, 4))
        for ledger_id in log.ledgers.ids[1:3]:
            await broker.context.bookkeeper.delete(ledger_id)
            log._reads.forget(ledger_id)
        assert places[9] < await log.find_by_publish_time(1100) <= places[30]
        assert await log.find_by_publish_time(1090) == places[9]
        assert await log.find_by_publish_time(1310) == places[31]
        await log.close()

    on_brokers(scenario)


def test_a_search_by_time_fails_where_what_is_lost_is_not_to_be_skipped() -> None:
    async def scenario(broker: Broker) -> None:
        log, _ = await of_times(broker, skips=False, lost=(0, 10))
        with pytest.raises(NoSuchEntry):
            await log.find_by_publish_time(1150)
        await log.close()

    on_brokers(scenario)


def test_a_search_by_time_finds_what_it_is_for_though_ledgers_are_trimmed_meanwhile() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(EAGER)
        log.add_many([with_time(1000 + 10 * i) for i in range(35)])
        await until(lambda: len(broker.confirmed) == 35 and len(log.ledgers.ids) == 4)
        read = log._reads.read

        async def trimmed_meanwhile(*asked: Any) -> Any:
            found = await read(*asked)
            log.forget_ledgers(log.ledgers.ids[:1] if len(log.ledgers.ids) == 4 else [])
            return found

        log._reads.read = trimmed_meanwhile  # type: ignore[method-assign]
        assert await log.find_by_publish_time(1200) == broker.confirmed[20]
        await log.close()

    on_brokers(scenario)


def test_the_age_of_a_backlog_is_that_of_what_can_be_read_of_it() -> None:
    async def scenario(stage: Stage, client: RawClient, log: ManagedLedger) -> None:
        await lose(stage.broker, log, log.ledgers.ids[0], 0, 2)
        upkeep = Upkeep(cast("Any", stage))
        topic = stage.server.topics.open[TopicName.parse(TOPIC)]
        assert isinstance(topic, Topic)
        assert await upkeep._age_s(topic, topic.subscriptions["s"], 5001) == 5

    on_stored(scenario, EXCLUSIVE, skips=True)
