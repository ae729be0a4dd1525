"""Managed ledgers in their nodes and ledgers: recovery, failed and lost writes, takeovers, trimming."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bkctl.codec.managed_ledger import ManagedLedgerInfo, decode_ledger_info, encode_ledger_info
from bkctl.errors import BkctlError, Conflict, LedgerFenced, Unavailable
from bkctl.log import cursor as cursors
from bkctl.log.state import State
from bkctl.model.ids import BookieId
from bkctl.model.status import Status
from bkctl.model.topic import EARLIEST, Position
from tests.unit.log.logs import EAGER, NAME, TRIMMING, Broker, another, on_brokers, payloads, until
from tests.unit.log.store_faults import lose_replies

KIB = 1024


async def ledger_ids(broker: Broker) -> list[int]:
    return [int(ledger_id) async for ids in broker.context.bookkeeper.list() for ledger_id in ids]


async def spoil_node(broker: Broker) -> None:
    """Somebody else writes the topic's node."""
    info, version = await broker.ledgers.read(NAME)
    await broker.ledgers.write(NAME, info, version)


def test_a_ledger_is_kept_when_the_reply_to_the_node_s_write_is_lost() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        second = await another(broker)
        lose_replies(broker.ledgers.store, "/t")
        await log.roll()
        await until(lambda: broker.failures)
        info, _ = await second.ledgers.read(NAME)
        assert len(info.ledgers) == 2, "the write was done"
        for ledger in info.ledgers:
            await second.context.bookkeeper.ledgers.read(ledger.ledger_id)

    on_brokers(scenario)


def test_ledgers_are_trimmed_only_once_their_acknowledgements_are_stored() -> None:
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


def test_opening_fails_with_the_reason_when_a_cursor_cannot_be_read() -> None:
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


def test_opening_fails_when_another_owner_takes_the_log_meanwhile() -> None:
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


def test_reads_from_cached_parts_with_different_starts_return_the_right_entries() -> None:
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


def test_confirmations_after_a_log_failure_are_dropped() -> None:
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


@pytest.mark.parametrize("fails", [True, False])
def test_a_closed_or_failed_log_releases_its_unconfirmed_bytes(fails: bool) -> None:
    async def scenario(broker: Broker) -> None:
        log, other = await broker.open(), await broker.open(name="public/default/persistent/other")
        memory = broker.context.cache
        log.add_many([bytes(200 * KIB)] * 5)
        other.add_many([bytes(KIB)])
        assert memory.unconfirmed_bytes == 1001 * KIB
        if fails:
            log.failed(LedgerFenced("another has it", status=Status.FENCED))
            assert memory.unconfirmed_bytes == KIB
        await log.close()
        await until(lambda: len(broker.confirmed) >= 1)
        await other.close()
        assert memory.unconfirmed_bytes == 0

    on_brokers(scenario)


def test_the_last_ledger_is_recovered_before_the_next_is_created() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        before, ids = await broker.ledgers.read(NAME), await ledger_ids(broker)
        writer = log._writer
        assert writer is not None
        for bookie in writer.metadata.last_ensemble.bookies:
            broker.cluster.kill(BookieId(bookie))
        second = await another(broker, read_timeout_s=2, add_timeout_s=2)
        with pytest.raises(BkctlError) as failed:
            await second.open()
        assert isinstance(failed.value, Unavailable)
        assert await broker.ledgers.read(NAME) == before
        assert await ledger_ids(broker) == ids

    on_brokers(scenario, read_timeout_s=2, add_timeout_s=2)


def test_a_failed_node_write_keeps_named_ledgers_and_deletes_others() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(TRIMMING)
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 25 and log.state is State.OPEN)
        named = [one.ledger_id for one in (await broker.ledgers.read(NAME)).info.ledgers]
        await spoil_node(broker)
        cursor.ack_cumulative(broker.confirmed[-1])
        with pytest.raises(BkctlError):
            await cursor.flush()
        await until(lambda: broker.failures)
        await asyncio.sleep(5)
        assert set(named) <= set(await ledger_ids(broker)), "the node still names them"
        second = await another(broker)
        again = await second.open(EAGER)
        again.add_many(payloads(4, 25))
        await until(lambda: len(second.confirmed) == 4)
        before = await ledger_ids(broker)
        await spoil_node(broker)
        await again.roll()
        assert isinstance(second.failures[0] if second.failures else again.error, Conflict)
        await asyncio.sleep(5)
        assert await ledger_ids(broker) == before, "the ledger that no node names is deleted"

    on_brokers(scenario)


def test_the_timestamp_of_a_ledger_is_that_of_its_close() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        await asyncio.sleep(1000)
        log.add_many(payloads(10))
        await until(lambda: len(broker.confirmed) == 10 and len(log.ledgers.ids) == 2)
        now_ms = broker.context.world.clock.now_ms()
        path = broker.ledgers.path(NAME)
        node = await broker.ledgers.store.get(path)
        closed, still_open = decode_ledger_info(node.data, source=path).ledgers
        assert closed.timestamp_ms is not None
        assert now_ms - 5000 < closed.timestamp_ms <= now_ms
        assert still_open.timestamp_ms == 0
        assert node.data.endswith(b"\x20\x00"), "an explicit nought, as Java writes"
        await log.close()

    on_brokers(scenario)


def test_unknown_fields_are_kept_over_a_rollover() -> None:
    offloaded = bytes.fromhex("2a060801100218013204707269" + "76")  # offloadContext, and a field 6 of newer releases

    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        await log.close()
        info, version = await broker.ledgers.read(NAME)
        kept = replace(info.ledgers[0], rest=offloaded)
        unknown = bytes.fromhex("fa0703616263")  # a field 127
        await broker.ledgers.write(NAME, ManagedLedgerInfo((kept,), rest=unknown), version)
        again = await (await another(broker)).open()
        again.add_many(payloads(5))
        await until(lambda: again.ledgers.open_entries == 5)
        await again.roll()
        await again.close()
        after, _ = await broker.ledgers.read(NAME)
        assert (after.ledgers[0].rest, after.rest) == (offloaded, unknown)
        assert offloaded in encode_ledger_info(after)

    on_brokers(scenario)
