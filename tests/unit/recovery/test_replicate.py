"""Bringing back lost copies, and taking a ledger's end back, on real bookies in virtual time."""

from __future__ import annotations

import pytest
from bkrecovery.job import JobOptions
from bkrecovery.plan import OpenLedgers
from bkrecovery.replicate import ReplicateJob
from bkrecovery.rereplicate import Replicator

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.client.test_digest_detection import PAYLOADS, read_all, written
from tests.unit.recovery.recovering import assert_replicated, left_open, write


def job_of(bookkeeper: BookKeeper, *bookies: BookieId, fence: bool = False) -> ReplicateJob:
    options = JobOptions(OpenLedgers.FENCE if fence else OpenLedgers.LEAVE)
    return ReplicateJob(bookkeeper, frozenset(bookies), Replicator(bookkeeper.context), options)


async def run(job: ReplicateJob, *ledger_ids: int) -> list[tuple[int, str | None]]:
    plan = await job.plan(ledger_ids)
    results = await job.apply(plan)
    return [(r.ledger_id, r.error) for r in results] + list(plan.blocked)


async def swap(bookkeeper: BookKeeper, ledger_id: int, old: BookieId, new: BookieId) -> None:
    """Metadata that names a bookie which has nothing of the ledger."""
    await bookkeeper.ledgers.update(ledger_id, lambda m: m.replacing(0, {old: new}))


@pytest.mark.parametrize("others", [True, False], ids=["another bookie", "the same bookie"])
def test_entries_that_a_bookie_lacks_are_restored(others: bool) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 300)
        bookies = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        empty = next(b for n in range(4) if (b := BookieId(f"b{n}:3181")) not in bookies)
        await swap(bookkeeper, ledger_id, bookies[1], empty)
        if not others:
            cluster.kill(bookies[1])
        assert await run(job_of(bookkeeper), ledger_id) == [(ledger_id, None)]
        await assert_replicated(cluster, bookkeeper, ledger_id, 300)
        now = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        assert now[1] == (bookies[1] if others else empty)
        assert (await job_of(bookkeeper).plan([ledger_id])).moves == ()

    simulate(scenario, bookies=4, version=2)


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize(("digest", "password"), [(DigestType.CRC32, b""), (DigestType.HMAC, b"pw")])
def test_a_ledger_of_format_1_is_copied_with_its_own_digest_and_key(
    digest: DigestType, password: bytes, close: bool
) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, digest, password, close=close)
        before = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        cluster.kill(before[1])
        job = job_of(bookkeeper, fence=True)
        job.password = password
        assert await run(job, ledger_id) == [(ledger_id, None)]
        metadata = (await bookkeeper.ledgers.read(ledger_id))[0]
        assert (metadata.closed, metadata.last_entry_id, metadata.digest_type) == (True, 39, None)
        new = metadata.ensembles[0].bookies[1]
        assert new != before[1]
        bookie = cluster.bookies[new.partition(":")[0]]
        ledger = bookie.storage.ledger(ledger_id)
        assert ledger is not None
        assert ledger.key == master_key(password)
        assert await read_all(bookkeeper, ledger_id, password) == PAYLOADS

    simulate(scenario, bookies=5, version=2)


def test_entries_move_off_a_running_bookie_only_to_named_targets() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 2, 2), 300)
        bookies = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        target = next(b for n in range(6) if (b := BookieId(f"b{n}:3181")) not in bookies)
        options = JobOptions(OpenLedgers.LEAVE, to=frozenset({target}))
        job = ReplicateJob(bookkeeper, frozenset({bookies[0]}), Replicator(bookkeeper.context), options)
        assert await run(job, ledger_id) == [(ledger_id, None)]
        assert (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies == (target, *bookies[1:])
        await assert_replicated(cluster, bookkeeper, ledger_id, 300)

    simulate(scenario, bookies=6, version=2)


def test_the_end_of_an_open_ledger_is_left_or_closed_first() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, metadata = await left_open(bookkeeper)
        cluster.kill(metadata.last_ensemble.bookies[0])
        assert await run(job_of(bookkeeper), ledger_id) == [(ledger_id, "it is open")]
        assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN
        assert await run(job_of(bookkeeper, fence=True), ledger_id) == [(ledger_id, None)]
        await assert_replicated(cluster, bookkeeper, ledger_id, 50)

    simulate(scenario, bookies=6, version=2)


def test_unreadable_entries_are_reported() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (1, 1, 1), 30)
        (only,) = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        await swap(bookkeeper, ledger_id, only, BookieId("b0:3181" if only != "b0:3181" else "b1:3181"))
        ((found, why),) = await run(job_of(bookkeeper), ledger_id)
        assert (found, "cannot be read" in (why or "")) == (ledger_id, True)

    simulate(scenario, bookies=4, version=2)


def test_a_job_stops_after_too_many_errors() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (1, 1, 1), 5) for _ in range(6)]
        for ledger_id in ledgers:
            (only,) = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
            await swap(bookkeeper, ledger_id, only, BookieId("b0:3181" if only != "b0:3181" else "b1:3181"))
        job = job_of(bookkeeper)
        job.options.max_errors, job.options.parallel = 1, 1
        errors = [why or "" for _, why in await run(job, *ledgers)]
        assert ["cannot be read" in why for why in errors] == [True, True, False, False, False, False]
        assert set(errors[2:]) == {"not tried: too many ledgers failed"}

    simulate(scenario, bookies=4, version=2)
