"""Ledgers written, read, fenced and recovered through one client, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkrecovery.fence import fence_ledger
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
    Unauthorized,
    Unavailable,
    UsageError,
)
from bkctl.model.ledger import DigestType, LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.client.ledgers import PAYLOADS, read_all


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("size", [(3, 2, 2), (3, 3, 2), (4, 3, 2), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("digest", DigestType)
def test_what_is_written_is_read(digest: DigestType, size: tuple[int, int, int], version: int) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        confirmed: list[int] = []
        async with await bookkeeper.create(*size, digest, b"pw", {"a": b"b"}) as writer:
            writer.on_confirmed(confirmed.append)
            for first in range(0, 1_000, 250):
                assert writer.append_many(PAYLOADS[first : first + 250]) == range(first, first + 250)
            assert await writer.flush() == 999
        assert confirmed == sorted(set(confirmed))
        assert confirmed[-1] == 999
        assert await read_all(bookkeeper, writer.ledger_id, b"pw") == PAYLOADS
        reader = await bookkeeper.open(writer.ledger_id, b"pw")
        assert [e.entry_id async for batch in reader.read(300, 620) for e in batch] == list(range(300, 621))
        assert (await reader.read_entry(7)).payload == PAYLOADS[7]
        assert reader.metadata.length == sum(map(len, PAYLOADS))
        with pytest.raises(UsageError):
            await anext(reader.read(0, 1_000))
        with pytest.raises(Unauthorized):
            await bookkeeper.open(writer.ledger_id, b"other")

    simulate(scenario, version=version)


def test_recovery_finds_what_was_confirmed_and_fences_the_writer() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(4, 3, 2)
        writer.append_many(PAYLOADS)
        await writer.flush()
        report = await recover_ledger(bookkeeper, writer.ledger_id)
        assert (report.state_before, report.closed_by_us, report.last_entry_id) == (LedgerState.OPEN, True, 999)
        assert report.metadata.length == sum(map(len, PAYLOADS))
        assert report.entries_written_back == 999 - report.last_confirmed_found
        assert list(report.end.values()) == ["no_entry", "no_entry"]
        writer.append(b"too late")
        with pytest.raises(LedgerFenced):
            await writer.flush()
        with pytest.raises(LedgerFenced):
            await writer.close()
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS

    simulate(scenario)


def test_recovery_of_an_abandoned_ledger_with_a_bookie_gone() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:100])
        await writer.flush()
        writer.abandon()
        gone = writer.metadata.last_ensemble.bookies[0]
        cluster.kill(gone)
        report = await recover_ledger(bookkeeper, writer.ledger_id)
        assert report.fencing[gone] in ("unreachable", "not waited for")
        assert report.last_entry_id == 99
        assert gone not in report.metadata.last_ensemble.bookies
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS[:100]

    simulate(scenario)


def test_recovery_that_cannot_know_cuts_nothing_off_and_works_later() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        writer.abandon()
        gone = writer.metadata.last_ensemble.bookies[:2]
        for bookie in gone:
            cluster.kill(bookie)
        with pytest.raises(Unavailable):
            await recover_ledger(bookkeeper, writer.ledger_id)
        assert (await bookkeeper.ledgers.read(writer.ledger_id))[0].state is LedgerState.IN_RECOVERY
        for bookie in gone:
            await cluster.loop.create_task(cluster.start_bookie(bookie.partition(":")[0]))
        await asyncio.sleep(10)
        assert (await recover_ledger(bookkeeper, writer.ledger_id)).last_entry_id == 9

    simulate(scenario)


def test_two_recoveries_at_once_agree() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(4, 3, 2)
        writer.append_many(PAYLOADS[:300])
        await writer.flush()
        writer.abandon()
        one, other = await asyncio.gather(
            recover_ledger(bookkeeper, writer.ledger_id), recover_ledger(bookkeeper, writer.ledger_id)
        )
        assert one.last_entry_id == other.last_entry_id == 299
        assert one.metadata.ensembles == other.metadata.ensembles

    simulate(scenario)


def test_fencing_alone_leaves_the_end_open() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        report = await fence_ledger(bookkeeper, writer.ledger_id)
        assert report.metadata.state is LedgerState.IN_RECOVERY
        assert set(report.fencing) <= set(writer.metadata.last_ensemble.bookies)
        writer.append(b"too late")
        with pytest.raises(LedgerFenced):
            await writer.flush()
        closed = await bookkeeper.create(3, 3, 2)
        await closed.close()
        with pytest.raises(LedgerClosed):
            await fence_ledger(bookkeeper, closed.ledger_id)

    simulate(scenario)


def test_a_deleted_ledger_is_told_by_its_own_error() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append(b"one")
        await writer.flush()
        await bookkeeper.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await writer.close()
        with pytest.raises(NoSuchLedger):
            await recover_ledger(bookkeeper, writer.ledger_id)

    simulate(scenario)


def test_recovery_with_the_password_of_the_metadata() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2, DigestType.HMAC, b"secret")
        writer.append(b"one")
        await writer.flush()
        with pytest.raises(Unauthorized):
            await recover_ledger(bookkeeper, writer.ledger_id)
        assert (await recover_ledger(bookkeeper, writer.ledger_id, None)).last_entry_id == 0

    simulate(scenario)


def test_create_list_delete() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writers = [await bookkeeper.create(3, 2, 2) for _ in range(5)]
        ids = [ledger_id async for batch in bookkeeper.list() for ledger_id in batch]
        assert ids == sorted(w.ledger_id for w in writers)
        await bookkeeper.delete(ids[0])
        with pytest.raises(NoSuchLedger):
            await bookkeeper.open(ids[0])
        with pytest.raises(NotEnoughBookies):
            await bookkeeper.create(5, 2, 2)
        with pytest.raises(UsageError):
            await bookkeeper.create(3, 2, 3)
        total, free = await bookkeeper.bookie_info(writers[0].metadata.last_ensemble.bookies[0])
        assert total >= free > 0

    simulate(scenario)
