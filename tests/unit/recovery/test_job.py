"""Jobs that move ledgers, on real bookies in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkrecovery.job import JobOptions, MoveJob, plan_ledger
from bkrecovery.plan import OpenLedgers
from bkrecovery.rereplicate import Replicator

from bkctl.client.client import BookKeeper
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import assert_replicated, gone_from, left_open, write

B = tuple(BookieId(f"b{n}:3181") for n in range(6))


def test_plan_of_a_ledger() -> None:
    metadata = LedgerMetadata(3, 3, 2, (Ensemble(EntryId(0), B[:3]), Ensemble(EntryId(10), B[1:4])))
    assert plan_ledger(5, metadata, {B[5]}) is None
    move = plan_ledger(5, metadata, {B[0]})
    assert move is not None
    assert (move.fence, [f.bad for f in move.fragments], move.entries) == (False, [(0,)], 10)
    move = plan_ledger(5, metadata.closed_at(29, 3000), {B[0], B[1]})
    assert move is not None
    assert (move.fence, [f.bad for f in move.fragments], move.entries) == (False, [(0, 1), (0,)], 40)
    assert move.size_bytes == 4000
    move = plan_ledger(5, metadata, {B[3]})
    assert move is not None
    assert (move.fence, [f.bad for f in move.fragments]) == (True, [(2,)])


@pytest.mark.parametrize("skip_open", [False, True])
def test_a_lost_bookie_is_cleared(skip_open: bool) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        closed = [await write(bookkeeper, (3, 2, 2), 300) for _ in range(8)]
        opened, metadata = await left_open(bookkeeper)
        gone = metadata.last_ensemble.bookies[2]
        cluster.kill(gone)
        options = JobOptions(OpenLedgers.LEAVE if skip_open else OpenLedgers.FENCE)
        job = MoveJob(bookkeeper, frozenset({gone}), Replicator(bookkeeper.context), options)
        plan = await job.plan()
        assert plan.fences == ([] if skip_open else [opened])
        assert plan.blocked == (((opened, "it is open"),) if skip_open else ())
        heard: list[int] = []
        results = await job.apply(plan, lambda result: heard.append(result.ledger_id))
        assert sorted(heard) == [r.ledger_id for r in results] == [m.ledger_id for m in plan.moves]
        assert all(r.error is None for r in results)
        assert [r.ledger_id for r in results if r.fenced] == plan.fences
        assert await job.verify() == ([opened] if skip_open else [])
        assert await gone_from(bookkeeper, gone) is not skip_open
        for ledger_id in closed:
            await assert_replicated(cluster, bookkeeper, ledger_id, 300)

    simulate(scenario, bookies=6, version=2)


def test_ledgers_that_cannot_be_moved_are_reported_and_others_are_moved() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        single = await write(bookkeeper, (1, 1, 1), 50)
        gone = (await bookkeeper.ledgers.read(single))[0].last_ensemble.bookies[0]
        others = [await write(bookkeeper, (3, 3, 2), 50) for _ in range(6)]
        cluster.kill(gone)
        job = MoveJob(bookkeeper, frozenset({gone}), Replicator(bookkeeper.context))
        plan = await job.plan()
        assert [(e, "the only copies" in why) for e, why in plan.blocked] == [(single, True)]
        results = {r.ledger_id: r.error for r in await job.apply(plan)}
        assert single not in results
        assert set(results.values()) == {None}
        assert await job.verify() == [single]
        for ledger_id in others:
            await assert_replicated(cluster, bookkeeper, ledger_id, 50)

    simulate(scenario, bookies=6, version=2)


def test_a_job_that_was_stopped_is_resumed_by_another() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (3, 3, 2), 300) for _ in range(10)]
        gone = BookieId("b0:3181")
        cluster.kill(gone)
        first = MoveJob(bookkeeper, frozenset({gone}), Replicator(bookkeeper.context))
        plan = await first.plan()
        enough = asyncio.Event()
        task = asyncio.create_task(first.apply(plan, lambda _: enough.set()))
        await enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        second = MoveJob(bookkeeper, frozenset({gone}), Replicator(bookkeeper.context))
        rest = await second.plan()
        assert len(rest.moves) < len(plan.moves)
        await second.apply(rest)
        assert await second.verify() == []
        for ledger_id in ledgers:
            await assert_replicated(cluster, bookkeeper, ledger_id, 300)

    simulate(scenario, bookies=6, version=2)
