"""Cursors in their nodes and ledgers: failed and lost writes, corrupt ledgers, takeovers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bkctl.codec.managed_ledger import NO_CURSOR_LEDGER
from bkctl.errors import BkctlError, Conflict, Unavailable
from bkctl.log.recovered import create_ledger
from bkctl.model.topic import EARLIEST, Position
from tests.unit.log.logs import EAGER, NAME, Broker, another, on_brokers, payloads, until
from tests.unit.log.store_faults import HeldWrites, lose_replies


def test_properties_set_while_a_cursor_gets_its_ledger_keep_the_ledger() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        held = HeldWrites(broker.ledgers.store, "/s")
        cursor.ack(broker.confirmed[:5])
        flushed = asyncio.ensure_future(cursor.flush())
        await until(lambda: held.waiting)
        named = asyncio.ensure_future(cursor.set_properties({"a": "b"}))
        await asyncio.sleep(0)
        held.release()
        await asyncio.gather(flushed, named)
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        assert info.ledger_id == cursor.ledger_id
        again = (await (await another(broker)).open()).cursors["s"]
        assert (again.mark_delete, again.properties) == (broker.confirmed[4], {"a": "b"})

    on_brokers(scenario)


def test_a_cursor_whose_deletion_failed_stores_later_acknowledgements() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        held = HeldWrites(broker.ledgers.store, "/s")
        held.fails = True
        held.release()
        with pytest.raises(Unavailable):
            await log.delete_cursor("s")
        held.fails = False
        cursor.ack(broker.confirmed[:5])
        await cursor.flush()
        again = (await (await another(broker)).open()).cursors["s"]
        assert again.mark_delete == broker.confirmed[4]

    on_brokers(scenario)


def test_a_cursor_that_cannot_be_closed_does_not_block_the_others() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        first, second = await log.open_cursor("a", EARLIEST), await log.open_cursor("b", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        held = HeldWrites(broker.ledgers.store, "/a")
        held.fails = True
        held.release()
        first.ack(broker.confirmed[:5])
        second.ack(broker.confirmed[:5])
        await log.close()
        again = await (await another(broker)).open()
        assert again.cursors["b"].mark_delete == broker.confirmed[4]

    on_brokers(scenario)


def test_a_cursor_ledger_is_kept_when_the_reply_to_its_node_s_write_is_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        second = await another(broker)
        lose_replies(broker.ledgers.store, "/s")
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


def test_a_deposed_owner_of_a_terminated_log_stores_no_acknowledgement() -> None:
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


@pytest.mark.parametrize("entries", [[], [b"\xff\xff garbage"], [b""]])
def test_a_truncated_or_corrupt_cursor_ledger_loses_no_message(entries: list[bytes]) -> None:
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


def test_the_lower_bound_of_an_acknowledged_range_is_exclusive() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(15))
        await until(lambda: len(broker.confirmed) == 15)
        second = broker.confirmed[10]
        assert second.entry_id == 0
        cursor.ack([second])
        await log.close()
        state = (await broker.ledgers.read_cursor(NAME, "s")).info.state
        assert state is not None
        assert state.ranges == ((Position(second.ledger_id, -1), second),)
        again = await (await another(broker)).open()
        assert [p for p in broker.confirmed if again.cursors["s"].is_acked(p)] == [second]
        await again.close()

    on_brokers(scenario)


def test_the_last_entry_of_its_ledger_is_a_cursor_s_state() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        for position in broker.confirmed[:6]:
            cursor.ack_cumulative(position)
            await cursor.flush()
        info = (await broker.ledgers.read_cursor(NAME, "s")).info
        assert info.ledger_id >= 0
        assert info.state is not None
        assert info.state.mark_delete < broker.confirmed[5], "the node tells an older place"
        again = await (await another(broker)).open()
        assert again.cursors["s"].mark_delete == broker.confirmed[5]
        await again.close()

    on_brokers(scenario)
