"""Statistics of the compactions of a topic since it was opened. Source: CompactionRecord.java."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

LATENCIES_US: Final = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)
"""Upper bounds of the buckets of latencies; there is one more bucket above the last."""


class Latencies(NamedTuple):
    """Latencies of writes: the number of writes in each bucket, and their total in µs."""

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
        """Records the start of a compaction."""
        self._started_ms, self._removed = self._now_ms(), 0

    def end(self, *, succeeded: bool) -> None:
        """Records the end of the compaction."""
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
        """Counts messages that the compaction removes."""
        self._removed += messages
        self.removed_total += messages

    def read(self, size: int) -> None:
        """Counts an entry that was read, in either phase."""
        self.read_bytes += size

    def wrote(self, size: int) -> None:
        """Counts an entry that was written."""
        self.written_bytes += size
        self.written_entries += 1

    def stored(self, latency_us: int) -> None:
        """Counts a confirmed entry with the latency of its write."""
        buckets, total_us = self._latencies
        buckets[bisect_left(LATENCIES_US, latency_us)] += 1
        self._latencies = Latencies(buckets, total_us + latency_us)

    def take_latencies(self) -> Latencies:
        """Returns the latencies since the last call: each scrape returns only new ones, as in Java's broker."""
        found, self._latencies = self._latencies, Latencies([0] * (len(LATENCIES_US) + 1), 0)
        return found


class WriteTimes:
    """Measures the latency of each entry written to a new ledger; several entries may be in flight.

    Args:
        time: in seconds, of the event loop.
    """

    def __init__(self, record: CompactionRecord, time: Callable[[], float]) -> None:
        self._record = record
        self._time = time
        self._began: deque[float] = deque()
        self._stored = 0

    def began(self) -> None:
        """Records that the next entry is written now."""
        self._began.append(self._time())

    def confirmed(self, last: int) -> None:
        """Records that all entries up to this one are stored."""
        now = self._time()
        while self._stored <= last and self._began:
            self._stored += 1
            self._record.stored(int((now - self._began.popleft()) * 1_000_000))
