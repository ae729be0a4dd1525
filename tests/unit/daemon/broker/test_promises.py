"""Bugs that reading and simulation found in what a broker promises, each with the least that shows it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bkctl.codec.managed_ledger import NO_CURSOR_LEDGER
from bkctl.codec.pulsar_entry import split_entry
from bkctl.errors import BkctlError, Conflict, Unavailable
from bkctl.log import cursor as cursors
from bkctl.log.recovered import create_ledger
from bkctl.model.topic import EARLIEST, Position
from tests.broker.raw import Stage, on_stage
from tests.unit.log.logs import EAGER, NAME, TRIMMING, Broker, another, on_brokers, payloads, until

TOPIC = "persistent://public/default/t"


def answer_lost(store: Any, path_end: str) -> None:
    """The writes of a node are carried out, and their answers lost."""
    set_node, multi = store.set, store.multi

    async def set_and_say_nothing(path: str, data: bytes, version: Any) -> Any:
        done = await set_node(path, data, version)
        if path.endswith(path_end):
            raise Unavailable("no answer")
        return done

    async def multi_and_say_nothing(operations: Any) -> Any:
        await multi(operations)
        if any(getattr(o, "path", "").endswith(path_end) and hasattr(o, "data") for o in operations):
            raise Unavailable("no answer")

    async def silence(*_: Any) -> Any:
        raise Unavailable("no answer")

    store.set, store.multi, store.get, store.exists = set_and_say_nothing, multi_and_say_nothing, silence, silence


def test_a_ledger_that_the_node_may_name_is_not_deleted() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        second = await another(broker)
        answer_lost(broker.ledgers.store, "/t")
        await log.roll()
        await until(lambda: broker.failures)
        info, _ = await second.ledgers.read(NAME)
        assert len(info.ledgers) == 2, "the write was done"
        for ledger in info.ledgers:
            await second.context.bookkeeper.ledgers.read(ledger.ledger_id)

    on_brokers(scenario)


def test_a_cursors_ledger_that_its_node_may_name_is_not_deleted() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        second = await another(broker)
        answer_lost(broker.ledgers.store, "/s")
        cursor.ack(broker.confirmed[:5])
        with pytest.raises(BkctlError):
            await cursor.flush()
        info, _ = await second.ledgers.read_cursor(NAME, "s")
        assert info.ledger_id != NO_CURSOR_LEDGER, "the write was done"
        await second.context.bookkeeper.ledgers.read(info.ledger_id)
        again = await second.open()
        assert again.cursors["s"].mark_delete == broker.confirmed[4]
        await again.close()

    on_brokers(scenario)


def test_ledgers_stay_until_what_was_acknowledged_of_them_is_stored() -> None:
    """Deduplication reads back what lies behind its stored snapshot: it must be there after a crash."""

    async def scenario(broker: Broker) -> None:
        log = await broker.open(replace(TRIMMING, mark_delete_rate=0.01))
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 25)
        cursor.ack_cumulative(broker.confirmed[22])
        await asyncio.sleep(1)
        await log.trim()
        assert len(log.ledgers.ids) == 3, "the next owner would not know that they were acknowledged"
        await cursor.flush()
        await until(lambda: len(log.ledgers.ids) == 1)
        await log.close()

    on_brokers(scenario)


def test_a_log_whose_cursor_cannot_be_read_is_not_opened_and_says_why() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        await log.open_cursor("s", EARLIEST)
        await log.close()
        second = await another(broker)

        async def unreadable(self: Any, stored: Any) -> None:
            raise Unavailable("the bookies are away")

        load = cursors.Cursor.load
        cursors.Cursor.load = unreadable  # type: ignore[method-assign]
        try:
            with pytest.raises(Unavailable, match="bookies are away"):
                await second.open()
        finally:
            cursors.Cursor.load = load  # type: ignore[method-assign]
        assert (await second.open()).cursors.keys() == {"s"}

    on_brokers(scenario)


def test_a_log_that_is_taken_while_it_is_opened_is_not_opened() -> None:
    async def scenario(broker: Broker) -> None:
        await (await broker.open()).open_cursor("s", EARLIEST)
        second, third = await another(broker), await another(broker)
        load = cursors.Cursor.load
        taken: list[Any] = []

        async def taken_meanwhile(self: Any, stored: Any) -> None:
            if not taken:
                taken.append(None)
                taken[0] = await third.open()
                taken[0].add_many([b"x"])
                self._log.failed(Conflict("fenced"))
            await load(self, stored)

        cursors.Cursor.load = taken_meanwhile  # type: ignore[method-assign]
        try:
            with pytest.raises(Conflict):
                await second.open()
        finally:
            cursors.Cursor.load = load  # type: ignore[method-assign]

    on_brokers(scenario)


def test_an_owner_of_a_terminated_log_that_was_deposed_stores_no_acknowledgement() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        await log.terminate()
        second = await another(broker)
        again = await second.open()
        cursor.ack(broker.confirmed[:2])
        with pytest.raises(Conflict):
            await cursor.flush()
        assert again.cursors["s"].backlog() == 5
        await again.close()

    on_brokers(scenario)


def test_what_was_being_read_again_when_bookies_failed_is_not_forgotten() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=1)
        client.flow(100)
        for i in range(6):
            client.publish(i, b"%d" % i)
        found = await client.messages(6)
        topic = next(iter(stage.server.topics.open.values()))
        read, failures = topic.ledger.read, [1, 1]

        async def failing(*arguments: Any) -> Any:
            if failures:
                failures.pop()
                raise Unavailable("no bookie answers")
            return await read(*arguments)

        topic.ledger.read = failing
        client.send(20, consumer_id=0, message_ids=[s.message.message_id for s in found])
        again = await client.messages(6)
        assert [int(split_entry(s.entry)[1]) for s in again] == list(range(6))

    on_stage(scenario)


def test_chunks_that_begin_elsewhere_are_not_taken_for_each_other() -> None:
    """Who comes back to a topic, or begins inside of it, finds in memory what was read for others, and its own."""

    async def scenario(broker: Broker) -> None:
        entries = [b"%d" % i for i in range(46)]
        settings = replace(EAGER, entries_max=1000)
        log = await broker.open(settings)
        log.add_many(entries[:6])
        await until(lambda: len(broker.confirmed) == 6)
        log._reads.tail.clear()
        ledger_id = broker.confirmed[0].ledger_id
        assert (await log.read(Position(ledger_id, 2), 1, 999))[0][1] == b"2"
        log.add_many(entries[6:])
        await until(lambda: len(broker.confirmed) == 46)
        log._reads.tail.clear()
        assert [e for _, e in await log.read(Position(ledger_id, 30), 99, 999)] == entries[30:]
        assert (await log.read(Position(ledger_id, 6), 1, 999))[0][1] == b"6"
        await log.close()
        again = await broker.open(settings)
        for at in [*range(46), *reversed(range(46))]:
            assert (await again.read(Position(ledger_id, at), 1, 999))[0][1] == b"%d" % at
        await again.close()

    on_brokers(scenario)


@pytest.mark.parametrize("entries", [[], [b"\xff\xff garbage"], [b""]])
def test_a_cursors_ledger_that_was_cut_off_or_holds_something_else_loses_no_message(entries: list[bytes]) -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        cursor.ack(broker.confirmed[:5])
        await cursor.flush()
        second = await another(broker)
        other = await create_ledger(second.context.bookkeeper, EAGER, {})
        if entries:
            other.append_many(entries)
        await other.close()
        info, version = await second.ledgers.read_cursor(NAME, "s")
        owned = (await second.ledgers.read(NAME)).version
        await second.ledgers.write_cursor(NAME, "s", replace(info, ledger_id=other.ledger_id), version, owned)
        again = await second.open()
        assert again.cursors["s"].backlog() == 9, "from the position that the node has"
        again.cursors["s"].ack(broker.confirmed[:6])
        await again.cursors["s"].flush()
        await again.close()
        third = await (await another(broker)).open()
        assert third.cursors["s"].mark_delete == broker.confirmed[5]
        await third.close()

    on_brokers(scenario)


def test_what_is_confirmed_after_the_log_has_failed_is_nobodys() -> None:
    """Answers of bookies that come in one go: the first of them tells that the log is fenced."""

    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        writer = log._writer
        assert writer is not None
        log.failed(Conflict("fenced"))
        log._confirmed(writer, 2)
        await asyncio.sleep(1)
        assert broker.confirmed == []
        assert len(broker.failures) == 1
        await log.close()

    on_brokers(scenario)
