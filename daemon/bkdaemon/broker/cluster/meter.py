"""How busy the process is."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable


def _spent_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Meter:
    """How busy the process was between the last two looks: percent of one core, as Java counts."""

    def __init__(self, now: Callable[[], float] = time.monotonic, spent_s: Callable[[], float] = _spent_s) -> None:
        self._now = now
        self._spent_s = spent_s
        self._at, self._spent = now(), spent_s()
        self.cpu = 0.0

    def look(self) -> None:
        """Counts what was spent since the last look."""
        at, spent = self._now(), self._spent_s()
        if at > self._at:
            self.cpu = max(0.0, 100 * (spent - self._spent) / (at - self._at))
            self._at, self._spent = at, spent
