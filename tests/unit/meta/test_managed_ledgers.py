"""Managed ledgers and cursors: every write by compare-and-set, lost answers."""

from __future__ import annotations

import pytest

from bkctl.codec.managed_ledger import CursorState, LedgerInfo, ManagedCursorInfo, ManagedLedgerInfo
from bkctl.errors import Conflict, NotFound, Unavailable
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.topic import Position
from tests.unit.meta.memory_runs import on

INFO = ManagedLedgerInfo((LedgerInfo(3, timestamp_ms=0),))


CURSOR = ManagedCursorInfo(-1, CursorState(Position(3, -1)), 5)


def test_a_write_with_an_old_version_is_a_conflict() -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers = ManagedLedgerStore(store)
        info, version = await ledgers.create("t/n/persistent/x")
        assert info == ManagedLedgerInfo()
        second = await ledgers.write("t/n/persistent/x", INFO, version)
        assert await ledgers.read("t/n/persistent/x") == (INFO, second)
        with pytest.raises(Conflict):
            await ledgers.write("t/n/persistent/x", INFO, version)
        first = await ledgers.create_cursor("t/n/persistent/x", "a/b", CURSOR, second)
        assert await ledgers.cursors("t/n/persistent/x") == ["a/b"]
        with pytest.raises(Conflict):  # by an owner that was deposed
            await ledgers.write_cursor("t/n/persistent/x", "a/b", CURSOR, first, version)
        with pytest.raises(Conflict):
            await ledgers.create_cursor("t/n/persistent/x", "other", CURSOR, version)
        await ledgers.write_cursor("t/n/persistent/x", "a/b", CURSOR, first, second)
        with pytest.raises(Conflict):
            await ledgers.write_cursor("t/n/persistent/x", "a/b", CURSOR, first, second)
        assert (await ledgers.read_cursors("t/n/persistent/x", ["a/b", "none"]))["a/b"].info == CURSOR
        with pytest.raises(NotFound, match="no cursor none"):
            await ledgers.read_cursor("t/n/persistent/x", "none")

    on(MemoryTree(), scenario)


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_write_whose_request_or_answer_is_lost_is_done_once(lost: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        ledgers = ManagedLedgerStore(store)
        _, version = await ledgers.create("t/n/persistent/x")
        failures = iter([True])

        async def fail(operation: str, path: str) -> None:
            if operation == "set" and next(failures, False):
                raise Unavailable("lost")

        setattr(store, "before" if lost == "request" else "after", fail)
        second = await ledgers.write("t/n/persistent/x", INFO, version)
        assert await ledgers.read("t/n/persistent/x") == (INFO, second)

    on(MemoryTree(), scenario)


def test_a_write_whose_request_is_lost_does_not_overwrite_the_next_owner() -> None:
    tree = MemoryTree()

    async def scenario(store: MemoryStore) -> None:
        ledgers, other = ManagedLedgerStore(store), ManagedLedgerStore(MemoryStore(tree))
        _, version = await ledgers.create("t/n/persistent/x")

        async def fail(operation: str, path: str) -> None:
            if operation == "set":
                store.before = None
                await other.write("t/n/persistent/x", ManagedLedgerInfo((LedgerInfo(9),)), version)
                raise Unavailable("lost")

        store.before = fail
        with pytest.raises(Conflict):
            await ledgers.write("t/n/persistent/x", INFO, version)
        assert (await other.read("t/n/persistent/x")).info.ledgers[0].ledger_id == 9

    on(tree, scenario)
