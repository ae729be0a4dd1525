"""Emptying bookies that live: real bookies in virtual time; the claims on both kinds of store."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from bkrecovery.drain import Drain, DrainClaim, DrainClaims, refuse_drained, until_registered
from bkrecovery.job import JobOptions, MoveJob, MoveResult
from bkrecovery.plan import OpenLedgers
from bkrecovery.rereplicate import Replicator

from bkctl.client.client import BookKeeper
from bkctl.errors import Conflict, Corrupt, Refused, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import check_nuke, init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.store import MetadataStore
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId
from tests.unit.client.cluster import ROOT, SimCluster, bookie_id, simulate
from tests.unit.recovery.recovering import PAYLOADS, assert_replicated, gone_from, holds, until, write
from tests.zookeeper_fixture import Stores

B0 = bookie_id("b0")


async def read_only(cluster: SimCluster, bookie: BookieId) -> None:
    """As its operator would have it; clients do not choose it any more."""
    store = cluster.stores[bookie.partition(":")[0]]
    await BookieRegistry(store, ROOT).register(bookie, BookieServiceInfo(), read_only=True)


def job_of(bookkeeper: BookKeeper, open_ledgers: OpenLedgers, *bookies: BookieId) -> MoveJob:
    replicator = Replicator(bookkeeper.context)
    return MoveJob(bookkeeper, frozenset(bookies), replicator, JobOptions(open_ledgers))


def test_a_running_bookie_is_emptied_even_of_entries_without_another_copy() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, size, 200) for size in ((1, 1, 1), (3, 3, 2), (3, 2, 2)) for _ in range(6)]
        await read_only(cluster, B0)
        job = job_of(bookkeeper, OpenLedgers.WAIT, B0)
        results = await Drain(job).run(await job.plan())
        assert results
        assert [r for r in results if r.error or r.waiting or r.fenced] == []
        assert await gone_from(bookkeeper, B0)
        for ledger_id in ledgers:
            await assert_replicated(cluster, bookkeeper, ledger_id, 200)

    simulate(scenario, bookies=6, version=2)


def test_open_ledgers_are_waited_for_and_their_writers_are_not_fenced() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writers = [await bookkeeper.create(3, 3, 2, password=b"pw") for _ in range(3)]
        for writer in writers:
            writer.append_many(PAYLOADS[:50])
            await writer.flush()
        victim = writers[0].metadata.last_ensemble.bookies[1]
        using = [w for w in writers if victim in w.metadata.last_ensemble.bookies]
        await read_only(cluster, victim)
        heard: list[list[int]] = []
        job = job_of(bookkeeper, OpenLedgers.WAIT, victim)
        task = asyncio.create_task(Drain(job, waiting=heard.append).run(await job.plan()))
        await until(lambda: holds(bool(heard)))
        assert heard == [sorted(w.ledger_id for w in using)]
        for writer in writers:
            writer.append_many(PAYLOADS[50:100])
            await writer.close()
        results = await task
        assert [(r.error, r.waiting, r.fenced) for r in results] == [(None, False, False)] * len(using)
        assert await gone_from(bookkeeper, victim)
        for writer in writers:
            await assert_replicated(cluster, bookkeeper, writer.ledger_id, 100)

    simulate(scenario, bookies=6, version=2)


def test_a_drain_with_a_time_limit_reports_the_remaining_ledgers() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:50])
        await writer.flush()
        victim = writer.metadata.last_ensemble.bookies[0]
        await read_only(cluster, victim)
        job = job_of(bookkeeper, OpenLedgers.WAIT, victim)
        assert await Drain(job, wait_s=5.0).run(await job.plan()) == [MoveResult(writer.ledger_id, waiting=True)]
        job = job_of(bookkeeper, OpenLedgers.FENCE, victim)
        (result,) = await Drain(job).run(await job.plan())
        assert (result.error, result.waiting, result.fenced, result.fragments) == (None, False, True, 1)
        assert await gone_from(bookkeeper, victim)
        await assert_replicated(cluster, bookkeeper, writer.ledger_id, 50)

    simulate(scenario, bookies=6, version=2)


def test_a_ledger_created_during_the_drain_is_moved_too() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        first = await write(bookkeeper, (6, 2, 2), 300)
        await cluster.start_bookie("b6")
        await cluster.start_bookie("b7")
        job = job_of(bookkeeper, OpenLedgers.WAIT, B0)
        plan = await job.plan()
        late = first
        while late == first or B0 not in (await bookkeeper.ledgers.read(late))[0].last_ensemble.bookies:
            late = await write(bookkeeper, (3, 2, 2), 100)  # by a client that does not know that b0 is read-only
        await read_only(cluster, B0)
        results = await Drain(job).run(plan)
        assert [(r.ledger_id, r.error) for r in results] == [(first, None), (late, None)]
        assert await gone_from(bookkeeper, B0)

    simulate(scenario, bookies=6, version=2)


def test_a_ledger_opened_while_a_drain_runs_is_waited_for_and_moved() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        first = await write(bookkeeper, (6, 2, 2), 300)
        await cluster.start_bookie("b6")
        await cluster.start_bookie("b7")
        job = job_of(bookkeeper, OpenLedgers.WAIT, B0)
        plan = await job.plan()
        late = await bookkeeper.create(3, 2, 2, password=b"pw")
        while B0 not in late.metadata.last_ensemble.bookies:
            await late.close()
            late = await bookkeeper.create(3, 2, 2, password=b"pw")
        late.append_many(PAYLOADS[:50])
        await late.flush()
        await read_only(cluster, B0)
        heard: list[list[int]] = []
        task = asyncio.create_task(Drain(job, waiting=heard.append).run(plan))
        await until(lambda: holds(bool(heard)))
        assert heard == [[late.ledger_id]]
        late.append_many(PAYLOADS[50:100])
        await late.close()
        results = await task
        assert [(r.ledger_id, r.error, r.waiting, r.fenced) for r in results] == [
            (first, None, False, False),
            (late.ledger_id, None, False, False),
        ]
        assert await gone_from(bookkeeper, B0)
        await assert_replicated(cluster, bookkeeper, late.ledger_id, 100)

    simulate(scenario, bookies=6, version=2)


CLAIM = DrainClaim("ann@a", 1_700_000_000_123)
OTHER = DrainClaim("bob@b", 1_700_000_099_999)


def test_a_second_drain_of_a_bookie_is_refused(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await init_cluster(a, root)
        ours, theirs = DrainClaims(a, root), DrainClaims(b, root)
        assert await ours.all() == {}
        assert await ours.take(B0, CLAIM) == CLAIM
        with pytest.raises(Conflict, match="ann@a now"):
            await theirs.take(B0, OTHER, wait_s=0.2)
        assert await theirs.all() == {B0: CLAIM}
        with pytest.raises(Refused, match="ann@a"):
            refuse_drained(await theirs.all(), [B0])
        refuse_drained(await theirs.all(), [bookie_id("b1")])
        await ours.leave(B0, done=True)
        found = await theirs.take(B0, OTHER)
        assert (found.by, found.since_ms, found.done) == ("bob@b", CLAIM.since_ms, False)
        await theirs.forget(B0)
        assert await ours.all() == {}

    stores.run(scenario, sessions=2)


def test_a_drain_of_a_dead_process_is_resumed(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await init_cluster(a, root)
        await DrainClaims(a, root).take(B0, CLAIM)
        task = asyncio.create_task(DrainClaims(b, root).take(B0, OTHER))
        await asyncio.sleep(0)
        await a.close()
        assert (await task).since_ms == CLAIM.since_ms

    stores.run(scenario, sessions=2)


async def cancelled(claims: DrainClaims) -> DrainClaim | None:
    async with claims.cancelling(B0, "bob@b") as was:
        return was


def test_an_interrupted_cancel_is_completed_by_the_next(stores: Stores) -> None:
    """The claim, which knows how the bookie was, is there until the bookie has its mode back."""

    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        claims = DrainClaims(store, root)
        await claims.take(B0, replace(CLAIM, was_read_only=True))
        await claims.leave(B0, done=True)
        with pytest.raises(Unavailable):
            async with claims.cancelling(B0, "bob@b"):
                raise Unavailable("the bookie does not answer")
        assert (await claims.all())[B0].cancelled_by == "bob@b"
        was = await cancelled(claims)
        assert was is not None
        assert was.was_read_only
        assert await claims.all() == {}

    stores.run(scenario)


def test_a_drain_that_is_taken_up_while_it_is_cancelled_keeps_its_claim(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        claims = DrainClaims(store, root)
        await claims.take(B0, CLAIM)
        with pytest.raises(Conflict, match=r"drained again, by bob@b"):
            async with claims.cancelling(B0, "ann@a"):
                await claims.take(B0, OTHER)
        assert (await claims.all())[B0].by == "bob@b"

    stores.run(scenario)


def test_a_cancel_stops_the_running_drain(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await init_cluster(a, root)
        ours, theirs = DrainClaims(a, root), DrainClaims(b, root)
        await ours.take(B0, CLAIM)
        at_it = asyncio.create_task(ours.until_cancelled(B0))
        cancel = asyncio.create_task(cancelled(theirs))
        assert await at_it == "bob@b"
        await ours.leave(B0, done=False)
        assert (await cancel) == CLAIM
        assert await ours.all() == {}
        assert await cancelled(theirs) is None

    stores.run(scenario, sessions=2)


def test_claims_are_invisible_to_other_operations(stores: Stores) -> None:
    """The listing of ledgers passes them over, and a cluster with claims can be deleted."""

    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        claims = DrainClaims(store, root)
        await claims.take(B0, CLAIM)
        assert [part async for part in LedgerStore(store, root).ids()] == []
        await check_nuke(store, root, None)
        await store.overwrite(claims.path(B0), b"not ours")
        with pytest.raises(Corrupt, match="not a claim"):
            await claims.all()

    stores.run(scenario)


def test_registrations_are_watched(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await init_cluster(a, root)
        registry = BookieRegistry(a, root)
        await BookieRegistry(b, root).register(B0, BookieServiceInfo())
        assert not await until_registered(registry, lambda found: B0 not in found.writable, 0.2)
        gone = asyncio.create_task(until_registered(registry, lambda found: B0 not in found.writable, None))
        await BookieRegistry(b, root).unregister(B0)
        assert await gone

    stores.run(scenario, sessions=2)
