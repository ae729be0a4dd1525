"""The choice of bookies for a client: quarantined ones last, failed and excluded ones never."""

from __future__ import annotations

import pytest

from bkctl.client.client import BookKeeper
from bkctl.client.pool import QUARANTINE_FAILURES
from bkctl.errors import NotEnoughBookies
from bkctl.model.ids import BookieId
from tests.unit.client.cluster import SimCluster, bookie_id, simulate

B0, B1, B2, B3 = (bookie_id(f"b{i}") for i in range(4))
ALL = {B0, B1, B2, B3}


def quarantine(bookkeeper: BookKeeper, *bookies: BookieId) -> None:
    for bookie in bookies:
        for _ in range(QUARANTINE_FAILURES):
            bookkeeper.context.pool.note_failure(bookie)


def test_a_new_ensemble_has_no_quarantined_bookie_if_there_are_enough_others() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        context = bookkeeper.context
        quarantine(bookkeeper, B1)
        assert await context.candidates() == (ALL, {B1})
        for _round in range(10):
            assert set(await context.new_ensemble(3, 2)) == ALL - {B1}
        assert set(await context.new_ensemble(4, 2)) == ALL
        with pytest.raises(NotEnoughBookies):
            await context.new_ensemble(5, 2)

    simulate(scenario)


def test_failed_bookies_are_replaced_by_others_of_the_cluster() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        context = bookkeeper.context
        assert await context.replace((B0, B1, B2), [(1, B1)], 2) == {1: B3}
        assert await context.replace((B0, B1, B2), [(1, B1)], 2, exclude={B3}) == {}
        found = await context.replace((B0, B1, B2), [(0, B0), (1, B1)], 2)
        assert list(found.values()) == [B3], "one place stays without a replacement"

    simulate(scenario)


def test_a_quarantined_bookie_is_the_second_choice_of_a_replacement() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        quarantine(bookkeeper, B2)
        for _round in range(10):
            assert await bookkeeper.context.replace((B0, B1), [(1, B1)], 2) == {1: B3}
        assert await bookkeeper.context.replace((B0, B1), [(1, B1)], 2, exclude={B3}) == {1: B2}

    simulate(scenario)


def test_bookies_that_are_not_registered_are_no_candidates() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        cluster.kill(B3)
        assert await bookkeeper.context.candidates() == (ALL - {B3}, set())
        assert await bookkeeper.context.replace((B0, B1, B2), [(1, B1)], 2) == {}

    simulate(scenario)
