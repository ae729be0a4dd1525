"""How many bytes some entries of a ledger have, known before they are read; no bookie is asked here.

Every entry carries the ledger's length up to and including itself, so two entries determine the bytes between them
exactly, however much one differs from the next; those further out bound it. What has to be seen for that, and was not,
is named: the reader requests these entries first. Source: LedgerHandle.java (addToLength).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection
from typing import Final

MARKS_MAX: Final = 32
"""Entries of one ledger whose place is remembered; the one learned first is evicted first."""
FILL: Final = 0.75
"""How much of the bytes allowed a guess by average goes for: a little more than the average shall fit too."""
UNKNOWN_ENTRIES: Final = 100
"""Guessed to fit while nothing is known of a ledger."""


class LedgerSizes:
    """Where the bytes of one ledger lie, as far as that was seen.

    Attributes:
        entry_size: bytes of an entry as they were lately; 0 while none was seen.
        trusted: False once lengths contradicted each other: then only averages are used.
    """

    __slots__ = ("_ids", "_learned", "_lengths", "entry_size", "trusted")

    def __init__(self) -> None:
        self.entry_size = 0.0
        self.trusted = True
        self._ids = [-1]
        self._lengths = [0]
        self._learned: deque[int] = deque()

    def learn(self, entry_id: int, length: int) -> None:
        """The ledger has so many bytes up to and including this entry."""
        ids, lengths = self._ids, self._lengths
        at = bisect_left(ids, entry_id)
        here = at < len(ids) and ids[at] == entry_id
        if entry_id < 0 or (here and lengths[at] == length):
            return
        if here or length < lengths[at - 1] or (at < len(ids) and length > lengths[at]):
            self.trusted = False
            return
        ids.insert(at, entry_id)
        lengths.insert(at, length)
        self._learned.append(entry_id)
        if len(ids) > MARKS_MAX:  # never one of the two that `stretch` asked for last
            evicted = bisect_left(ids, self._learned.popleft())
            del ids[evicted], lengths[evicted]

    def seen(self, size: float) -> None:
        """Entries of this size on average were read."""
        old = self.entry_size
        self.entry_size = max(1.0, size, (old + size) / 2)  # up at once, down slowly

    def bound(self, first: int, last: int) -> int | None:
        """Bytes that entries first to last have at most; None if no entry at or after the last was seen."""
        high = bisect_left(self._ids, last)
        if high == len(self._ids):
            return None
        return self._lengths[high] - self._lengths[bisect_right(self._ids, first - 1) - 1]

    def _unseen(self, first: int, last: int) -> tuple[int, ...]:
        ids = self._ids
        return tuple(e for e in (first - 1, last) if (at := bisect_left(ids, e)) == len(ids) or ids[at] != e)

    def stretch(
        self, first: int, last: int, bytes_max: int, few: int, asked: Collection[int] = ()
    ) -> tuple[int, tuple[int, ...]]:
        """(end, ()): entries first to end have no more than bytes_max bytes, or are no more than a few.

        (end, entries): to know it, these have to be seen first; ask again then.

        Args:
            few: entries that may be read whatever they have.
            asked: entries that the caller has read for this already: they are never returned again, even if they
                could not be read or were evicted since, so a caller that repeats the call comes to an end.
        """
        count = last - first + 1
        whole = self.bound(first, last)
        if whole is None or whole > bytes_max:
            guess = int(FILL * bytes_max / self.entry_size) if self.entry_size else UNKNOWN_ENTRIES
            count = min(count, max(guess, 1))
            if few < count <= 2 * few:
                count = few  # reads less than seeing one of them for its length would
        while count > few:
            end = first + count - 1
            bound = self.bound(first, end)
            if not self.trusted or (bound is not None and bound <= bytes_max):
                return end, ()
            unseen = self._unseen(first, end)
            if any(entry_id in asked for entry_id in unseen):
                count = few
            elif unseen:
                return end, unseen
            else:
                count //= 2
        return first + min(max(count, 1), last - first + 1) - 1, ()
