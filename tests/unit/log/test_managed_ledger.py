"""Managed ledgers in virtual time: order over rollovers, owners that are deposed, bookies that are lost, trimming."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bkctl.errors import Conflict, LedgerClosed, LedgerFenced, NotFound, Unavailable
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.settings import LedgerSettings
from bkctl.log.state import State
from bkctl.model.ids import BookieId
from bkctl.model.topic import EARLIEST, LATEST, Position
from tests.unit.log.logs import (
    EAGER,
    NAME,
    TRIMMING,
    Broker,
    LostAnswers,
    another,
    filled,
    ledger_ids,
    on_brokers,
    payloads,
    read_all,
    until,
)


def test_entries_are_confirmed_in_order_over_rollovers_and_read_again_by_the_next_owner() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        for start in range(0, 100, 4):
            log.add_many(payloads(4, start))
        await until(lambda: len(broker.confirmed) == 100)
        assert broker.confirmed == sorted(broker.confirmed)
        assert len({position.ledger_id for position in broker.confirmed}) == 10
        await until(lambda: log.state is State.OPEN)
        assert await read_all(log) == payloads(100)
        assert log.entries_between(log.ledgers.before_first, log.last_confirmed) == 100
        await log.close()
        info, _ = await broker.ledgers.read(NAME)
        assert [ledger.entries for ledger in info.ledgers] == [10] * 10 + [None]
        second = await another(broker)
        again = await second.open()
        assert again.last_confirmed == broker.confirmed[-1]
        assert await read_all(again) == payloads(100)
        again.add_many([b"more"])
        await until(lambda: second.confirmed)
        assert await read_all(again, log.last_confirmed) == [b"entry 99", b"more"]
        await again.close()
        assert broker.failures == second.failures == []

    on_brokers(scenario)


def test_an_owner_that_was_deposed_confirms_nothing_more() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        second = await another(broker)
        taken = await second.open()
        log.add_many(payloads(5, 100))
        await until(lambda: broker.failures)
        assert isinstance(broker.failures[0], LedgerFenced | LedgerClosed | Conflict)
        assert len(broker.confirmed) == 5
        with pytest.raises((LedgerFenced, LedgerClosed, Conflict)):
            log.add_many([b"x"])
        cursor.ack(broker.confirmed)
        with pytest.raises((LedgerFenced, LedgerClosed, Conflict)):
            await cursor.flush()
        assert await read_all(taken) == payloads(5)
        assert taken.cursors["s"].backlog() == 5
        await log.close()
        await taken.close()
        info, _ = await broker.ledgers.read(NAME)
        assert len(info.ledgers) == 2

    on_brokers(scenario)


def test_an_ack_of_a_deposed_owner_is_refused_before_it_has_written_anything() -> None:
    """Its cursor's node is as it was: only the check of the topic's own node tells."""

    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        second = await another(broker)
        taken = await second.open()
        cursor.ack(broker.confirmed[:2])
        with pytest.raises(Conflict):
            await cursor.flush()
        await until(lambda: broker.failures)
        assert isinstance(broker.failures[0], Conflict)
        assert taken.cursors["s"].backlog() == 5
        await taken.close()

    on_brokers(scenario)


def test_two_that_open_at_the_same_time() -> None:
    async def scenario(broker: Broker) -> None:
        second = await another(broker)
        first = await broker.open()
        first.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        await first.close()
        both = await asyncio.gather(broker.open(), second.open(), return_exceptions=True)
        logs = [log for log in both if isinstance(log, ManagedLedger)]
        assert logs
        for log in logs:
            try:
                log.add_many([b"tail"])
            except (LedgerFenced, LedgerClosed, Conflict):
                pass
        await until(lambda: len(broker.confirmed + second.confirmed) > 3)
        await asyncio.sleep(5)
        third = await (await another(broker)).open()
        assert await read_all(third) == [*payloads(3), *[b"tail"] * (len(broker.confirmed + second.confirmed) - 3)]
        await third.close()

    on_brokers(scenario)


def test_a_ledger_that_loses_its_bookies_is_followed_by_another() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(LedgerSettings(rollover_min_s=0, entries_max=1000, retention_check_s=1e6))
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        writer = log._writer
        assert writer is not None
        for bookie in writer.metadata.last_ensemble.bookies:
            broker.cluster.kill(BookieId(bookie))
        log.add_many(payloads(20, 5))
        await asyncio.sleep(1)
        for host in [str(b).partition(":")[0] for b in writer.metadata.ensembles[0].bookies]:
            await broker.cluster.start_bookie(host)
        await until(lambda: len(broker.confirmed) == 25 or broker.failures)
        assert broker.failures == []
        assert await read_all(log) == payloads(25)
        await log.close()

    on_brokers(scenario, add_timeout_s=2, read_timeout_s=2)


def test_a_dead_bookie_that_is_still_registered_costs_few_ledgers() -> None:
    """Each new ledger has it again, and takes no add: about 18 of them came and went in a second."""

    async def scenario(broker: Broker) -> None:
        whole = LedgerSettings(3, 3, 3, rollover_min_s=0, retention_check_s=1e6)
        log = await broker.open(whole)
        log.add_many(payloads(1))
        await until(lambda: len(broker.confirmed) == 1)
        cluster, made = broker.cluster, log.ledgers.ids[-1]
        cluster.machines["b0"].kill()  # its session lasts
        log.add_many(payloads(5, 1))
        await until(lambda: log.ledgers.ids[-1] > made, 200)  # the first one follows at once
        await asyncio.sleep(60)
        assert 5 <= log.ledgers.ids[-1] - made <= 15
        assert broker.failures == []
        assert log.waiting == 5
        cluster.stores["b0"].expire()
        await cluster.start_bookie("b0")
        await until(lambda: len(broker.confirmed) == 6, 1100)
        await until(lambda: log.state is State.OPEN)
        cluster.machines["b0"].kill()
        made = log.ledgers.ids[-1]
        log.add_many(payloads(1, 6))
        await until(lambda: log.ledgers.ids[-1] > made, 200)  # again at once: adds were stored meanwhile
        cluster.machines["b1"].kill()
        await asyncio.sleep(11)
        async with asyncio.timeout(20):
            await log.close()  # a pause keeps nobody

    on_brokers(scenario, bookies=3)


def test_a_crash_loses_nothing_that_was_confirmed() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        for start in range(0, 60, 3):
            log.add_many(payloads(3, start))
        await until(lambda: len(broker.confirmed) >= 35)
        cursor.ack(broker.confirmed[:12:2])
        await cursor.flush()
        cursor.ack_batch(broker.confirmed[20], [0b101])
        await cursor.flush()
        confirmed = len(broker.confirmed)
        again = await (await another(broker)).open()
        found = await read_all(again)
        assert found == payloads(len(found))
        assert len(found) >= confirmed
        taken = again.cursors["s"]
        assert [p for p in broker.confirmed[:20] if taken.is_acked(p)] == broker.confirmed[:12:2]
        assert taken.mark_delete == broker.confirmed[0]
        assert taken.ack_set(broker.confirmed[20]) == [0b101]
        await again.close()
        third = await (await another(broker)).open()
        assert third.cursors["s"].ack_set(broker.confirmed[20]) == [0b101]  # from the node, which Java forgets
        await third.close()

    on_brokers(scenario)


def test_ledgers_that_all_cursors_passed_are_trimmed_and_readers_move_on() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(TRIMMING)
        slow = await log.open_cursor("slow", EARLIEST)
        fast = await log.open_cursor("fast", EARLIEST)
        reader = await log.open_cursor("reader", EARLIEST, durable=False)
        for start in range(0, 45, 5):
            log.add_many(payloads(5, start))
        await until(lambda: len(broker.confirmed) == 45)
        await until(lambda: log.state is State.OPEN)
        await asyncio.sleep(1)
        fast.ack_cumulative(broker.confirmed[-1])
        slow.ack_cumulative(broker.confirmed[24])
        await until(lambda: len(log.ledgers.ids) == 3)
        assert log.first_position == broker.confirmed[20]
        info, _ = await broker.ledgers.read(NAME)
        assert [ledger.ledger_id for ledger in info.ledgers] == log.ledgers.ids
        left = [ledger_id async for ids in broker.context.bookkeeper.list() for ledger_id in ids]
        assert broker.confirmed[0].ledger_id not in left
        assert reader.mark_delete == (broker.confirmed[20].ledger_id, -1)
        assert reader.backlog() == 25
        assert slow.backlog() == 20
        assert (await log.read(broker.confirmed[0], 1, 1))[0] == (broker.confirmed[20], b"entry 20")
        await log.delete_cursor("slow")
        await until(lambda: log.ledgers.ids == [log.ledgers.open_id])
        await log.close()

    on_brokers(scenario)


def test_retention_keeps_what_all_cursors_passed() -> None:
    async def scenario(broker: Broker) -> None:
        kept = LedgerSettings(
            rollover_min_s=0,
            entries_max=10,
            retention_s=3600,
            retention_bytes=-1,
            retention_check_s=60,
            mark_delete_rate=0,
        )
        log = await broker.open(kept)
        cursor = await log.open_cursor("s", EARLIEST)
        for start in range(0, 30, 5):
            log.add_many(payloads(5, start))
        await until(lambda: len(broker.confirmed) == 30)
        cursor.ack_cumulative(broker.confirmed[-1])
        await asyncio.sleep(3500)
        assert len(await read_all(log)) == 30
        await asyncio.sleep(400)
        assert log.ledgers.ids == [log.ledgers.open_id]
        await log.close()

    on_brokers(scenario)


def test_a_ledger_grows_old() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(
            LedgerSettings(rollover_min_s=10, rollover_max_s=100, entries_max=2, retention_check_s=1e6)
        )
        await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        assert len(log.ledgers.ids) == 1  # too young to be rolled over, however full
        await asyncio.sleep(110)
        assert len(log.ledgers.ids) == 2
        await asyncio.sleep(500)
        assert len(log.ledgers.ids) == 2  # an empty one is kept
        await log.close()

    on_brokers(scenario)


def test_the_end_of_a_log_is_in_its_last_ledger_though_that_is_empty() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        (ledger_id,) = log.ledgers.ids
        assert await log.terminate() == Position(ledger_id, -1) == await log.terminate()
        assert (await broker.ledgers.read(NAME))[0].terminated == Position(ledger_id, -1)
        await log.close()
        again = await (await another(broker)).open()
        assert (again.ledgers.ids, again.last_confirmed) == ([ledger_id], Position(ledger_id, -1))
        assert await again.terminate() == Position(ledger_id, -1)
        cursor = await again.open_cursor("s", EARLIEST)
        assert (cursor.backlog(), await read_all(again)) == (0, [])
        await again.close()

    on_brokers(scenario)


def test_an_empty_ledger_after_others_is_the_end_of_a_log() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        await log.close()
        again = await (await another(broker)).open()
        _, empty = again.ledgers.ids
        assert await again.terminate() == Position(empty, -1)
        assert again.last_confirmed == broker.confirmed[-1]
        await again.close()
        assert await read_all(await (await another(broker)).open()) == payloads(3)

    on_brokers(scenario)


def test_the_end_of_a_log() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        await log.set_property("pulsar.topic.epoch", "7")
        assert await log.terminate() == broker.confirmed[-1] == await log.terminate()
        with pytest.raises(LedgerClosed, match="terminated"):
            log.add_many([b"x"])
        await log.close()
        again = await (await another(broker)).open()
        assert (again.state, again.last_confirmed) == (State.TERMINATED, broker.confirmed[-1])
        assert again.properties == {"pulsar.topic.epoch": "7"}
        assert await read_all(again) == payloads(3)
        cursor = await again.open_cursor("late", LATEST)
        assert cursor.backlog() == 0
        await again.delete()
        assert [ledger_id async for ids in broker.context.bookkeeper.list() for ledger_id in ids] == []

    on_brokers(scenario)


def test_what_waits_is_bounded_and_told() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(EAGER)
        assert not log.congested
        log.add_many([b"x" * 1_000_000] * 40)
        assert log.congested
        await until(lambda: len(broker.confirmed) == 40)
        assert not log.congested
        await log.close()

    on_brokers(scenario)


def test_positions_outside_of_the_log() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        assert log.last_confirmed.entry_id == -1
        assert await log.read(EARLIEST, 1, 1) == []
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        assert await log.read(LATEST, 1, 1) == []
        latest = await log.open_cursor("latest", LATEST)
        middle = await log.open_cursor("middle", broker.confirmed[1])
        assert (latest.backlog(), middle.backlog()) == (0, 2)
        latest.ack([Position(999, 0), Position(broker.confirmed[0].ledger_id, 50), EARLIEST])
        assert latest.backlog() == 0
        await middle.reset(EARLIEST)
        assert (middle.backlog(), middle.read_position) == (3, broker.confirmed[0])
        middle.ack(broker.confirmed[1:2])
        await middle.skip(1)
        assert middle.mark_delete == broker.confirmed[1]
        await middle.reset(LATEST)
        assert middle.backlog() == 0
        await log.close()

    on_brokers(scenario)


def test_an_empty_ledger_is_deleted_after_it_left_the_list() -> None:
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


def test_ledgers_are_deleted_if_the_answer_to_the_deletion_of_the_node_is_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await filled(broker)
        lost = LostAnswers(broker.ledgers.store, NAME)
        await log.delete()
        lost.mend()
        assert await ledger_ids(broker) == []
        with pytest.raises(NotFound):
            await broker.ledgers.read(NAME)

    on_brokers(scenario)


def test_ledgers_are_dropped_after_a_trim_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_full_ledger_is_rolled_over_only_while_the_metadata_store_is_reachable() -> None:
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


def test_the_deletion_of_a_log_retries_ledgers_that_could_not_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_log_is_deleted_while_one_of_its_cursors_is_being_deleted() -> None:
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
