"""Sizes of entries that a reader knows, and the stretches of bounded bytes that it derives from them."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.reader_sizes import MARKS_MAX, LedgerSizes

SIZES = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0, 1, 10, 100, 5_000])), min_size=1, max_size=12).map(
    lambda runs: [size for count, size in runs for _ in range(count)]
)


@given(SIZES, st.integers(1, 20_000), st.integers(1, 4), st.booleans(), st.data())
def test_a_stretch_has_the_bytes_allowed_at_most_or_a_few_entries(
    sizes: list[int], bytes_max: int, few: int, closed: bool, data: st.DataObject
) -> None:
    lengths = list(accumulate(sizes))
    known = LedgerSizes()
    last = len(sizes) - 1
    if closed:
        known.learn(last, lengths[last])
    first = data.draw(st.integers(0, last))
    while first <= last:
        asked: list[int] = []
        while True:
            end, unseen = known.stretch(first, last, bytes_max, few)
            if not unseen:
                break
            asked += unseen
            for entry_id in unseen:
                known.learn(entry_id, lengths[entry_id])
        assert first <= end <= last
        assert len(asked) <= 2 + len(sizes).bit_length()
        assert end - first < few or sum(sizes[first : end + 1]) <= bytes_max
        assert known.bound(first, end) is None or known.bound(first, end) >= sum(sizes[first : end + 1])  # type: ignore[operator]
        known.learn(end, lengths[end])
        known.seen(sum(sizes[first : end + 1]) / (end + 1 - first))
        first = end + 1
    assert known.trusted


@given(st.lists(st.integers(0, 99), max_size=300))
def test_few_places_are_remembered_and_that_which_was_just_seen_is_one(seen: list[int]) -> None:
    known = LedgerSizes()
    for entry_id in seen:
        known.learn(entry_id, 10 * entry_id + 10)
        assert known.bound(entry_id, entry_id) is not None
        assert len(known._ids) == len(known._lengths) <= MARKS_MAX
        assert known._ids == sorted(known._ids)
        assert entry_id in known._ids
    assert known.trusted


def test_what_cannot_be_seen_is_not_asked_for_again() -> None:
    known = LedgerSizes()
    end, unseen = known.stretch(10, 99, 1000, 3)
    assert unseen == (9, end)
    assert known.stretch(10, 99, 1000, 3, {9}) == (12, ())
    known.learn(9, 50)
    assert known.stretch(10, 99, 1000, 3, {end}) == (12, ())


def test_lengths_that_contradict_each_other_are_not_believed() -> None:
    known = LedgerSizes()
    known.learn(9, 1000)
    known.learn(19, 900)
    assert not known.trusted
    known.seen(100)
    assert known.stretch(0, 99, 1000, 3) == (6, ())  # by average, with some room


@given(st.lists(st.integers(0, 400), max_size=120), st.integers(0, 400), st.integers(0, 400), st.integers(1, 3000))
def test_stretch_of_a_full_ledger_sizes_ends_and_asks_for_no_entry_twice(
    seen: list[int], first: int, count: int, bytes_max: int
) -> None:
    known = LedgerSizes()
    known.seen(1)
    for entry_id in seen:
        known.learn(entry_id, 10 * entry_id + 10)
    asked: set[int] = set()
    while True:
        end, unseen = known.stretch(first, first + count, bytes_max, 1, asked)
        if not unseen:
            break
        assert asked.isdisjoint(unseen)
        asked.update(unseen)
        for entry_id in unseen:
            known.learn(entry_id, 10 * entry_id + 10)
    assert first <= end <= first + count
    assert end == first or 10 * (end - first + 1) <= bytes_max


def test_learning_both_ends_of_a_stretch_evicts_neither_of_them() -> None:
    known = LedgerSizes()
    for entry_id in range(100, 100 + MARKS_MAX):  # more marks inside the stretch than are kept
        known.learn(entry_id, 10 * entry_id + 10)
    known.seen(1)
    for entry_id in (9, 999):
        known.learn(entry_id, 10 * entry_id + 10)
    assert known.bound(10, 999) == 9900
    assert known.stretch(10, 999, 9900, 1) == (999, ())
