"""The node of a log: written by compare-and-set, with those of its cursors."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.codec.managed_ledger import CursorState, LedgerInfo, ManagedCursorInfo, ManagedLedgerInfo
from bkctl.errors import Conflict, NotFound
from bkctl.log.node import LedgerNode
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Version
from bkctl.model.topic import EARLIEST, Position
from tests.unit.log.logs import EAGER, NAME, Broker, another, filled, on_brokers
from tests.unit.meta.memory_runs import on

CURSOR = ManagedCursorInfo(-1, CursorState(Position(3, -1)), 5)


def test_a_late_write_of_a_deposed_java_broker_loses_no_acknowledgement() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        cursor = await log.open_cursor("s", EARLIEST)
        first = log.first_position
        store = broker.context.store
        stored = await store.read_cursor(NAME, "s")
        await store.write_cursor(NAME, "s", stored.info, stored.version, log.node.version)  # a topic's close in Java
        cursor.ack([first])
        await log.close()
        assert log.error is None
        again = await (await another(broker)).open(EAGER)
        assert again.cursors["s"].is_acked(first)
        await again.close()

    on_brokers(scenario)


async def new_node(store: MemoryStore) -> tuple[ManagedLedgerStore, LedgerNode]:
    ledgers = ManagedLedgerStore(store)
    return ledgers, await LedgerNode.read(ledgers, NAME, create=True)


def test_a_missing_node_is_created_only_if_that_is_requested() -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers = ManagedLedgerStore(store)
        with pytest.raises(NotFound):
            await LedgerNode.read(ledgers, NAME, create=False)
        node = await LedgerNode.read(ledgers, NAME, create=True)
        assert (node.info, node.version) == (ManagedLedgerInfo(), 0)
        again = await LedgerNode.read(ledgers, NAME, create=False)
        assert (again.info, again.version) == (node.info, node.version)

    on(MemoryTree(), scenario)


def test_a_write_changes_the_list_the_end_and_the_properties() -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers, node = await new_node(store)
        await node.write(lambda old: [*old, LedgerInfo(7)])
        node.properties["a"] = "b"
        await node.write(lambda old: [*old, LedgerInfo(8)], Position(8, -1))
        info, version = await ledgers.read(NAME)
        assert (info.ledgers, info.terminated) == ((LedgerInfo(7), LedgerInfo(8)), Position(8, -1))
        assert (dict(info.properties), version) == ({"a": "b"}, 2)
        assert (node.info, node.version) == (info, version)

    on(MemoryTree(), scenario)


def test_a_deposed_owner_writes_neither_the_list_nor_a_cursor() -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers, old = await new_node(store)
        stored = await ledgers.create_cursor(NAME, "s", CURSOR, old.version)
        new = await LedgerNode.read(ledgers, NAME, create=False)
        await new.write(lambda _: [LedgerInfo(7)])
        with pytest.raises(Conflict):
            await old.write(lambda _: [LedgerInfo(8)])
        assert (old.info, old.version) == (ManagedLedgerInfo(), 0), "what was stored last stays known"
        with pytest.raises(Conflict):
            await old.write_cursor("s", CURSOR, stored)
        assert await new.write_cursor("s", CURSOR, stored) == 1

    on(MemoryTree(), scenario)


def test_a_write_of_a_missing_cursor_is_an_error() -> None:
    async def scenario(store: MemoryStore) -> None:
        _, node = await new_node(store)
        with pytest.raises((Conflict, NotFound)):
            await node.write_cursor("s", CURSOR, Version(0))

    on(MemoryTree(), scenario)


def test_writes_at_the_same_time_are_done_one_after_the_other() -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers, node = await new_node(store)
        await asyncio.gather(*(node.write(lambda old, i=i: [*old, LedgerInfo(i)]) for i in range(10)))  # type: ignore[misc]
        assert [info.ledger_id for info in (await ledgers.read(NAME)).info.ledgers] == list(range(10))
        await node.delete()
        with pytest.raises(NotFound):
            await ledgers.read(NAME)

    on(MemoryTree(), scenario)
