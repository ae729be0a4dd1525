"""One row of the benches of recovery: Java's figure, ours, how many times better, and the bar."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """Figures in `unit`; more_is_better is False for times. java is None where there is nothing to compare with.

    bar_max is for rows whose ratio must stay below: how many times ours may be what it is compared with.
    """

    work: str
    unit: str
    java: float | None
    ours: float
    bar: float | None = None
    bar_max: float | None = None
    more_is_better: bool = True
    rss_mb: int | None = None
    rss_mb_max: int | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; of a row with bar_max, ours by the other."""
        if self.java is None:
            return None
        up = self.more_is_better or self.bar_max is not None
        return self.ours / self.java if up else self.java / self.ours

    @property
    def held(self) -> bool:
        """Whether the bars are met."""
        ratio = self.ratio
        return (
            (self.bar is None or (ratio is not None and ratio >= self.bar))
            and (self.bar_max is None or (ratio is not None and ratio <= self.bar_max))
            and (self.rss_mb_max is None or (self.rss_mb is not None and self.rss_mb < self.rss_mb_max))
        )

    def item(self) -> dict[str, Any]:
        """For -o json."""
        return {**asdict(self), "ratio": self.ratio, "held": self.held}

    def __str__(self) -> str:
        words = [f"{self.work:22}"]
        if self.java is not None:
            words.append(f"{'without' if self.bar_max is not None else 'java'} {self.java:9.2f} {self.unit:9}")
        words.append(f"ours {self.ours:9.2f} {self.unit:9}")
        if self.ratio is not None:
            words.append(f"{self.ratio:6.1f} ×")
        if self.bar is not None:
            words.append(f"(bar {self.bar:g} ×)")
        if self.bar_max is not None:
            words.append(f"(at most {self.bar_max:g} ×)")
        if self.rss_mb is not None:
            words.append(f"RSS {self.rss_mb} MB" + (f" (below {self.rss_mb_max})" if self.rss_mb_max else ""))
        words += [self.note] if self.note else []
        return "   ".join([*words, "" if self.held else "MISSED"]).rstrip()


def tell(words: str) -> None:
    """Progress, on stderr."""
    print(words, file=sys.stderr, flush=True)


def rss_mb(pid: int) -> int:
    """The highest resident size of a running process so far."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
