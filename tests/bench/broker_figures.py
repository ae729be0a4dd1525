"""What the broker's bench has measured: pairs that were run one after the other, their ratios, and the verdicts.

The machine's own speed moves by a third within minutes. So each repetition runs both sides of a comparison one after
the other, the next one in the reverse order; what counts is the median of their ratios, and beside it stands where the
true median lies nine times of ten, by the order of the ratios alone. A bar is missed when that whole range is on its
wrong side; a range that has the bar inside says that more repetitions are wanted, or that there is no difference.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from math import comb
from typing import Any, Final

LESS_IS_BETTER: Final = ("p50", "p99", "seconds", "mb")
UNITS: Final = {"per_s": "msg/s", "p50": "p50 ms", "p99": "p99 ms", "seconds": "s", "mb": "MB RSS"}
CERTAIN: Final = 0.9
"""How often the true median lies within the range that is told."""


def tell(words: str) -> None:
    """Progress, on stderr."""
    print(words, file=sys.stderr, flush=True)


def median_range(values: list[float]) -> tuple[float, float]:
    """Between which of the values the true median lies with CERTAIN likelihood; if they are few, all of them."""
    ordered, count = sorted(values), len(values)
    cut, outside = 0, 0.0
    while cut < count // 2:
        outside += 2 * comb(count, cut) / 2**count
        if outside > 1 - CERTAIN:
            break
        cut += 1
    cut = max(1, cut)
    return ordered[cut - 1], ordered[count - cut]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A comparison: the median of each side, of their ratios, and whether the bar holds.

    Attributes:
        word: "" where it holds or there is none, "level" where it cannot be told, "MISSED".
    """

    java: float
    ours: float
    ratio: float
    low: float
    high: float
    bar: str
    word: str


def compare(java: list[float], ours: list[float], figure: str, bar: float) -> Verdict:
    """Pairs in their order, ours by Java's; a bar of 0 is none."""
    ratios = [o / j for j, o in zip(java, ours, strict=True)]
    ratio = statistics.median(ratios)
    low, high = median_range(ratios)
    less = figure in LESS_IS_BETTER
    held = not bar or (ratio <= bar if less else ratio >= bar)
    within = low <= bar if less else high >= bar
    word = "" if held else "level" if within else "MISSED"
    sign = f"{'≤' if less else '≥'} {bar:g} ×" if bar else ""
    return Verdict(statistics.median(java), statistics.median(ours), ratio, low, high, sign, word)


class Figures:
    """Every measurement: by whose bookies, row and figure, then by whose broker, one for each repetition."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
        self.cpu_us: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.wrong: dict[str, int] = defaultdict(int)

    def add(self, place: str, side: str, name: str, figures: tuple[str, ...], answer: dict[str, Any]) -> None:
        """Counts an answer; one with errors has no figure, and its pair is none."""
        tell(f"    {name}, {side} on {place}: {json.dumps({k: round(v, 3) for k, v in answer.items()})}")
        errors = answer.get("errors", 0)
        if errors:
            self.wrong[f"{name}, {side} on {place}"] += errors
        for figure in figures:
            self.found[place, name, figure][side].append(None if errors else answer[figure])
        if not errors and "cpu_us" in answer:
            self.cpu_us[place, name][side].append(answer["cpu_us"])

    def pairs(self, name: str, figure: str, java_on: str, ours_on: str) -> tuple[list[float], list[float]]:
        """Java's broker on somebody's bookies, and ours: what was measured of both in the same repetition."""
        java = self.found[java_on, name, figure].get("java", [])
        ours = self.found[ours_on, name, figure].get("ours", [])
        both = [(j, o) for j, o in zip(java, ours, strict=False) if j is not None and o is not None]
        return [j for j, _ in both], [o for _, o in both]

    def cpu(self, place: str, name: str) -> str:
        """Processor time of a message, of both brokers."""
        found = self.cpu_us.get((place, name), {})
        shown = [f"{statistics.median(found[side]):,.1f}" if found.get(side) else "-" for side in ("java", "ours")]
        return " / ".join(shown)

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {f"{name}: {figure} on {place}": dict(sides) for (place, name, figure), sides in self.found.items()}


def number(value: float) -> str:
    """Three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def head(title: str) -> None:
    """Prints what the columns are."""
    print(f"\n{title}; medians, and the median of the pairs' ratios")
    columns = f"{'':<26} {'':>8} {'java':>10} {'ours':>10} {'ratio':>6} {'':<13} {'bar':<9} {'CPU µs a message':>18}"
    print(columns)


def alone(name: str, figure: str, values: list[float], cpu: str) -> None:
    """Prints what only one side has."""
    print(f"{name:<26} {UNITS[figure]:>8} {number(statistics.median(values)):>10}  alone  {cpu:>18}")


def line(name: str, figure: str, verdict: Verdict, cpu: str) -> None:
    """Prints one comparison."""
    certain = f"{verdict.low:.2f} to {verdict.high:.2f}"
    print(
        f"{name:<26} {UNITS[figure]:>8} {number(verdict.java):>10} {number(verdict.ours):>10} {verdict.ratio:>6.2f} "
        f"{certain:<13} {verdict.bar:<9} {cpu:>18}  {verdict.word}"
    )
