"""Cursors in virtual time: what is stored when, what comes back, and what is lost with a cursor's ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bkctl.codec.managed_ledger import NO_CURSOR_LEDGER, BatchAck, CursorState, decode_cursor_state
from bkctl.errors import NotEnoughBookies, Unavailable
from bkctl.model.topic import EARLIEST, Position
from tests.unit.log.logs import (
    EAGER,
    NAME,
    Broker,
    LostAnswers,
    another,
    filled,
    ledger_ids,
    on_brokers,
    until,
)


def test_what_the_node_and_the_ledger_hold_is_what_java_would_write() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST, properties={"a": "b"})
        p = broker.confirmed
        info, version = await broker.ledgers.read_cursor(NAME, "s")
        assert (info.ledger_id, version) == (NO_CURSOR_LEDGER, 0)
        assert info.state is not None
        assert info.state.mark_delete == (p[0].ledger_id, -1)
        assert info.properties == {"a": "b"}
        cursor.ack(p[0:2])
        cursor.ack(p[4:6])
        await cursor.flush()
        info, version = await broker.ledgers.read_cursor(NAME, "s")
        assert version == 1
        assert info.state is not None
        assert info.state.mark_delete == (p[0].ledger_id, -1)  # still the old one: the ledger counts
        assert info.state.ranges == ()
        await log.close()
        info, version = await broker.ledgers.read_cursor(NAME, "s")
        assert (info.ledger_id, version) == (NO_CURSOR_LEDGER, 2)
        assert info.state is not None
        assert info.state.mark_delete == p[1]
        assert info.state.ranges == ((Position(p[4].ledger_id, 3), p[5]),)

    on_brokers(scenario)


def test_acks_are_stored_at_a_measured_pace_unless_somebody_waits() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, replace(EAGER, mark_delete_rate=1.0))
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.ack(broker.confirmed[:1])
        await cursor.flush()
        writer = cursor._writer
        assert writer is not None
        assert writer.last_pushed == 1
        for position in broker.confirmed[1:20]:
            cursor.ack([position])
        assert writer.last_pushed == 1
        await until(lambda: writer.last_pushed == 2)
        cursor.ack(broker.confirmed[20:21])
        await cursor.flush()
        assert writer.last_pushed == 3
        await log.close()

    on_brokers(scenario)


def test_a_cursors_ledger_is_rolled_over() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, replace(EAGER, cursor_entries_max=5))
        cursor = await log.open_cursor("s", EARLIEST)
        seen = set()
        for position in broker.confirmed:
            cursor.ack([position])
            await cursor.flush()
            info, _ = await broker.ledgers.read_cursor(NAME, "s")
            seen.add(info.ledger_id)
        assert len(seen) >= 5
        left = [ledger_id async for ids in broker.context.bookkeeper.list() for ledger_id in ids]
        assert sorted(left) == sorted([*log.ledgers.ids, info.ledger_id])
        again = await (await another(broker)).open()
        assert again.cursors["s"].backlog() == 0
        await again.close()

    on_brokers(scenario)


def test_a_lost_ledger_brings_messages_again_but_loses_none() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.ack(broker.confirmed[:5])
        await cursor.flush()
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        await broker.context.bookkeeper.delete(info.ledger_id)
        again = await (await another(broker)).open()
        taken = again.cursors["s"]
        assert taken.backlog() == 30
        taken.ack(broker.confirmed[:7])
        await taken.flush()
        await again.close()
        third = await (await another(broker)).open()
        assert third.cursors["s"].mark_delete == broker.confirmed[6]
        await third.close()

    on_brokers(scenario)


def test_very_many_ranges_stay_in_the_ledger() -> None:
    async def scenario(broker: Broker) -> None:
        few = replace(EAGER, ranges_in_node_max=3)
        log = await filled(broker, few)
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.ack(broker.confirmed[1::2])
        await log.close()
        again = await (await another(broker)).open(few)
        assert again.cursors["s"].backlog() == 15
        await again.close()
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        assert info.ledger_id != NO_CURSOR_LEDGER
        again.cursors["s"].ack(broker.confirmed)  # closed: counts for nobody
        third = await (await another(broker)).open(few)
        assert third.cursors["s"].backlog() == 15
        third.cursors["s"].ack(broker.confirmed)
        await third.close()
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        assert info.ledger_id == NO_CURSOR_LEDGER

    on_brokers(scenario)


def test_very_many_parts_of_batches_stay_in_the_ledger() -> None:
    async def scenario(broker: Broker) -> None:
        few = replace(EAGER, ranges_in_node_max=3)
        log = await filled(broker, few)
        cursor = await log.open_cursor("s", EARLIEST)
        for position in broker.confirmed[:9]:
            cursor.ack_batch(position, [0b1100])
        await log.close()
        again = await (await another(broker)).open(few)
        assert [again.cursors["s"].ack_set(one) for one in broker.confirmed[:10]] == [[0b1100]] * 9 + [None]
        await again.close()

    on_brokers(scenario)


def test_numbers_and_parts_of_batches_come_back() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("pulsar.dedup", EARLIEST)
        cursor.longs["producer"] = 41
        cursor.touch()
        cursor.ack_cumulative(broker.confirmed[3], [0b1100])
        assert cursor.mark_delete == broker.confirmed[2]
        assert cursor.ack_set(broker.confirmed[3]) == [0b1100]
        await log.close()
        info, _ = await broker.ledgers.read_cursor(NAME, "pulsar.dedup")
        assert await last_of(broker, info.ledger_id) == CursorState(
            broker.confirmed[2], (), {"producer": 41}, (BatchAck(broker.confirmed[3], (0b1100,)),)
        )
        again = await (await another(broker)).open()
        taken = again.cursors["pulsar.dedup"]
        assert taken.longs == {"producer": 41}
        taken.ack_batch(broker.confirmed[3], [0b0011])
        assert taken.mark_delete == broker.confirmed[3]
        assert taken.read_position == broker.confirmed[4]
        await again.delete_cursor("pulsar.dedup")
        assert await broker.ledgers.cursors(NAME) == []
        await again.close()

    on_brokers(scenario)


async def last_of(broker: Broker, ledger_id: int) -> CursorState:
    """What Java reads of a cursor whose node names a ledger."""
    reader = await broker.context.bookkeeper.open(ledger_id)
    assert reader.metadata.closed
    entry = await reader.read_entry(reader.last_confirmed)
    return decode_cursor_state(bytes(entry.payload), source="the cursor's ledger")


def test_parts_of_batches_are_where_java_reads_them_after_a_clean_stop() -> None:
    """Java writes them into the node at its stop, as in golden/pulsar/zk_tree_stopped.json, and never reads them."""

    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        await log.open_cursor("s", EARLIEST)
        await log.close()
        p = broker.confirmed
        state = CursorState(p[0], (), {}, (BatchAck(p[1], (28,)),))
        info, version = await broker.ledgers.read_cursor(NAME, "s")
        _, log_version = await broker.ledgers.read(NAME)
        await broker.ledgers.write_cursor(NAME, "s", replace(info, state=state), version, log_version)  # Java's stop
        places = set()
        for _ in range(3):  # nobody acknowledges anything
            again = await (await another(broker)).open()
            assert again.cursors["s"].ack_set(p[1]) == [28]
            await again.close()
            info, _ = await broker.ledgers.read_cursor(NAME, "s")
            assert await last_of(broker, info.ledger_id) == state
            places.add(info.ledger_id)
        assert len(places) == 1, "what is in a ledger stays there"
        again = await (await another(broker)).open()
        again.cursors["s"].ack(p[1:2])
        await again.close()
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        assert (info.ledger_id, info.state) == (NO_CURSOR_LEDGER, CursorState(p[1]))
        assert places.isdisjoint([r.ledger_id async for r in broker.context.bookkeeper.ledgers.read_many(places)])

    on_brokers(scenario)


def test_parts_of_batches_go_into_the_node_where_no_bookie_takes_them() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST)
        await cursor.flush()
        for host in list(broker.cluster.bookies):
            broker.cluster.machines[host].kill()
            broker.cluster.stores[host].expire()
        cursor.ack_batch(broker.confirmed[3], [0b1100])
        await cursor.close()
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        assert info.ledger_id == NO_CURSOR_LEDGER
        assert info.state is not None
        assert info.state.batches == (BatchAck(broker.confirmed[3], (0b1100,)),)

    on_brokers(scenario)


def test_a_cursor_that_is_not_durable_leaves_nothing() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        reader = await log.open_cursor("reader", EARLIEST, durable=False)
        reader.ack_cumulative(broker.confirmed[10])
        await reader.flush()
        assert reader.backlog() == 19
        await log.close()
        assert await broker.ledgers.cursors(NAME) == []

    on_brokers(scenario)


def test_no_ack_is_forgotten_when_a_ledger_is_trimmed() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, replace(EAGER, entries_max=10, ranges_max=2))
        cursor, p = await log.open_cursor("s", EARLIEST), broker.confirmed
        apart = [p[i] for i in (11, 13, 15, 21, 23)]  # more ranges than are stored
        cursor.ack([*p[:10], *apart])
        await cursor.flush()
        assert await log.drop_ledgers([p[0].ledger_id]) == [p[0].ledger_id]
        assert [q for q in p[10:] if cursor.is_acked(q)] == apart
        assert (cursor.acked_above, cursor.backlog()) == (5, 15)
        await log.close()

    on_brokers(scenario)


def test_a_cursor_is_deleted_if_the_answer_to_its_deletion_is_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.ack(broker.confirmed[:3])
        await cursor.flush()
        kept = set(log.ledgers.ids)
        lost = LostAnswers(broker.ledgers.store, "/s")
        await log.delete_cursor("s")
        lost.mend()
        assert log.cursors == {}
        assert set(await ledger_ids(broker)) == kept

    on_brokers(scenario)


def test_a_cursor_whose_creation_got_no_answer_is_found_at_the_next_attempt() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        lost = LostAnswers(broker.ledgers.store, "/s")
        lost.blind = True
        with pytest.raises(Unavailable):
            await log.open_cursor("s", EARLIEST, properties={"a": "b"})
        assert log.cursors == {}
        lost.mend()
        cursor = await log.open_cursor("s", EARLIEST, properties={"a": "b"})
        assert (cursor.backlog(), cursor.properties) == (30, {"a": "b"})
        cursor.ack(broker.confirmed[:3])
        await cursor.flush()
        again = (await (await another(broker)).open()).cursors["s"]
        assert again.mark_delete == broker.confirmed[2]

    on_brokers(scenario)


def test_a_cursor_stays_durable_if_its_next_ledger_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, replace(EAGER, cursor_entries_max=5, ranges_in_node_max=3))
        cursor = await log.open_cursor("s", EARLIEST)

        async def none(*_: Any) -> Any:
            raise NotEnoughBookies("none is there")

        for i, position in enumerate(broker.confirmed[1::3]):
            if i == 1:
                monkeypatch.setattr("bkctl.log.cursor.create_ledger", none)
            cursor.ack([position])
            await cursor.flush()
        again = (await (await another(broker)).open()).cursors["s"]
        assert [again.is_acked(p) for p in broker.confirmed] == [i % 3 == 1 for i in range(30)]

    on_brokers(scenario)


def test_a_flush_of_a_cursor_fails_on_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST)

        def fails(*_: Any) -> bytes:
            raise ValueError("a bug")

        monkeypatch.setattr("bkctl.log.cursor.encode_cursor_state", fails)
        cursor.ack(broker.confirmed[:3])
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await cursor.flush()
        monkeypatch.undo()
        await until(lambda: cursor.stored_mark_delete == broker.confirmed[2])

    on_brokers(scenario)
