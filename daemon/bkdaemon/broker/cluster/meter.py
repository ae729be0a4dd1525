"""Measures the CPU use of the process."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable


def _spent_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Meter:
    """CPU use of the process between the last two calls of `look`, in percent of one core, as in Java."""

    def __init__(self, now: Callable[[], float] = time.monotonic, spent_s: Callable[[], float] = _spent_s) -> None:
        self._now = now
        self._spent_s = spent_s
        self._at, self._spent = now(), spent_s()
        self.cpu = 0.0

    def look(self) -> None:
        """Measures the CPU time since the last call."""
        at, spent = self._now(), self._spent_s()
        if at > self._at:
            self.cpu = max(0.0, 100 * (spent - self._spent) / (at - self._at))
            self._at, self._spent = at, spent
