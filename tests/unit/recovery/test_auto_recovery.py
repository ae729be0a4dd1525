"""Auditor and worker, real code, on real bookies in virtual time: what is lost comes back, and nothing else happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.autorecovery.server import AutoRecovery, beside_bookie
from bkdaemon.bookie.config import config_from
from bkrecovery.checker import LedgerChecker
from bkrecovery.fragment import Fragment
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.errors import LedgerClosed, LedgerFenced
from bkctl.meta.memory import MemoryStore
from bkctl.meta.underreplication import Underreplication
from bkctl.meta.uri import parse_uri
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState
from bkctl.world import SystemClock
from tests.unit.client.cluster import ROOT, SimCluster, simulate

PAYLOADS = [b"payload %d " % i * (i % 7) for i in range(1_200)]
PATIENCE_S = 300.0
URI = parse_uri("zk://memory/ledgers")


def queue_of(cluster: SimCluster) -> Underreplication:
    return Underreplication(MemoryStore(cluster.tree), ROOT, SystemClock())


async def until(condition: Callable[[], Awaitable[bool]]) -> float:
    """Waits, in virtual time; returns how long it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - conditions of stores and bookies, in virtual time
            await asyncio.sleep(0.05)
    return loop.time() - start


async def marked(cluster: SimCluster) -> list[int]:
    return [e async for ledger_ids in queue_of(cluster).markers() for e in ledger_ids]


async def quiet(cluster: SimCluster) -> bool:
    return not await marked(cluster) and not await queue_of(cluster).locks()


@asynccontextmanager
async def recovering(
    bookkeeper: BookKeeper, name: str = "ar", settings: RecoverySettings | None = None
) -> AsyncIterator[AutoRecovery]:
    settings = settings or RecoverySettings(open_grace_s=5.0)
    recovery = AutoRecovery(BookieId(name), bookkeeper, settings, URI)
    task = asyncio.create_task(recovery.run())
    try:
        yield recovery
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def write(
    bookkeeper: BookKeeper, size: tuple[int, int, int], count: int = 400, digest: DigestType = DigestType.CRC32C
) -> int:
    async with await bookkeeper.create(*size, digest, b"pw") as writer:
        writer.append_many(PAYLOADS[:count])
    return writer.ledger_id


async def left_open(bookkeeper: BookKeeper, count: int = 50) -> tuple[int, LedgerMetadata]:
    writer = await bookkeeper.create(3, 3, 2)
    writer.append_many(PAYLOADS[:count])
    await writer.flush()
    writer.abandon()
    return writer.ledger_id, writer.metadata


async def gone_from(bookkeeper: BookKeeper, bookie: BookieId) -> bool:
    async for ledger_ids in bookkeeper.list():
        async for record in bookkeeper.ledgers.read_many(ledger_ids):
            if any(bookie in ensemble.bookies for ensemble in record.metadata.ensembles):
                return False
    return True


async def assert_replicated(cluster: SimCluster, bookkeeper: BookKeeper, ledger_id: int, count: int) -> None:
    """Every entry is on every bookie that is to store it, on no other of the ensemble, and reads well."""
    metadata, _ = await bookkeeper.ledgers.read(ledger_id)
    assert metadata.last_entry_id == count - 1
    for at, ensemble in enumerate(metadata.ensembles):
        end = metadata.ensembles[at + 1].first_entry_id if at + 1 < len(metadata.ensembles) else count
        for index, bookie in enumerate(ensemble.bookies):
            due = {
                e
                for e in range(ensemble.first_entry_id, end)
                if (index - e) % metadata.ensemble_size < metadata.write_quorum_size
            }
            _, stored = cluster.bookies[bookie.partition(":")[0]].list_entries(ledger_id)
            assert due <= set(stored)
    reader = await bookkeeper.open(ledger_id, metadata.password or b"")
    assert [e.payload async for batch in reader.read() for e in batch] == PAYLOADS[:count]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("size", [(3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 2, 2)], ids=str)
def test_a_lost_bookie_is_replaced_everywhere(size: tuple[int, int, int], version: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, size, 400, digest) for digest in DigestType]
        ledgers.append(await write(bookkeeper, size, 0))
        ledgers.append(await write(bookkeeper, size, 1))
        ledgers.append(await write(bookkeeper, size, 1_200))
        gone = BookieId("b0:3181")
        async with recovering(bookkeeper) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks > 0))
            cluster.kill(gone)
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
        for ledger_id, count in zip(ledgers, [400] * len(DigestType) + [0, 1, 1_200], strict=True):
            await assert_replicated(cluster, bookkeeper, ledger_id, count)
        assert await queue_of(cluster).locks() == []

    simulate(scenario, bookies=6, version=version)


async def _is(value: bool) -> bool:
    return value


def test_copies_are_the_bytes_that_were_sealed() -> None:
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
            await until(lambda: _is(ledger_id in recovery.worker.holding))
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
            await until(lambda: _is(ledger_id in recovery.worker.holding))
            await queue.disable()
            await asyncio.sleep(60.0)
            assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN
            assert (await marked(cluster), await queue.locks()) == ([ledger_id], [])
            await queue.enable()
            await asyncio.sleep(19.0)
            assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN, "its time begins anew"
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))

    simulate(scenario, version=2)


def test_a_recovery_that_was_begun_is_ended_after_the_grace_period_though_nothing_is_missing() -> None:
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
            await until(lambda: _closed(bookkeeper, begun))
            assert loop.time() - start >= 5.0, "whoever began it has the grace period"
            await until(lambda: quiet(cluster))
        await assert_replicated(cluster, bookkeeper, begun, 50)
        assert recovery.worker.counts.ledgers_recovered == 1
        state = (await bookkeeper.ledgers.read(opened))[0].state
        assert state is LedgerState.OPEN, "its writer may live, and has all its bookies"

    simulate(scenario, bookies=5)


def test_a_writer_that_helps_itself_is_never_fenced() -> None:
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


def test_a_writer_that_was_thought_dead_is_told() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        cluster.kill(writer.metadata.last_ensemble.bookies[0])
        async with recovering(bookkeeper):
            await until(lambda: _closed(bookkeeper, writer.ledger_id))
        writer.append_many(PAYLOADS[10:20])
        with pytest.raises((LedgerFenced, LedgerClosed)):
            await writer.flush()
        await assert_replicated(cluster, bookkeeper, writer.ledger_id, 10)

    simulate(scenario, version=2)


async def _closed(bookkeeper: BookKeeper, ledger_id: int) -> bool:
    return (await bookkeeper.ledgers.read(ledger_id))[0].closed


def test_entries_that_nobody_has_are_reported_and_wait_for_their_bookie() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2))
        both = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        settings = RecoverySettings(failure_pause_s=64.0)
        async with recovering(bookkeeper, settings=settings) as recovery:
            for bookie in both:
                cluster.kill(bookie)
            await until(lambda: _is(ledger_id in recovery.worker.unreadable))
            assert recovery.worker.unreadable[ledger_id].lost == []  # nobody said that they are gone
            await until(lambda: _is(ledger_id in recovery.worker.holding))
            assert await marked(cluster) == [ledger_id]
            assert [lock.ledger_id for lock in await queue_of(cluster).locks()] == [ledger_id]
            assert (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies == both
            await asyncio.get_running_loop().create_task(cluster.start_bookie(both[1].partition(":")[0]))
            await until(lambda: gone_from(bookkeeper, both[0]))
            await until(lambda: quiet(cluster))
            assert not recovery.worker.unreadable
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2)


def test_too_few_bookies_wait_for_another_one() -> None:
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


def test_a_deleted_ledger_leaves_the_queue() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        await queue_of(cluster).mark(77, [BookieId("b0:3181")])
        async with recovering(bookkeeper):
            await until(lambda: quiet(cluster))

    simulate(scenario, version=2)


def test_a_bug_that_one_ledger_meets_is_not_met_all_the_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []
    check = LedgerChecker.check

    async def broken(self: LedgerChecker, ledger_id: int, *arguments: Any) -> list[Fragment]:
        asked.append(ledger_id)
        if ledger_id == asked[0]:
            raise KeyError("what nobody thought of")
        return await check(self, ledger_id, *arguments)

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (2, 2, 2), 10) for _ in range(5)]
        queue = queue_of(cluster)
        for ledger_id in ledgers:
            await queue.mark(ledger_id, [])
        monkeypatch.setattr(LedgerChecker, "check", broken)
        async with recovering(bookkeeper) as recovery:
            await until(lambda: _is(len(recovery.worker.holding) == 1))
            await asyncio.sleep(5)
            assert [lock.ledger_id for lock in await queue.locks()] == [asked[0]], "the others are done"
            assert asked.count(asked[0]) == 1
        assert await queue.locks() == []
        assert "what nobody thought of" in caplog.text

    simulate(scenario, version=2)


def test_a_lock_of_somebody_else_is_respected_until_it_is_given_back() -> None:
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


def test_while_disabled_nothing_is_marked_or_picked() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        queue = queue_of(cluster)
        await queue.ensure()
        await queue.disable()
        async with recovering(bookkeeper):
            cluster.kill(gone)
            await asyncio.sleep(60.0)
            assert await marked(cluster) == []
            assert await queue.locks() == []
            await queue.enable()
            await until(lambda: gone_from(bookkeeper, gone))

    simulate(scenario, version=2)


def test_the_delay_is_kept_and_a_bookie_that_returns_is_forgotten() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        flapping = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        settings = RecoverySettings(lost_bookie_delay_s=100)
        async with recovering(bookkeeper, settings=settings) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks > 0))
            cluster.kill(flapping)
            await asyncio.sleep(90.0)
            await asyncio.get_running_loop().create_task(cluster.start_bookie(flapping.partition(":")[0]))
            await until(lambda: _is(recovery.audit_counts.audits_cancelled == 1))
            cluster.kill(flapping)
            await asyncio.sleep(90.0)
            assert await marked(cluster) == []
            await until(lambda: gone_from(bookkeeper, flapping))
            cluster.kill((await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[1])
            await asyncio.sleep(1.0)
            await queue_of(cluster).set_delay(100)  # the same again: the trigger
            assert await until(lambda: _is(recovery.audit_counts.bookie_checks == 3)) < 5.0

    simulate(scenario, bookies=5, version=2)


def test_the_end_of_a_session_stops_nothing_for_good() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 1_200)
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        store = bookkeeper.ledgers.store
        assert isinstance(store, MemoryStore)
        slow = RecoverySettings(rate_bytes_per_s=4_000)
        async with recovering(bookkeeper, settings=slow) as recovery:
            cluster.kill(gone)
            await until(lambda: _is(ledger_id in recovery.worker.working_on))
            store.expire()
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
            await until(lambda: _is(recovery.auditing))
        await assert_replicated(cluster, bookkeeper, ledger_id, 1_200)

    simulate(scenario, version=2)


def test_a_rate_is_kept() -> None:
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


def test_two_of_them_share_the_work_and_one_takes_over_the_audit() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (3, 3, 2), 200) for _ in range(12)]
        other = await cluster.client(ClientConfig(version=2))
        async with other, recovering(other, "second") as second:
            async with recovering(bookkeeper, "first") as first:
                await until(lambda: _is(first.auditing or second.auditing))
                cluster.kill(BookieId("b0:3181"))
                await until(lambda: gone_from(bookkeeper, BookieId("b0:3181")))
                await until(lambda: quiet(cluster))
                assert first.auditing != second.auditing
            await until(lambda: _is(second.auditing))
            cluster.kill(BookieId("b1:3181"))
            await until(lambda: gone_from(bookkeeper, BookieId("b1:3181")))
            await until(lambda: quiet(cluster))
        for ledger_id in ledgers:
            await assert_replicated(cluster, bookkeeper, ledger_id, 200)

    simulate(scenario, bookies=6, version=2)


def test_the_check_of_all_ledgers_finds_what_a_bookie_lost_while_it_is_registered() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        other = await write(bookkeeper, (3, 3, 2))
        bookie = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
        async with recovering(bookkeeper) as recovery:  # it never ran, so it runs at once
            await until(lambda: _is(recovery.worker.counts.ledgers_repaired > 0))
            await until(lambda: quiet(cluster))
            assert recovery.audit_counts.ledgers_checked == 2
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)
        await assert_replicated(cluster, bookkeeper, other, 400)

    simulate(scenario, bookies=5, version=2)


def test_beside_a_bookie_on_its_session() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        ended: list[BaseException] = []
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        conf = {"metadataServiceUri": "zk://memory/ledgers", "bookieId": "b1", "replicationRateByBytes": "1000000"}
        config = config_from({key: (value, 1) for key, value in conf.items()}, source="test")
        store = MemoryStore(cluster.tree)
        async with beside_bookie(config, bookkeeper.context.world, store, ended.append) as recovery:
            cluster.kill(gone)
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
            figures = {sample.name: sample.value for sample in recovery.samples()}
        assert figures["replication_replication_worker_NUM_ENTRIES_WRITTEN"] == 400
        assert figures["replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED"] == 1
        assert (figures["bkctl_auditor"], figures["bkctl_auto_recovery_running"]) == (1, 1)
        assert (ended, recovery.running) == ([], False), "it was stopped"
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2)
