"""Fragments against their definition, and the worked special cases."""

from __future__ import annotations

import pytest
from bkrecovery.fragment import Fragment, fragments_of, may_be_unwritten, sample, split
from hypothesis import given
from hypothesis import strategies as st

from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata, LedgerState
from bkctl.world import Random


def bookies(*numbers: int) -> tuple[BookieId, ...]:
    return tuple(BookieId(f"b{n}:3181") for n in numbers)


def ledger(*starts: int, state: LedgerState = LedgerState.OPEN, last: int = -1) -> LedgerMetadata:
    ensembles = tuple(Ensemble(EntryId(start), bookies(n, n + 1, n + 2)) for n, start in enumerate(starts))
    return LedgerMetadata(3, 2, 2, ensembles, state=state, last_entry_id=EntryId(last), length=0)


@pytest.mark.parametrize(
    ("metadata", "last_confirmed", "expected"),
    [  # (first, last, settled) of each fragment
        (ledger(0, state=LedgerState.CLOSED, last=9), -1, [(0, 9, True)]),
        (ledger(0, 10, state=LedgerState.CLOSED, last=19), -1, [(0, 9, True), (10, 19, True)]),
        (ledger(0, 10, state=LedgerState.CLOSED, last=9), -1, [(0, 9, True), (10, 9, True)]),  # empty last segment
        (ledger(0, state=LedgerState.CLOSED, last=-1), -1, [(0, -1, True)]),  # empty ledger
        (ledger(0), -1, [(0, 0, False)]),  # open and nothing confirmed: entry 0 may be on its way
        (ledger(0), 7, [(0, 7, False)]),
        (ledger(0, 10), 9, [(0, 9, True), (10, 10, False)]),
        (ledger(0, 10), 8, [(0, 9, False), (10, 10, False)]),  # what was read does not reach the earlier segment's end
        (ledger(0, 10, state=LedgerState.IN_RECOVERY), 30, [(0, 9, True), (10, 30, False)]),
    ],
)
def test_fragments(metadata: LedgerMetadata, last_confirmed: int, expected: list[tuple[int, int, bool]]) -> None:
    found = fragments_of(5, metadata, last_confirmed)
    assert [(f.first_entry_id, f.last_entry_id, f.settled) for f in found] == expected
    assert [f.last for f in found] == [False] * (len(found) - 1) + [True]


def test_only_the_one_entry_of_an_open_last_segment_may_be_unwritten() -> None:
    assert may_be_unwritten(fragments_of(5, ledger(0), -1)[0])
    assert may_be_unwritten(fragments_of(5, ledger(0), 0)[0])
    assert not may_be_unwritten(fragments_of(5, ledger(0), 1)[0])
    assert not may_be_unwritten(fragments_of(5, ledger(0, state=LedgerState.CLOSED, last=0), -1)[0])
    assert not may_be_unwritten(fragments_of(5, ledger(0, 1), 0)[0])


@st.composite
def fragments(draw: st.DrawFn) -> Fragment:
    size = draw(st.integers(1, 7))
    first = draw(st.integers(0, 50))
    last = first + draw(st.integers(-1, 30))
    quorum = draw(st.integers(1, size))
    return Fragment(1, first, last, bookies(*range(size)), quorum, settled=True, last=False)


@given(fragments())
def test_striped_is_the_first_and_last_of_what_an_index_stores(fragment: Fragment) -> None:
    for index in range(len(fragment.bookies)):
        stored = [
            e for e in range(fragment.first_entry_id, fragment.last_entry_id + 1) if index in fragment.write_set(e)
        ]
        assert list(fragment.stores(index)) == stored
        assert fragment.striped(index) == ((stored[0], stored[-1]) if stored else None)


@given(fragments(), st.data())
def test_the_copy_range_covers_what_bad_indexes_store_and_no_more(fragment: Fragment, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, len(fragment.bookies) - 1)))
    stored = sorted(e for index in bad for e in fragment.stores(index))
    assert fragment.with_bad(bad).copy_range() == ((stored[0], stored[-1]) if stored else None)
    assert fragment.with_bad(bad).bad_bookies() == tuple(fragment.bookies[i] for i in sorted(bad))


@given(fragments(), st.integers(-5, 120), st.integers(0, 2**32))
def test_a_sample_has_both_ends_and_only_what_is_stored(fragment: Fragment, percentage: int, seed: int) -> None:
    for index in range(len(fragment.bookies)):
        stored = list(fragment.stores(index))
        chosen = sample(fragment, index, percentage, Random(seed))
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= set(stored)
        if stored:
            assert {stored[0], stored[-1]} <= set(chosen)
        if percentage <= 0:
            assert len(chosen) <= 2
        if percentage >= 100:
            assert chosen == stored


@given(st.integers(0, 100), st.integers(-1, 100), st.integers(1, 17))
def test_split_covers_the_range_once(first: int, length: int, count: int) -> None:
    pieces = list(split(first, first + length, count))
    assert [e for a, b in pieces for e in range(a, b + 1)] == list(range(first, first + length + 1))
    assert all(b - a < count for a, b in pieces)
