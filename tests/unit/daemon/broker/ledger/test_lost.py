"""A ledger that is lost for good under a topic: skipped where that is wanted, waited for where not; nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from bkdaemon.broker.ledger.managed_ledger import ManagedLedger

from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import split_entry
from bkctl.errors import NoSuchLedger
from bkctl.model.topic import EARLIEST, Position, TopicName
from tests.broker.backend import SETTINGS
from tests.broker.raw import RawClient, Said, Stage, on_stage
from tests.unit.daemon.broker.logs import EAGER, Broker, on_brokers, payloads, read_all, until

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
