"""The replication worker, on real bookies in virtual time: lost copies are replaced, writers fenced only when due."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkrecovery.checker import LedgerChecker
from bkrecovery.fragment import Fragment
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.errors import LedgerClosed, LedgerFenced
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import (
    PAYLOADS,
    QUIET,
    assert_replicated,
    bookies_of,
    closed,
    gone_from,
    holds,
    left_open,
    marked,
    put_racks,
    queue_of,
    quiet,
    recovering,
    until,
    write,
)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("size", [(3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 2, 2)], ids=str)
def test_a_lost_bookie_is_replaced_in_every_ledger(size: tuple[int, int, int], version: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, size, 400, digest) for digest in DigestType]
        ledgers.append(await write(bookkeeper, size, 0))
        ledgers.append(await write(bookkeeper, size, 1))
        ledgers.append(await write(bookkeeper, size, 1_200))
        gone = BookieId("b0:3181")
        async with recovering(bookkeeper) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks > 0))
            cluster.kill(gone)
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
        for ledger_id, count in zip(ledgers, [400] * len(DigestType) + [0, 1, 1_200], strict=True):
            await assert_replicated(cluster, bookkeeper, ledger_id, count)
        assert await queue_of(cluster).locks() == []

    simulate(scenario, bookies=6, version=version)


def test_copies_have_the_bytes_of_the_original() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2), 100)
        old, kept = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        async with recovering(bookkeeper):
            cluster.kill(old)
            await until(lambda: gone_from(bookkeeper, old))
        new, other = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        assert other == kept
        for entry_id in range(100):
            replies = [
                await bookkeeper.context.pool.connection(bookie).call(lambda c, e=entry_id: c.read(ledger_id, e), 5)
                for bookie in (kept, new)
            ]
            assert replies[0].body == replies[1].body

    simulate(scenario, version=2)


def test_an_open_ledger_is_fenced_after_the_grace_period_and_not_before() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, metadata = await left_open(bookkeeper)
        gone = metadata.last_ensemble.bookies[1]
        async with recovering(bookkeeper, settings=RecoverySettings(open_grace_s=20.0)) as recovery:
            cluster.kill(gone)
            await until(lambda: holds(ledger_id in recovery.worker.holding))
            await asyncio.sleep(19.0)
            assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
            assert recovery.worker.counts.ledgers_recovered == 1
        await assert_replicated(cluster, bookkeeper, ledger_id, 50)

    simulate(scenario, version=2)


def test_no_writer_is_fenced_while_auto_recovery_is_disabled() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, metadata = await left_open(bookkeeper)
        gone, queue = metadata.last_ensemble.bookies[1], queue_of(cluster)
        async with recovering(bookkeeper, settings=RecoverySettings(open_grace_s=20.0)) as recovery:
            cluster.kill(gone)
            await until(lambda: holds(ledger_id in recovery.worker.holding))
            await queue.disable()
            await asyncio.sleep(60.0)
            assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN
            assert (await marked(cluster), await queue.locks()) == ([ledger_id], [])
            await queue.enable()
            await asyncio.sleep(19.0)
            assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN, (
                "the grace period starts again"
            )
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))

    simulate(scenario, version=2)


def test_an_interrupted_recovery_is_completed_after_the_grace_period() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        begun, _ = await left_open(bookkeeper)
        opened, _ = await left_open(bookkeeper)
        await bookkeeper.ledgers.update(begun, lambda metadata: replace(metadata, state=LedgerState.IN_RECOVERY))
        await queue_of(cluster).ensure()
        for ledger_id in (begun, opened):  # as a check that found a bookie away, which is back now
            await queue_of(cluster).mark(ledger_id, [])
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with recovering(bookkeeper) as recovery:
            await until(lambda: closed(bookkeeper, begun))
            assert loop.time() - start >= 5.0, "the process that started it has the grace period"
            await until(lambda: quiet(cluster))
        await assert_replicated(cluster, bookkeeper, begun, 50)
        assert recovery.worker.counts.ledgers_recovered == 1
        state = (await bookkeeper.ledgers.read(opened))[0].state
        assert state is LedgerState.OPEN, "its writer may live, and has all its bookies"

    simulate(scenario, bookies=5)


def test_a_writer_that_replaces_the_lost_bookie_is_not_fenced() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2, DigestType.CRC32C, b"pw")
        writer.append_many(PAYLOADS[:100])
        await writer.flush()
        gone = writer.metadata.last_ensemble.bookies[0]
        async with recovering(bookkeeper) as recovery:
            cluster.kill(gone)
            for start in range(100, 200, 10):  # the first of them makes it replace the bookie
                await asyncio.sleep(1.0)
                writer.append_many(PAYLOADS[start : start + 10])
                await writer.flush()
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
            assert recovery.worker.counts.ledgers_recovered == 0
        assert len(writer.metadata.ensembles) == 2
        await writer.close()
        await assert_replicated(cluster, bookkeeper, writer.ledger_id, 200)

    simulate(scenario, bookies=5, version=2)


def test_adds_of_a_writer_fail_after_auto_recovery_fenced_its_ledger() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        cluster.kill(writer.metadata.last_ensemble.bookies[0])
        async with recovering(bookkeeper):
            await until(lambda: closed(bookkeeper, writer.ledger_id))
        writer.append_many(PAYLOADS[10:20])
        with pytest.raises((LedgerFenced, LedgerClosed)):
            await writer.flush()
        await assert_replicated(cluster, bookkeeper, writer.ledger_id, 10)

    simulate(scenario, version=2)


def test_entries_of_unavailable_bookies_are_copied_when_a_bookie_returns() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2))
        both = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        settings = RecoverySettings(failure_pause_s=64.0)
        async with recovering(bookkeeper, settings=settings) as recovery:
            for bookie in both:
                cluster.kill(bookie)
            await until(lambda: holds(ledger_id in recovery.worker.unreadable))
            assert recovery.worker.unreadable[ledger_id].lost == []  # no bookie reported them as missing
            await until(lambda: holds(ledger_id in recovery.worker.holding))
            assert await marked(cluster) == [ledger_id]
            assert [lock.ledger_id for lock in await queue_of(cluster).locks()] == [ledger_id]
            assert (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies == both
            await asyncio.get_running_loop().create_task(cluster.start_bookie(both[1].partition(":")[0]))
            await until(lambda: gone_from(bookkeeper, both[0]))
            await until(lambda: quiet(cluster))
            assert not recovery.worker.unreadable
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2)


def test_a_ledger_stays_marked_until_enough_bookies_are_available() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[2]
        async with recovering(bookkeeper, settings=RecoverySettings(failure_pause_s=64.0)):
            cluster.kill(gone)
            await asyncio.sleep(10.0)
            assert await marked(cluster) == [ledger_id]
            await asyncio.get_running_loop().create_task(cluster.start_bookie("b9"))
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, bookies=3, version=2)


def test_a_deleted_ledger_is_removed_from_the_queue() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        await queue_of(cluster).mark(77, [BookieId("b0:3181")])
        async with recovering(bookkeeper):
            await until(lambda: quiet(cluster))

    simulate(scenario, version=2)


def test_a_ledger_whose_repair_raises_is_not_retried_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []
    check = LedgerChecker.check

    async def broken(self: LedgerChecker, ledger_id: int, *arguments: Any) -> list[Fragment]:
        asked.append(ledger_id)
        if ledger_id == asked[0]:
            raise KeyError("a bug")
        return await check(self, ledger_id, *arguments)

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (2, 2, 2), 10) for _ in range(5)]
        queue = queue_of(cluster)
        for ledger_id in ledgers:
            await queue.mark(ledger_id, [])
        monkeypatch.setattr(LedgerChecker, "check", broken)
        async with recovering(bookkeeper) as recovery:
            await until(lambda: holds(len(recovery.worker.holding) == 1))
            await asyncio.sleep(5)
            assert [lock.ledger_id for lock in await queue.locks()] == [asked[0]], "the others are done"
            assert asked.count(asked[0]) == 1
        assert await queue.locks() == []
        assert "a bug" in caplog.text

    simulate(scenario, version=2)


def test_a_ledger_locked_by_another_worker_is_repaired_after_the_release() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        other = queue_of(cluster)
        await other.mark(ledger_id, [])
        lock = await other.lock(ledger_id, "another host")
        assert lock is not None
        async with recovering(bookkeeper):
            await asyncio.sleep(60.0)
            assert await marked(cluster) == [ledger_id]
            await other.release(lock)
            assert await until(lambda: quiet(cluster)) < 5.0  # heard of by a watch, not found by looking

    simulate(scenario, version=2)


def test_the_replication_rate_is_enforced() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 1_200)
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        slow = RecoverySettings(rate_bytes_per_s=2_000)
        async with recovering(bookkeeper, settings=slow) as recovery:
            cluster.kill(gone)
            took_s = await until(lambda: gone_from(bookkeeper, gone))
            size = recovery.worker.replicator.counts.bytes_written
            assert size > sum(map(len, PAYLOADS))
            assert 0.5 * size / 2_000 < took_s < size / 2_000 + 5.0

    simulate(scenario, version=2)


def test_a_lost_bookie_is_replaced_by_one_on_another_rack() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        racks = {f"b{i}": f"/r{i % 3}" for i in range(6)}
        await put_racks(cluster, racks)
        ledgers = [await write(bookkeeper, (3, 3, 2), 20) for _ in range(8)]
        gone = BookieId("b0:3181")
        async with recovering(bookkeeper, "ar", QUIET):
            cluster.kill(gone)
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
        for ledger_id in ledgers:
            found = {racks[b.partition(":")[0]] for b in await bookies_of(bookkeeper, ledger_id)}
            assert found == {"/r0", "/r1", "/r2"}

    simulate(scenario, bookies=6, version=2)


def test_many_ledgers_are_tried_at_a_time_while_copies_succeed() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(8):
            async with await bookkeeper.create(3, 3, 2) as writer:
                writer.append_many([bytes(100_000)] * 30)
        settings = RecoverySettings(ledger_check_s=0, placement_check_s=0, rate_bytes_per_s=1_000_000)
        async with recovering(bookkeeper, "ar", settings) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(BookieId("b0:3181"))
            most = 0
            while not await gone_from(bookkeeper, BookieId("b0:3181")):
                most = max(most, len(recovery.worker.working_on))
                await asyncio.sleep(0.2)
            assert most > 4  # as many as are tried at a time, where nothing is known of them yet
            await until(lambda: quiet(cluster))

    simulate(scenario, bookies=4, version=2)


def test_few_ledgers_are_tried_at_a_time_while_no_bookie_is_available() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(40):
            await write(bookkeeper, (3, 3, 2), 2)
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(BookieId("b0:3181"))  # and no other is there to take its place
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 2))
            await asyncio.sleep(9.0)
            tries = recovery.worker.counts.pass_ms.failed_count
            assert 4 <= tries <= 12  # four at a time, each followed by five seconds: rwRereplicateBackoffMs
            await asyncio.get_running_loop().create_task(cluster.start_bookie("b9"))
            await until(lambda: gone_from(bookkeeper, BookieId("b0:3181")))
            await until(lambda: quiet(cluster))

    simulate(scenario, bookies=3, version=2)
