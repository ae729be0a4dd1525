"""Statistics of the compactions of a topic since it was opened. Source: CompactionRecord.java."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

LATENCIES_US: Final = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)
"""Upper bounds of the buckets of latencies; what is above the last has a bucket of its own."""


class Latencies(NamedTuple):
    """How long writes took: how many fell into each bucket, and the µs of all of them."""

    buckets: list[int]
    total_us: int


class CompactionRecord:
    """Counters of one topic; times are in ms, 0 for never.

    Attributes:
        last_removed, last_succeeded_ms, last_failed_ms, last_duration_ms: of the last compaction.
        removed_total, succeeded, failed, duration_total_ms: of all of them.
        read_bytes, written_bytes, written_entries: of all of them.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._started_ms = self._removed = 0
        self.last_removed = self.last_succeeded_ms = self.last_failed_ms = self.last_duration_ms = 0
        self.removed_total = self.succeeded = self.failed = self.duration_total_ms = 0
        self.read_bytes = self.written_bytes = self.written_entries = 0
        self._latencies = Latencies([0] * (len(LATENCIES_US) + 1), 0)

    @property
    def ran(self) -> bool:
        """True once a compaction has begun."""
        return self._started_ms > 0

    def start(self) -> None:
        """A compaction begins."""
        self._started_ms, self._removed = self._now_ms(), 0

    def end(self, *, succeeded: bool) -> None:
        """It is over."""
        now = self._now_ms()
        self.last_duration_ms = now - self._started_ms
        self.duration_total_ms += self.last_duration_ms
        self.last_removed = self._removed
        if succeeded:
            self.last_succeeded_ms = now
            self.succeeded += 1
        else:
            self.last_failed_ms = now
            self.failed += 1

    def removed(self, messages: int) -> None:
        """Messages do not count any more."""
        self._removed += messages
        self.removed_total += messages

    def read(self, size: int) -> None:
        """An entry was read, in either phase."""
        self.read_bytes += size

    def wrote(self, size: int) -> None:
        """An entry was written."""
        self.written_bytes += size
        self.written_entries += 1

    def stored(self, latency_us: int) -> None:
        """An entry is confirmed, so long after it was written."""
        buckets, total_us = self._latencies
        buckets[bisect_left(LATENCIES_US, latency_us)] += 1
        self._latencies = Latencies(buckets, total_us + latency_us)

    def take_latencies(self) -> Latencies:
        """Those since the last call: as with Java's broker, each scrape tells what came since the one before."""
        found, self._latencies = self._latencies, Latencies([0] * (len(LATENCIES_US) + 1), 0)
        return found


class WriteTimes:
    """How long each entry of a new ledger takes; as many are under way as the ledger's writer takes.

    Args:
        time: in seconds, of the event loop.
    """

    def __init__(self, record: CompactionRecord, time: Callable[[], float]) -> None:
        self._record = record
        self._time = time
        self._began: deque[float] = deque()
        self._stored = 0

    def began(self) -> None:
        """The next entry is written now."""
        self._began.append(self._time())

    def confirmed(self, last: int) -> None:
        """All entries up to this one are stored."""
        now = self._time()
        while self._stored <= last and self._began:
            self._stored += 1
            self._record.stored(int((now - self._began.popleft()) * 1_000_000))
