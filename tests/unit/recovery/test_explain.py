"""Explanations of a recovery, compared with the result of the recovery, on real bookies in virtual time."""

from __future__ import annotations

from random import Random

import pytest
from bkrecovery.explain import Explanation, explain_recovery
from bkrecovery.ledger import DECLARED_LOST, recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import PAYLOADS, until


async def opened(
    bookkeeper: BookKeeper, size: tuple[int, int, int], count: int, batch: int = 1
) -> tuple[int, tuple[BookieId, ...]]:
    """A ledger left by its writer, which added so many entries at a time: each knows what was confirmed before it."""
    writer = await bookkeeper.create(*size)
    for start in range(0, count, batch):
        writer.append_many(PAYLOADS[start : min(start + batch, count)])
        await writer.flush()
    writer.abandon()
    return writer.ledger_id, writer.metadata.last_ensemble.bookies


def test_it_changes_nothing_and_the_writer_goes_on() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 2, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        before = await bookkeeper.ledgers.read(writer.ledger_id)
        found = await explain_recovery(bookkeeper, writer.ledger_id)
        assert (found.closes_at, found.end_entry_id, found.could_lose, found.waits_for) == (9, 10, False, [])
        assert found.fencing_covered
        assert set(found.end_answers.values()) == {"does not have it"}
        assert {a.bookie: a.last_entry_id for a in found.bookies} == {
            b: max(e for e in range(10) if (i - e) % 3 < 2) for i, b in enumerate(before[0].last_ensemble.bookies)
        }
        assert await bookkeeper.ledgers.read(writer.ledger_id) == before
        writer.append_many(PAYLOADS[10:20])
        await writer.close()
        assert (await explain_recovery(bookkeeper, writer.ledger_id)).closes_at == 19

    simulate(scenario)


def test_recovery_waits_for_a_bookie_that_alone_may_have_the_tail() -> None:
    """Qa = 1: recovery has to wait for it, and says so; who declares it lost is told what that costs."""

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, bookies = await opened(bookkeeper, (3, 1, 1), 10)  # entries 0, 3, 6, 9 are on the first alone
        gone = bookies[0]
        cluster.kill(gone)
        found = await explain_recovery(bookkeeper, ledger_id)
        assert (found.can_recover, found.could_lose, found.waits_for) == (False, True, [gone])
        assert f"wait for {gone}" in found.verdict
        assert f"--declare-lost {gone}" in found.next
        with pytest.raises(Unavailable):
            await recover_ledger(bookkeeper, ledger_id)
        told = await explain_recovery(bookkeeper, ledger_id, lost={gone})
        assert (told.closes_at, told.could_lose, told.holes) == (8, True, 3)
        assert told.end_answers == {gone: DECLARED_LOST}
        report = await recover_ledger(bookkeeper, ledger_id, lost={gone})
        assert (report.last_entry_id, report.fencing[gone], report.end) == (8, DECLARED_LOST, {gone: DECLARED_LOST})

    simulate(scenario, bookies=5, read_timeout_s=2.0)


def test_the_last_entry_of_a_writer_with_many_pending_adds_is_found() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 2, 2)
        writer.append_many([b"x"] * 1_500)  # sent at once: none of them says that another is confirmed
        await writer.flush()
        writer.abandon()
        found = await explain_recovery(bookkeeper, writer.ledger_id)
        assert (found.closes_at, found.could_lose) == (1_499, False)
        assert (await recover_ledger(bookkeeper, writer.ledger_id)).last_entry_id == 1_499

    simulate(scenario)


def test_entries_after_a_lost_entry_are_truncated_and_reported() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, bookies = await opened(bookkeeper, (3, 1, 1), 10, batch=10)  # none knows that another is confirmed
        cluster.kill(bookies[0])
        told = await explain_recovery(bookkeeper, ledger_id, lost={bookies[0]})
        assert (told.closes_at, told.could_lose, told.left_over) == (-1, True, [1, 2, 4, 5, 7, 8])
        assert "6 entries after it on other bookies would be truncated too" in told.verdict
        assert (await recover_ledger(bookkeeper, ledger_id, lost={bookies[0]})).last_entry_id == -1

    simulate(scenario, bookies=5, read_timeout_s=2.0)


def test_declaring_a_bookie_lost_loses_nothing_if_others_have_all_its_entries() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, bookies = await opened(bookkeeper, (3, 3, 3), 10)
        cluster.kill(bookies[2])
        cluster.kill(bookies[1])
        found = await explain_recovery(bookkeeper, ledger_id)
        assert (found.can_recover, found.closes_at, found.could_lose) == (True, 9, False)
        told = await explain_recovery(bookkeeper, ledger_id, lost=set(bookies[1:]))
        assert (told.closes_at, told.could_lose, told.holes) == (9, False, 0)
        assert (await recover_ledger(bookkeeper, ledger_id, lost=set(bookies[1:]))).last_entry_id == 9

    simulate(scenario, bookies=6, read_timeout_s=2.0)


def test_a_bookie_declared_lost_does_not_outvote_one_that_may_have_the_entry() -> None:
    """Qa = 2 of 3: an entry may be on the lost one and on one that is only down; that one is waited for."""

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, bookies = await opened(bookkeeper, (3, 3, 2), 10)
        cluster.kill(bookies[0])
        cluster.kill(bookies[1])
        told = await explain_recovery(bookkeeper, ledger_id, lost={bookies[0]})
        assert (told.can_recover, told.waits_for) == (False, [bookies[1]])
        with pytest.raises(Unavailable):
            await recover_ledger(bookkeeper, ledger_id, lost={bookies[0]})
        await cluster.start_bookie(bookies[1].partition(":")[0])

        async def recovered() -> bool:
            try:
                return (await recover_ledger(bookkeeper, ledger_id, lost={bookies[0]})).last_entry_id == 9
            except Unavailable:  # its connection is tried again after a while
                return False

        await until(recovered)

    simulate(scenario, bookies=6, read_timeout_s=2.0)


@pytest.mark.parametrize("seed", [*range(40), 130, 288, 329])  # the last ones: the lost spoke before the others
def test_recovery_has_the_explained_result(seed: int) -> None:
    """Any quorum, any bookies dead: it closes where that was said, or waits where that was said; declared lost too."""
    random = Random(seed)
    ensemble = random.randint(1, 4)
    write = random.randint(1, ensemble)
    size = (ensemble, write, random.randint(1, write))

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, bookies = await opened(bookkeeper, size, random.randint(0, 12), random.randint(1, 5))
        dead = random.sample(bookies, random.randint(0, ensemble - 1))
        for bookie in dead:
            cluster.kill(bookie)
        found = await explain_recovery(bookkeeper, ledger_id)
        await _as_explained(bookkeeper, ledger_id, found, set())
        if not found.can_recover:
            some = set(random.sample(dead, random.randint(1, len(dead))))
            told = await explain_recovery(bookkeeper, ledger_id, lost=some)
            await _as_explained(bookkeeper, ledger_id, told, some)
            if not told.can_recover:
                told = await explain_recovery(bookkeeper, ledger_id, lost=set(dead))
                assert told.can_recover
                await _as_explained(bookkeeper, ledger_id, told, set(dead))

    simulate(scenario, bookies=9, seed=seed, read_timeout_s=2.0)


async def _as_explained(bookkeeper: BookKeeper, ledger_id: int, found: Explanation, lost: set[BookieId]) -> None:
    if found.can_recover:
        assert (await recover_ledger(bookkeeper, ledger_id, lost=lost)).last_entry_id == found.closes_at
        return
    assert found.could_lose
    with pytest.raises(Unavailable):
        await recover_ledger(bookkeeper, ledger_id, lost=lost)
    assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.IN_RECOVERY
