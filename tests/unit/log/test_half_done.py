"""What is half done: an answer that is lost, a step that fails between two others, an end while somebody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bkctl.errors import BkctlError, LedgerClosed, NotEnoughBookies, NotFound, Unavailable
from bkctl.log.log import Log
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.state import State
from bkctl.model.topic import EARLIEST, Position
from tests.unit.log.logs import EAGER, NAME, TRIMMING, Broker, another, on_brokers, payloads, read_all, until


async def filled(broker: Broker, settings: Any = EAGER, count: int = 30) -> ManagedLedger:
    log = await broker.open(settings)
    log.add_many(payloads(count))
    await until(lambda: len(broker.confirmed) == count and log.state is State.OPEN)
    return log


async def ledger_ids(broker: Broker) -> list[int]:
    return sorted([ledger_id async for ids in broker.context.bookkeeper.list() for ledger_id in ids])


class LostAnswers:
    """A store whose answers to writes of a path are lost after the writes were done, and reads of it fail a while."""

    def __init__(self, store: Any, path_end: str) -> None:
        self.blind = False
        self._store, self._path_end = store, path_end
        self._calls = {name: getattr(store, name) for name in ("multi", "delete", "get", "exists")}
        store.multi, store.delete = self._multi, self._delete
        store.get, store.exists = self._reading("get"), self._reading("exists")

    async def _multi(self, operations: Any) -> None:
        await self._calls["multi"](operations)
        self._lose(*(operation.path for operation in operations))

    async def _delete(self, path: str, version: Any) -> None:
        await self._calls["delete"](path, version)
        self._lose(path)

    def _lose(self, *paths: str) -> None:
        if any(path.endswith(self._path_end) for path in paths):
            raise Unavailable("the answer was lost")

    def _reading(self, name: str) -> Callable[[str], Any]:
        async def read(path: str) -> Any:
            if self.blind and path.endswith(self._path_end):
                raise Unavailable("no answer")
            return await self._calls[name](path)

        return read

    def mend(self) -> None:
        for name, call in self._calls.items():
            setattr(self._store, name, call)


# -- the list of ledgers ----------------------------------------------------------------------------------------------


def test_the_last_ledger_of_a_log_that_java_terminated_is_kept_though_the_list_has_no_figures_of_it() -> None:
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


def test_a_ledger_that_took_no_entry_is_deleted_when_the_list_has_it_no_more() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, count=5)
        await log.roll()
        first, empty = log.ledgers.ids
        log.state = State.SWITCHING  # as when its bookies are lost
        await log._roll()
        assert log.ledgers.ids[0] == first
        assert empty not in log.ledgers.ids
        assert await ledger_ids(broker) == log.ledgers.ids
        (last,) = log.ledgers.ids[1:]
        await log.terminate()
        info, _ = await broker.ledgers.read(NAME)
        assert await ledger_ids(broker) == [ledger.ledger_id for ledger in info.ledgers] == [first, last]
        await log.close()

    on_brokers(scenario)


def test_a_log_whose_deletion_fails_halfway_is_closed_and_can_be_deleted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        for name in ("a", "b"):
            await log.open_cursor(name, EARLIEST)
        delete = broker.ledgers.delete_cursor

        async def fails(name: str, cursor: str, *versions: Any) -> None:
            if cursor == "b":
                raise Unavailable("the store is away")
            await delete(name, cursor, *versions)

        monkeypatch.setattr(broker.ledgers, "delete_cursor", fails)
        with pytest.raises(Unavailable):
            await log.delete()
        assert log.state in (State.CLOSED, State.FAILED)
        assert log._writer is None
        monkeypatch.undo()
        again = await broker.open()
        assert list(again.cursors) == ["b"]
        await again.delete()
        assert await ledger_ids(broker) == []

    on_brokers(scenario)


def test_ledgers_of_a_log_are_deleted_though_the_answer_to_the_deletion_of_its_node_was_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        lost = LostAnswers(broker.ledgers.store, NAME)
        await log.delete()
        lost.mend()
        assert await ledger_ids(broker) == []
        with pytest.raises(NotFound):
            await broker.ledgers.read(NAME)

    on_brokers(scenario)


def test_ledgers_are_dropped_after_those_that_are_trimmed_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, count=25)
        await log.open_cursor("s", Position(log.ledgers.ids[1], 0))
        log.settings = TRIMMING
        first, second, last = log.ledgers.ids
        write, held = broker.ledgers.write, asyncio.Event()

        async def later(*asked: Any) -> Any:
            await held.wait()
            return await write(*asked)

        monkeypatch.setattr(broker.ledgers, "write", later)
        trimmed, dropped = asyncio.ensure_future(log.trim()), asyncio.ensure_future(log.drop_ledgers([first, second]))
        await asyncio.sleep(0)
        held.set()
        assert (await trimmed, await dropped, log.ledgers.ids) == ([first], [second], [last])
        await log.close()

    on_brokers(scenario)


def test_a_ledger_is_full_only_once_the_metadata_store_can_be_reached() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, replace(EAGER, rollover_max_s=50), count=5)
        store: Any = broker.ledgers.store
        store.suspend()
        await until(lambda: not broker.ledgers.reachable)
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 30)
        await asyncio.sleep(60)
        await log.roll()
        assert (len(log.ledgers.ids), broker.failures) == (1, [])
        store.resume()
        await until(lambda: broker.ledgers.reachable)
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 35 and len(log.ledgers.ids) == 2)
        assert await read_all(log) == [*payloads(5), *payloads(25), *payloads(5)]
        await log.close()

    on_brokers(scenario)


def test_a_ledger_that_could_not_be_deleted_is_deleted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker, replace(TRIMMING, retention_check_s=100), count=25)
        cursor = await log.open_cursor("s", EARLIEST)
        cursor.ack(broker.confirmed[20:21])
        await cursor.flush()

        async def away(*_: Any) -> None:
            raise Unavailable("the store is away")

        monkeypatch.setattr(broker.context.bookkeeper.ledgers, "delete", away)
        log.add_many(payloads(10))
        await until(lambda: len(log.ledgers.ids) == 2)
        cursor.ack_cumulative(log.last_confirmed)
        await cursor.flush()
        await until(lambda: len(log.ledgers.ids) == 1)
        assert len(await ledger_ids(broker)) == 3
        monkeypatch.undo()
        await asyncio.sleep(100)
        assert await ledger_ids(broker) == sorted([*log.ledgers.ids, cursor.ledger_id])
        await log.close()

    on_brokers(scenario)


def test_ledgers_of_a_deleted_log_that_could_not_be_deleted_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        delete, failed = broker.context.bookkeeper.ledgers.delete, set[int]()

        async def fails_once(ledger_id: Any, version: Any) -> None:
            if ledger_id not in failed:
                failed.add(ledger_id)
                raise Unavailable("no answer")
            await delete(ledger_id, version)

        monkeypatch.setattr(broker.context.bookkeeper.ledgers, "delete", fails_once)
        await log.delete()
        assert await ledger_ids(broker) == []
        assert len(failed) == 4

    on_brokers(scenario)


# -- cursors ----------------------------------------------------------------------------------------------------------


def test_a_cursor_is_deleted_though_the_answer_was_lost() -> None:
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


def test_a_cursor_whose_creation_nobody_heard_of_is_found_at_the_next_attempt() -> None:
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


def test_a_cursors_state_is_as_durable_as_before_when_its_next_ledger_cannot_be_made(
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


def test_who_waits_for_a_cursor_hears_of_an_error_of_ours_too(monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- the log as a library ---------------------------------------------------------------------------------------------


def test_who_waits_for_a_log_that_is_closed_is_told() -> None:
    async def scenario(broker: Broker) -> None:
        log = Log(await broker.open(replace(TRIMMING, entries_max=1_000_000)))

        async def follow() -> None:
            async for _ in log.follow(Position(1 << 40, 0)):
                pass

        waiting = [asyncio.ensure_future(follow())]
        waiting += [asyncio.ensure_future(log.append([b"x" * 1000] * 1000)) for _ in range(50)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        log.ledger._switch()
        late = asyncio.ensure_future(log.append([b"late"]))
        await asyncio.sleep(0)
        await log.close()
        async with asyncio.timeout(60):
            told = await asyncio.gather(*waiting, late, return_exceptions=True)
        assert isinstance(told[0], LedgerClosed)
        assert isinstance(told[-1], BkctlError)
        assert all(isinstance(one, list | LedgerClosed) for one in told[1:])

    on_brokers(scenario)


def test_a_cursor_that_is_being_deleted_keeps_no_log_from_being_deleted() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        for name in ("one", "two"):
            await log.open_cursor(name, EARLIEST)
        told = await asyncio.gather(log.delete_cursor("two"), log.delete(), return_exceptions=True)
        assert told == [None, None]
        assert log.cursors == {}
        assert await ledger_ids(broker) == []
        with pytest.raises(NotFound):
            await broker.ledgers.read(NAME)

    on_brokers(scenario)


def test_a_cursor_that_a_deposed_broker_of_java_wrote_late_keeps_what_was_acknowledged_since() -> None:
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
