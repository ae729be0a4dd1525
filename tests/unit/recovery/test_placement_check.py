"""What lies well on racks and what does not, and what would set it right: by table, and for any cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from bkrecovery.fragment import fragments_of
from bkrecovery.placement_check import Adherence, ChosenPlacement, PlacementRule, misplaced, rule_of
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.config import ClientConfig, Placement
from bkctl.errors import NotEnoughBookies
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata

# a bookie's rack is its letter: a1 and a2 share one
FAIL, SOFT, STRICT = Adherence.FAIL, Adherence.SOFT, Adherence.STRICT


def rack_of(bookie: BookieId) -> str:
    return f"/{bookie[0]}"


def ids(text: str) -> list[BookieId]:
    return [BookieId(word) for word in text.split()]


def rule(cluster: str, places_min: int = 2, refused: str | None = None) -> PlacementRule:
    return PlacementRule(rack_of, places_min, frozenset(map(rack_of, ids(cluster))), refused)


CASES = [
    # ensemble, Qw, cluster, racks needed → adherence, how many must move to be well (None: nothing helps)
    ("a1 b1 c1", 3, "a1 b1 c1", 2, STRICT, 0),
    ("a1 a2 b1", 2, "a1 a2 b1 b2", 2, FAIL, None),  # three neighbours in a ring on two racks: two share one
    ("a1 a2 b1", 3, "a1 a2 b1", 2, STRICT, 0),
    ("a1 a2 b1", 2, "a1 a2 b1 c1", 2, FAIL, 1),
    ("a1 a2 a3", 2, "a1 a2 a3", 2, SOFT, 0),  # one rack is all there is
    ("a1 a2 a3", 3, "a1 a2 a3 b1", 2, FAIL, 1),
    ("a1 a2 a3", 2, "a1 a2 a3 b1 c1", 2, FAIL, 2),
    ("a1 a2 b1 b2", 2, "a1 a2 b1 b2 c1 c2", 2, FAIL, 2),
    ("a1 b1 c1", 3, "a1 b1 c1", 5, STRICT, 0),  # more than Qw is not asked for
    ("a1 b1 b2", 3, "a1 b1 b2", 3, SOFT, 0),
    ("a1 b1 b2", 3, "a1 b1 b2 c1", 3, FAIL, 1),
    ("a1", 1, "a1 b1", 2, STRICT, 0),
    ("x1 b1 c1", 3, "b1 c1 d1", 3, STRICT, 0),  # a lost bookie counts for its rack
]


@pytest.mark.parametrize(("bookies", "quorum", "cluster", "needed", "adherence", "moves"), CASES)
def test_judge_and_improve(
    bookies: str, quorum: int, cluster: str, needed: int, adherence: Adherence, moves: int | None
) -> None:
    asked, found = rule(cluster, needed), ids(bookies)
    assert asked.judge(found, quorum) is adherence
    changes = asked.improve(found, quorum, ids(cluster))
    assert len(changes) == (moves or 0)
    if moves:
        assert asked.judge(_after(found, changes), quorum) is not FAIL


def _after(bookies: list[BookieId], changes: Mapping[int, BookieId]) -> list[BookieId]:
    return [changes.get(index, bookie) for index, bookie in enumerate(bookies)]


@given(
    st.lists(st.sampled_from("abcd"), min_size=3, max_size=12),
    st.data(),
    st.integers(1, 4),
)
def test_a_change_always_helps_and_names_new_bookies(racks: list[str], data: st.DataObject, needed: int) -> None:
    cluster = [BookieId(f"{rack}{index}") for index, rack in enumerate(racks)]
    size = data.draw(st.integers(1, len(cluster)))
    quorum = data.draw(st.integers(1, size))
    bookies = data.draw(st.permutations(cluster))[:size]
    asked = PlacementRule(rack_of, needed, frozenset(map(rack_of, cluster)))
    changes = asked.improve(bookies, quorum, cluster)
    assert not set(changes.values()) & set(bookies)
    assert len(set(changes.values())) == len(changes)
    if changes:
        assert asked.judge(bookies, quorum) is FAIL
        assert asked.judge(_after(list(bookies), changes), quorum) is not FAIL


def test_the_default_rack_is_refused_where_racks_are_enforced() -> None:
    racks = {"a": "/rack1", "b": "/rack2", "c": "/default-rack", "d": "/rack3"}
    config = ClientConfig(enforce_racks_min=True)
    enforced = rule_of(config, racks.__getitem__, ids("a b c d"))
    assert enforced.judge(ids("a b c"), 3) is FAIL
    assert enforced.improve(ids("a b c"), 3, ids("a b c d")) == {2: "d"}
    assert rule_of(ClientConfig(), racks.__getitem__, ids("a b c d")).judge(ids("a b c"), 3) is STRICT


def test_policies() -> None:
    racks = {"a": "/r1/x", "b": "/r1/y", "c": "/r2/x"}
    by_rack = rule_of(ClientConfig(), racks.__getitem__, ids("a b c"))
    by_region = rule_of(ClientConfig(placement=Placement.REGION_AWARE), racks.__getitem__, ids("a b c"))
    at_random = rule_of(ClientConfig(placement=Placement.DEFAULT), racks.__getitem__, ids("a b c"))
    assert [r.judge(ids("a b"), 2) for r in (by_rack, by_region, at_random)] == [STRICT, FAIL, STRICT]
    assert by_region.improve(ids("a b"), 2, ids("a b c")) in ({0: "c"}, {1: "c"})
    assert at_random.improve(ids("a b"), 2, ids("a b c")) == {}


def test_misplaced_fragments_carry_their_targets() -> None:
    metadata = LedgerMetadata(
        2, 2, 2, (Ensemble(EntryId(0), tuple(ids("a1 a2"))), Ensemble(EntryId(5), tuple(ids("a1 b1")))), length=9
    ).closed_at(9, 100)
    ((fragment, targets),) = misplaced(rule("a1 a2 b1 b2"), fragments_of(7, metadata, 9), ids("a1 a2 b1 b2"))
    assert (fragment.first_entry_id, fragment.bad, list(targets.values())) == (0, tuple(targets), ["b1"])
    chosen = ChosenPlacement(targets)
    assert chosen.replace(fragment.bookies, fragment.bad[0], 2, set(ids("b1 b2"))) == "b1"
    with pytest.raises(NotEnoughBookies):
        chosen.replace(fragment.bookies, fragment.bad[0], 2, set(ids("b2")))
    with pytest.raises(NotEnoughBookies):
        chosen.choose(2, 2, set(ids("b1 b2")))
