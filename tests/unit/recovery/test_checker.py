"""The check of many closed ledgers together says what the check of each by itself says."""

from __future__ import annotations

import pytest
from bkrecovery import checker
from bkrecovery.checker import LedgerChecker
from bkrecovery.fragment import Fragment

from bkctl.client.client import BookKeeper
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from tests.unit.client.cluster import SimCluster, bookie_id, simulate
from tests.unit.recovery.recovering import write

SHAPES = [((3, 2, 2), 1), ((3, 2, 2), 7), ((2, 2, 2), 20), ((4, 3, 2), 2), ((3, 3, 3), 0), ((4, 2, 1), 3)]


async def one_by_one(
    bookkeeper: BookKeeper, ledgers: list[tuple[int, LedgerMetadata]], available: set[BookieId]
) -> list[tuple[int, list[Fragment]]]:
    checker = LedgerChecker(bookkeeper.context)
    found = [(i, await checker.check(i, metadata, metadata.last_entry_id, available)) for i, metadata in ledgers]
    return [(ledger_id, bad) for ledger_id, bad in found if bad]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("reads_max", [1, 5, 1_500])
def test_together_or_one_by_one(version: int, reads_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "ROUND_READS_MAX", reads_max)

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ids = [await write(bookkeeper, quorums, entries) for quorums, entries in SHAPES * 3]
        ledgers = [(i, (await bookkeeper.ledgers.read(i))[0]) for i in ids]
        everybody = {bookie_id(f"b{number}") for number in range(5)}
        both = LedgerChecker(bookkeeper.context)
        assert await both.check_closed(ledgers, everybody) == []
        await cluster.bookies["b1"].delete(ids[::2])  # it lost some ledgers, and does not know
        lacking = await both.check_closed(ledgers, everybody)
        assert lacking == await one_by_one(bookkeeper, ledgers, everybody) != []
        cluster.kill(bookie_id("b0"))  # first it is gone and registered, then gone
        for available in (everybody, everybody - {bookie_id("b0")}):
            together = await both.check_closed(ledgers, available)
            assert together == await one_by_one(bookkeeper, ledgers, available)
            assert len(together) > len(lacking)

    simulate(scenario, bookies=5, version=version)


def test_rounds_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "ROUND_BYTES_MAX", 4_000)

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ids = [await write(bookkeeper, (2, 2, 2), 30) for _ in range(20)]
        ledgers = [(i, (await bookkeeper.ledgers.read(i))[0]) for i in ids]
        rounds = list(checker._rounds(ledgers, set(map(bookie_id, ("b0", "b1", "b2")))))
        assert sum(len(one.ledgers) for one in rounds) == 20
        mean = ledgers[0][1].length / 30
        assert all(one.size_bytes < 4_000 + 4 * mean for one in rounds)
        assert len(rounds) >= 20 * 4 * mean / (4_000 + 4 * mean)

    simulate(scenario, bookies=3, version=2)
