"""Copies of entries, counted by runs: by table, and against counting one by one."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from bkrecovery import replicas_check
from bkrecovery.replicas_check import SILENT_MAX, EntryLists, Scarcest, asked_of, scarcest, verdict
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.client import BookKeeper
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.model.placement import write_set
from tests.unit.client.cluster import SimCluster, simulate


def ledger(quorum: int, ack: int, last: int, *segments: tuple[int, str]) -> LedgerMetadata:
    ensembles = tuple(Ensemble(EntryId(first), tuple(map(BookieId, bookies))) for first, bookies in segments)
    return LedgerMetadata(len(ensembles[0].bookies), quorum, ack, ensembles).closed_at(last, 100)


THREE = ledger(3, 2, 9, (0, "abc"))
STRIPED = ledger(2, 2, 9, (0, "abc"))  # entry e on e and e + 1
ALL = [range(10)]
CASES = [
    ("all there", THREE, {"a": ALL, "b": ALL, "c": ALL}, None, None),
    ("one lacks the end", THREE, {"a": ALL, "b": [range(7)], "c": ALL}, Scarcest(7, 2, 3), "below_write_quorum"),
    ("one is left", THREE, {"a": [range(3)], "b": [range(3)], "c": ALL}, Scarcest(3, 1, 7), "below_ack_quorum"),
    ("nobody has it", THREE, {b: [range(4), range(5, 10)] for b in "abc"}, Scarcest(4, 0, 1), "no_replica"),
    ("one is empty", THREE, {"a": ALL, "b": [], "c": ALL}, Scarcest(0, 2, 10), "below_write_quorum"),
    ("one does not answer", THREE, {"a": ALL, "b": None, "c": ALL}, None, None),
    ("a stripe", STRIPED, {"a": ALL, "b": ALL, "c": [range(2, 10)]}, Scarcest(1, 1, 1), "below_ack_quorum"),
    ("not its own", STRIPED, {"a": [range(1), range(2, 4), range(5, 7), range(8, 10)], "b": ALL, "c": ALL}, None, None),
    ("more than the ledger", THREE, {b: [range(100)] for b in "abc"}, None, None),
    ("the second segment", ledger(2, 1, 5, (0, "ab"), (3, "ac")), {"a": [range(6)], "b": [range(3)], "c": [range(4)]},
     Scarcest(4, 1, 2), "below_write_quorum"),
    ("an empty last segment", ledger(2, 2, 5, (0, "ab"), (6, "ac")), {"a": [range(6)], "b": [range(6)]}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "lists", "expected", "name"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_scarcest(
    metadata: LedgerMetadata, lists: dict[str, list[range] | None], expected: Scarcest | None, name: str | None
) -> None:
    found = scarcest(metadata, {BookieId(bookie): runs for bookie, runs in lists.items()})
    assert found == expected
    if found is not None:
        assert verdict(metadata, found) == name


@given(st.data(), st.integers(1, 5), st.integers(1, 40), st.integers(1, 7))
def test_the_same_as_one_by_one(data: st.DataObject, size: int, count: int, window: int) -> None:
    quorum = data.draw(st.integers(1, size))
    metadata = ledger(quorum, 1, count - 1, (0, "abcde"[:size]))
    have = {b: data.draw(st.sets(st.integers(0, count + 3))) for b in metadata.ensembles[0].bookies}
    copies = [
        sum(e in have[metadata.ensembles[0].bookies[i]] for i in write_set(e, size, quorum)) for e in range(count)
    ]
    with patch.object(replicas_check, "WINDOW", window):  # so that a small ledger has several
        found = scarcest(metadata, {b: [range(e, e + 1) for e in sorted(own)] for b, own in have.items()})
    if min(copies) == quorum:
        assert found is None
    else:
        assert found == Scarcest(copies.index(min(copies)), min(copies), sum(c < quorum for c in copies))


def test_only_those_that_store_something_are_asked() -> None:
    assert asked_of(ledger(2, 2, 0, (0, "abc"))) == ["a", "b"]
    assert asked_of(ledger(2, 2, 5, (0, "ab"), (6, "cd"))) == ["a", "b"]
    assert asked_of(ledger(2, 2, 6, (0, "ab"), (6, "cd"))) == ["a", "b", "c", "d"]


def test_a_bookie_that_is_not_contacted_any_more_is_reported_once() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        cluster.machines["b0"].kill()
        lists, silent = EntryLists(bookkeeper.context), BookieId("b0:3181")
        for _ in range(SILENT_MAX):
            assert lists.newly_silent() == []
            await lists.ask(silent, 1)
        assert lists.newly_silent() == [(silent, "unreachable")]
        assert lists.newly_silent() == []
        assert await lists.ask(silent, 1) == "not contacted any more after repeated failures"

    simulate(scenario, bookies=3, version=2)
