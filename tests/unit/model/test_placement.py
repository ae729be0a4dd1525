"""Write sets and quorum coverage, by table and against the definition."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.model.placement import covered, holds, write_set


@st.composite
def quorums(draw: st.DrawFn) -> tuple[int, int, int]:
    ensemble = draw(st.integers(1, 7))
    write = draw(st.integers(1, ensemble))
    return ensemble, write, draw(st.integers(1, write))


@pytest.mark.parametrize(
    ("entry", "ensemble", "write", "expected"),
    [
        (0, 3, 2, (0, 1)),
        (1, 3, 2, (1, 2)),
        (2, 3, 2, (2, 0)),
        (2**40 + 1, 5, 3, ((2**40 + 1) % 5, (2**40 + 2) % 5, (2**40 + 3) % 5)),
    ],
)
def test_write_set(entry: int, ensemble: int, write: int, expected: tuple[int, ...]) -> None:
    assert write_set(entry, ensemble, write) == expected


@given(st.integers(0, 2**62), quorums())
def test_holds_agrees_with_the_write_set(entry: int, sizes: tuple[int, int, int]) -> None:
    ensemble, write, _ = sizes
    expected = set(write_set(entry, ensemble, write))
    assert {i for i in range(ensemble) if holds(entry, i, ensemble, write)} == expected


@given(quorums(), st.data())
def test_covered_means_no_ack_quorum_is_left_without_an_answer(
    sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    ensemble, write, ack = sizes
    answered = data.draw(st.sets(st.integers(0, ensemble - 1)))
    blind = any(
        not set(quorum) & answered
        for entry in range(ensemble)
        for quorum in combinations(write_set(entry, ensemble, write), ack)
    )
    assert covered(answered, ensemble, write, ack) is not blind
