"""What is told of the compactions of a topic since it was opened. Source: CompactionRecord.java."""

from __future__ import annotations

from collections.abc import Callable


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
