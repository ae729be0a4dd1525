"""Ledgers of a log: created with Pulsar's marks, recovered, deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.errors import Conflict, Unavailable
from bkctl.log.node import LedgerNode
from bkctl.log.recovered import create_ledger, delete_ledger, last_state, listed_ledger, recovered_list
from bkctl.log.state import State
from bkctl.model.topic import EARLIEST
from tests.unit.log.logs import EAGER, NAME, Broker, another, filled, ledger_ids, on_brokers, payloads, read_all, until


def test_the_last_ledger_of_a_terminated_log_is_kept_if_the_list_has_no_size_of_it() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, count=15)
        last = log.last_confirmed
        await log.close()
        info, version = await broker.ledgers.read(NAME)
        assert info.ledgers[-1].entries is None
        await broker.ledgers.write(NAME, replace(info, terminated=last), version)
        second = await another(broker)
        again = await second.open()
        assert (again.state, again.last_confirmed) == (State.TERMINATED, last)
        assert await read_all(again) == payloads(15)
        await again.close()
        assert await read_all(await (await another(broker)).open()) == payloads(15)

    on_brokers(scenario)


def test_ledgers_have_the_custom_metadata_of_pulsar() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        cursor.ack(broker.confirmed[:1])
        await cursor.flush()
        ledgers = broker.context.bookkeeper.ledgers
        kinds = {}
        async for ids in ledgers.ids():
            for ledger_id in ids:
                metadata, _ = await ledgers.read(ledger_id)
                kinds[ledger_id] = dict(metadata.custom_metadata)
        common = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": NAME.encode()}
        assert sorted(kinds.values(), key=len) == [common, {**common, "pulsar/cursor": b"s"}]
        await log.close()
        left = [ledger_id async for ids in ledgers.ids() for ledger_id in ids]
        assert left == [log.ledgers.ids[0]]  # the cursor's went when its state went into the node

    on_brokers(scenario)


def test_a_ledger_that_exists_only_in_the_list_is_dropped() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, count=15)
        await log.close()
        info, _ = await broker.ledgers.read(NAME)
        await broker.context.bookkeeper.delete(info.ledgers[-1].ledger_id)
        found = await recovered_list(broker.context, info, EAGER)
        assert found == list(info.ledgers[:-1])

    on_brokers(scenario)


def test_the_last_ledger_is_closed_and_gets_its_size() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, count=15)
        info, _ = await broker.ledgers.read(NAME)
        assert info.ledgers[-1].entries is None
        found = await recovered_list(broker.context, info, EAGER)
        size = sum(map(len, payloads(5, 10)))
        assert [(one.entries, one.size) for one in found[1:]] == [(5, size)]
        metadata, _ = await broker.context.bookkeeper.ledgers.read(log.ledgers.ids[-1])
        assert (metadata.closed, metadata.last_entry_id) == (True, 4)

    on_brokers(scenario)


def test_a_lost_ledger_of_a_cursor_has_no_state(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.ack(broker.confirmed[:3])
        await cursor.flush()
        ledger_id = cursor.ledger_id
        state = await last_state(broker.context, EAGER, NAME, "s", ledger_id)
        assert state is not None
        assert state.mark_delete == broker.confirmed[2]
        await broker.context.bookkeeper.delete(ledger_id)
        assert await last_state(broker.context, EAGER, NAME, "s", ledger_id) is None

    on_brokers(scenario)
    assert any("cursor s" in record.getMessage() for record in caplog.records)


def test_a_ledger_that_cannot_be_deleted_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker) -> None:
        bookkeeper = broker.context.bookkeeper
        writer = await create_ledger(bookkeeper, EAGER, {})
        assert await delete_ledger(bookkeeper, writer.ledger_id)
        assert await delete_ledger(bookkeeper, writer.ledger_id), "it is deleted already"

        async def fail(*_: object) -> None:
            raise Unavailable("no answer")

        monkeypatch.setattr(bookkeeper.ledgers, "delete", fail)
        other = await create_ledger(bookkeeper, EAGER, {})
        assert not await delete_ledger(bookkeeper, other.ledger_id)
        assert any(f"ledger {other.ledger_id}" in record.getMessage() for record in caplog.records)

    on_brokers(scenario)


def test_a_new_ledger_is_deleted_when_the_log_has_another_owner() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        await log.close()
        before = await ledger_ids(broker)
        node = await LedgerNode.read(broker.ledgers, NAME, create=False)
        await (await LedgerNode.read(broker.ledgers, NAME, create=False)).write()
        with pytest.raises(Conflict):
            await listed_ledger(broker.context, node, NAME, EAGER, lambda old: old)
        assert await ledger_ids(broker) == before

    on_brokers(scenario)
