"""Placement: sizes, racks, regions, isolation, replacements."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.ensembles import (
    DefaultPlacement,
    EnsemblePlacement,
    IsolatedPlacement,
    TopologyPlacement,
    isolated,
    region_of,
    replacements,
)
from bkctl.client.racks import DEFAULT_RACK
from bkctl.errors import NotEnoughBookies
from bkctl.model.ids import BookieId
from bkctl.model.placement import write_set


def bookies(*names: str) -> list[BookieId]:
    return [BookieId(n) for n in names]


def on_racks(racks: str) -> dict[BookieId, str]:
    """One bookie a letter: "aab" is two bookies on rack /a and one on /b."""
    return {BookieId(f"{rack}{i}:3181"): f"/{rack}" for i, rack in enumerate(racks)}


def topology(racks: dict[BookieId, str], seed: int = 0, **options: object) -> TopologyPlacement:
    return TopologyPlacement(random.Random(seed), lambda b: racks.get(b, DEFAULT_RACK), **options)  # type: ignore[arg-type]


@given(st.integers(0, 1_000), st.integers(1, 7), st.integers(0, 4))
def test_default_chooses_distinct_candidates(seed: int, size: int, more: int) -> None:
    candidates = set(bookies(*[f"b{i}:1" for i in range(size + more)]))
    chosen = DefaultPlacement(random.Random(seed)).choose(size, 1, candidates)
    assert len(set(chosen)) == size
    assert set(chosen) <= candidates


@given(st.integers(0, 1_000), st.sampled_from([("aabb", 4, 2), ("aabbcc", 3, 3), ("aabbcc", 6, 3), ("aaabbb", 4, 2)]))
def test_write_sets_are_spread_over_racks(seed: int, case: tuple[str, int, int]) -> None:
    letters, size, width = case
    racks = on_racks(letters)
    placement = topology(racks, seed, racks_min=min(2, width))
    chosen = placement.choose(size, width, set(racks))
    assert len(set(chosen)) == size
    for entry_id in range(size):
        assert len({racks[chosen[i]] for i in write_set(entry_id, size, width)}) >= 2


@given(
    st.integers(0, 1_000), st.sampled_from([("aabbcc", 3, 3), ("aabbcc", 6, 3), ("abcde", 5, 3), ("aabbccdd", 4, 4)])
)
def test_every_write_set_of_an_ensemble_has_as_many_racks_as_it_can(seed: int, case: tuple[str, int, int]) -> None:
    letters, size, width = case
    racks = on_racks(letters)
    needed = min(width, len(set(letters)))
    placement = topology(racks, seed, racks_min=needed)
    chosen = placement.choose(size, width, set(racks))
    replaced = placement.replace(chosen, 1, width, set(racks)) if size < len(letters) else chosen[1]
    for ensemble in (chosen, [chosen[0], replaced, *chosen[2:]]):
        for entry_id in range(size):
            assert len({racks[ensemble[i]] for i in write_set(entry_id, size, width)}) == needed


@given(st.integers(0, 1_000), st.sampled_from([("aabbcc", 3, 3), ("aabbcc", 6, 3), ("aabb", 4, 2)]))
def test_write_sets_are_spread_over_all_racks_where_none_is_required(seed: int, case: tuple[str, int, int]) -> None:
    letters, size, width = case
    racks = on_racks(letters)
    chosen = topology(racks, seed).choose(size, width, set(racks))
    for entry_id in range(size):
        spread = {racks[chosen[i]] for i in write_set(entry_id, size, width)}
        assert len(spread) == min(width, len(set(letters)))


@pytest.mark.parametrize(("letters", "size", "width", "racks_min"), [("aabb", 3, 3, 3), ("aaab", 4, 2, 2)])
def test_an_ensemble_is_refused_when_any_write_set_has_too_few_racks(
    letters: str, size: int, width: int, racks_min: int
) -> None:
    racks = on_racks(letters)
    for seed in range(20):
        with pytest.raises(NotEnoughBookies, match=f"no {racks_min} racks for a write set"):
            topology(racks, seed, racks_min=racks_min).choose(size, width, set(racks))


def test_a_required_number_of_racks_is_refused_where_it_cannot_be() -> None:
    racks = on_racks("aaaa")
    with pytest.raises(NotEnoughBookies):
        topology(racks, racks_min=2).choose(3, 2, set(racks))
    assert len(topology(racks).choose(3, 2, set(racks))) == 3  # not required: as well as it can be


def test_regions_count_more_than_racks() -> None:
    racks = {
        BookieId("e1:1"): "/east/r1",
        BookieId("e2:1"): "/east/r2",
        BookieId("w1:1"): "/west/r1",
        BookieId("w2:1"): "/west/r1",
    }
    for seed in range(30):
        chosen = topology(racks, seed, regions=True).choose(2, 2, set(racks))
        assert len({region_of(racks[b]) for b in chosen}) == 2


def test_a_replacement_prefers_another_rack() -> None:
    racks = on_racks("abcab")
    a, b, c, a2, b2 = racks
    for seed in range(30):
        assert topology(racks, seed).replace([a, b, c], 0, 3, {a2, b2}) == a2
        assert topology(racks, seed).replace([a, b, c], 1, 3, {a2, b2}) == b2


@pytest.mark.parametrize("placement", [DefaultPlacement(random.Random(1)), topology({})])
def test_too_few_bookies(placement: EnsemblePlacement) -> None:
    with pytest.raises(NotEnoughBookies):
        placement.choose(3, 2, set(bookies("a:1", "b:1")))
    with pytest.raises(NotEnoughBookies):
        placement.replace(bookies("a:1", "b:1"), 0, 2, set(bookies("a:1", "b:1")))


def test_replacements_are_never_those_that_failed_and_quarantine_is_the_second_choice() -> None:
    a, b, c, d, e = bookies("a:1", "b:1", "c:1", "d:1", "e:1")
    placement = DefaultPlacement(random.Random(0))
    assert replacements(placement, (a, b, c), [(0, a)], 2, {a, d, e}, {e}) == {0: d}
    both = replacements(placement, (a, b, c), [(0, a), (2, c)], 2, {a, c, d, e}, {e})
    assert both == {0: d, 2: e}
    assert replacements(placement, (a, b, c), [(0, a), (2, c)], 2, {a, c, d}) == {0: d}
    assert replacements(placement, (a, b, c), [(0, a)], 2, {a, b, c}) == {}


GROUPS = {
    "one": frozenset(map(BookieId, ("a:1", "b:1"))),
    "two": frozenset(map(BookieId, ("c:1", "d:1"))),
    "other": frozenset(map(BookieId, ("e:1", "b:1"))),
}


@pytest.mark.parametrize(
    ("primary", "secondary", "needed", "candidates", "wanted"),
    [
        (["one"], ["two"], 2, "abcdef", "ab"),  # b is in another group too, and stays
        (["one"], ["two"], 3, "abcdef", "abcd"),  # the first group alone is too small
        (["one"], ["two"], 2, "acdef", "acd"),  # one of it is away
        (["one"], [], 2, "acdef", "af"),  # no second group: those of no group
        (["one"], ["two"], 5, "abcdef", "abcdf"),  # both are too small
        (["one", "two"], [], 4, "abcdef", "abcd"),
        (["gone"], [], 1, "abcdef", "f"),  # a group that nobody is in: never the members of others
        (["gone"], ["two"], 2, "abcdef", "cd"),
    ],
)
def test_isolated_ledgers(primary: list[str], secondary: list[str], needed: int, candidates: str, wanted: str) -> None:
    ids = {BookieId(f"{letter}:1") for letter in candidates}
    allowed = isolated(GROUPS, primary, secondary, ids, needed)
    assert allowed == {BookieId(f"{letter}:1") for letter in wanted}
    placement = IsolatedPlacement(DefaultPlacement(random.Random(1)), lambda: GROUPS, primary, secondary)
    if len(allowed) >= needed:
        chosen = placement.choose(needed, needed, ids)
        assert set(chosen) <= allowed
        if len(allowed) > needed:
            assert placement.replace(chosen, 0, needed, ids) in allowed - set(chosen)
    else:
        with pytest.raises(NotEnoughBookies):
            placement.choose(needed, needed, ids)
