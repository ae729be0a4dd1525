"""The verdicts of the broker's bench, on ratios that are known."""

from __future__ import annotations

import pytest

from tests.bench.broker_figures import Figures, compare, median_range


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 1, 1), (2, 1, 2), (4, 1, 4), (5, 1, 5), (8, 2, 7), (11, 3, 9)],  # by the binomial: 0.9375, 0.930, 0.935
)
def test_the_median_lies_within_its_range_nine_times_of_ten(count: int, low: float, high: float) -> None:
    assert median_range([float(one) for one in range(count, 0, -1)]) == (low, high)


@pytest.mark.parametrize(
    ("ours", "word"),
    [([101.0, 99.0, 102.0], ""), ([97.0, 101.0, 98.0], "level"), ([97.0, 99.0, 98.0], "MISSED")],
)
def test_more_is_better_where_messages_are_counted(ours: list[float], word: str) -> None:
    assert compare([100.0, 100.0, 100.0], ours, "per_s", 1.0).word == word


@pytest.mark.parametrize(("ours", "word"), [([7.0, 6.0], ""), ([7.9, 8.2], "level"), ([8.1, 9.0], "MISSED")])
def test_less_is_better_where_milliseconds_are(ours: list[float], word: str) -> None:
    assert compare([10.0, 10.0], ours, "p99", 0.8).word == word


def test_a_pair_with_errors_is_none() -> None:
    figures = Figures()
    for answer in ({"per_s": 10.0}, {"errors": 3}, {"per_s": 12.0}):
        figures.add("ours", "java", "row", ("per_s",), answer)
        figures.add("ours", "ours", "row", ("per_s",), {"per_s": 20.0})
    assert figures.pairs("row", "per_s", "ours", "ours") == ([10.0, 12.0], [20.0, 20.0])
    assert dict(figures.wrong) == {"row, java on ours": 3}
