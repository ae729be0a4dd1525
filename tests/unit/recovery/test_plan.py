"""What a job says before it does anything: targets, what is blocked, who gives and takes how much."""

from __future__ import annotations

from random import Random

import pytest
from bkrecovery.plan import LedgerMove, MovePlan, PlannedPlacement, TargetChoice, plan_ledger, with_targets

from bkctl.client.ensembles import DefaultPlacement
from bkctl.errors import NotEnoughBookies
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata

B = tuple(BookieId(f"b{n}:3181") for n in range(6))
PLACEMENT = PlannedPlacement(DefaultPlacement(Random(1)))
CLOSED = LedgerMetadata(3, 2, 2, (Ensemble(EntryId(0), B[:3]), Ensemble(EntryId(10), B[1:4]))).closed_at(29, 3000)


def planned(
    metadata: LedgerMetadata,
    bookies: set[BookieId],
    candidates: set[BookieId],
    gone: set[BookieId] = frozenset(),  # type: ignore[assignment]
) -> tuple[LedgerMove | None, str | None]:
    move = plan_ledger(5, metadata, bookies)
    assert move is not None
    return with_targets(move, TargetChoice(PLACEMENT, candidates - bookies), frozenset(B) - gone)


def test_targets_are_not_members_of_the_ensemble() -> None:
    move, why = planned(CLOSED, {B[1]}, set(B))
    assert why is None
    assert move is not None
    assert [set(t) for t in move.targets] == [{1}, {0}]
    for fragment, targets in zip(move.fragments, move.targets, strict=True):
        assert set(targets.values()) <= set(B) - set(fragment.bookies)
    assert move.target_of(10) == move.targets[1]
    assert move.target_of(11) == {}


def test_a_fragment_without_a_target_is_blocked_and_others_are_not() -> None:
    move, why = planned(CLOSED, {B[1]}, {B[1], B[2], B[3]})  # b3 is a member of the second segment
    assert why == "no other writable bookie for the fragment at entry 10"
    assert move is not None
    assert [f.first_entry_id for f in move.fragments] == [0]
    assert planned(CLOSED, {B[1]}, {B[1]})[0] is None


def test_copies_are_planned_for_the_available_targets_only() -> None:
    move, why = planned(CLOSED, {B[1], B[2]}, {B[4]})
    assert why == "no other writable bookie for the fragment at entry 0"
    assert move is not None
    assert [len(targets) for targets in move.targets] == [1, 1]


def test_entries_whose_copies_are_all_gone_are_blocked() -> None:
    move, why = planned(CLOSED, {B[0]}, set(B), gone={B[0], B[1]})
    assert move is None
    assert why == f"the only copies of entry 0 and others are on {B[0]}, {B[1]}: start one of them"
    move, why = planned(CLOSED, {B[0]}, set(B), gone={B[0]})
    assert (move is not None, why) == (True, None)


def test_sources_and_targets_of_a_fragment() -> None:
    move, _ = planned(CLOSED, {B[0]}, {B[0], B[5]})
    assert move is not None
    plan = MovePlan(frozenset({B[0]}), (move,), ())
    given, taken = plan.flows()
    assert taken == {B[5]: move.size_bytes}
    assert set(given) == {B[1], B[2]}
    assert plan.seconds(100.0) == plan.size_bytes / 100
    assert plan.seconds(0) is None


def test_the_plan_is_applied_where_it_is_still_valid() -> None:
    placement = PlannedPlacement(DefaultPlacement(Random(1)), avoided=frozenset({B[4]})).following({1: B[5]})
    assert placement.replace(B[:3], 1, 2, set(B)) == B[5]
    assert placement.replace(B[:3], 1, 2, set(B) - {B[5]}) == B[3]
    assert placement.replace((B[0], B[1], B[5]), 1, 2, set(B)) in (B[2], B[3])
    only = PlannedPlacement(DefaultPlacement(Random(1)), allowed=frozenset({B[4]}))
    assert only.replace(B[:3], 1, 2, set(B)) == B[4]
    with pytest.raises(NotEnoughBookies):
        only.replace(B[:3], 1, 2, set(B) - {B[4]})
    with pytest.raises(NotEnoughBookies):
        only.choose(2, 2, set(B))
