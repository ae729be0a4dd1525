"""The ledgers of a managed ledger as one row of entries: what comes next, how many lie between, what ledger is where.

Pure arithmetic on positions. The last ledger may be open and grows; all others have their number of entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

from bkctl.codec.managed_ledger import LedgerInfo
from bkctl.model.topic import Position

_NOWHERE = Position(-1, -1)


class LedgerList:
    """Ledgers, ascending by id; `open_id` is the one that is being written, or None."""

    def __init__(self, infos: Iterable[LedgerInfo] = (), open_id: int | None = None) -> None:
        self.infos: dict[int, LedgerInfo] = {info.ledger_id: info for info in infos}
        self.open_id = open_id
        self.open_entries = 0
        self.open_bytes = 0
        self._closed: LedgerInfo | None = None  # the last one that was open
        self._rebuild()

    def _rebuild(self) -> None:
        self._ids = sorted(self.infos)
        counts = [0 if i == self.open_id else (self.infos[i].entries or 0) for i in self._ids]
        self._before = [0, *accumulate(counts)]

    # -- changes ----------------------------------------------------------------------------------------------------

    def open(self, info: LedgerInfo) -> None:
        """A new last ledger, which grows."""
        self.infos[info.ledger_id] = info
        self.open_id, self.open_entries, self.open_bytes = info.ledger_id, 0, 0
        self._rebuild()

    def close(self, info: LedgerInfo) -> None:
        """The open ledger got its end; one without entries leaves the list."""
        self.open_id, self.open_entries, self.open_bytes = None, 0, 0
        self._closed = info
        if info.entries:
            self.infos[info.ledger_id] = info
        else:
            self.infos.pop(info.ledger_id, None)
        self._rebuild()

    def terminate(self) -> Position:
        """Keeps the ledger that was open last, though it may be empty, and returns its end: entry -1 then, as Java."""
        if self._closed is None:
            return self.last
        self.infos[self._closed.ledger_id] = self._closed
        self._rebuild()
        return Position(self._closed.ledger_id, self.entries(self._closed.ledger_id) - 1)

    def remove(self, ledger_ids: Iterable[int]) -> None:
        """Removes trimmed ledgers."""
        for ledger_id in ledger_ids:
            self.infos.pop(ledger_id, None)
        self._rebuild()

    # -- ledgers ----------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> list[int]:
        """All ids, ascending."""
        return self._ids

    def entries(self, ledger_id: int) -> int:
        """Entries of a ledger, as far as they are confirmed; 0 where it is not in the list."""
        if ledger_id == self.open_id:
            return self.open_entries
        info = self.infos.get(ledger_id)
        return 0 if info is None else info.entries or 0

    def size(self, ledger_id: int) -> int:
        """Bytes of a ledger, as far as they are confirmed."""
        if ledger_id == self.open_id:
            return self.open_bytes
        info = self.infos.get(ledger_id)
        return 0 if info is None else info.size or 0

    @property
    def entries_total(self) -> int:
        """Entries in all ledgers."""
        return self._before[-1] + self.open_entries

    @property
    def size_total(self) -> int:
        """Bytes in all ledgers."""
        return sum(self.size(ledger_id) for ledger_id in self._ids)

    # -- positions ----------------------------------------------------------------------------------------------------

    @property
    def first(self) -> Position:
        """The first entry that is kept, or that will be."""
        return self.at_or_after(_NOWHERE)

    @property
    def before_first(self) -> Position:
        """The mark-delete position of a cursor at the beginning: entry -1 of the first ledger."""
        return Position(self._ids[0], -1) if self._ids else _NOWHERE

    @property
    def last(self) -> Position:
        """Returns the last confirmed entry; entry -1 of the last ledger if no entry exists."""
        for ledger_id in reversed(self._ids):
            entries = self.entries(ledger_id)
            if entries:
                return Position(ledger_id, entries - 1)
        return Position(self._ids[-1], -1) if self._ids else _NOWHERE

    def contains(self, position: Position) -> bool:
        """True for an entry that is there and confirmed."""
        return 0 <= position.entry_id < self.entries(position.ledger_id)

    def at_or_after(self, position: Position) -> Position:
        """The entry itself if it is there, else the next that is, else that which will be written next."""
        ledger_id, entry_id = position
        if ledger_id in self.infos:
            entry_id = max(entry_id, 0)
            if entry_id < self.entries(ledger_id):
                return Position(ledger_id, entry_id)
            if ledger_id == self.open_id:
                return Position(ledger_id, self.open_entries)
        for later in self._ids[bisect_right(self._ids, ledger_id) :]:
            if later == self.open_id or self.entries(later):
                return Position(later, 0)
        last = self.last
        return Position(last.ledger_id, last.entry_id + 1)

    def next(self, position: Position) -> Position:
        """Returns the entry after a position; after the last one, the next position to be written."""
        return self.at_or_after(Position(position.ledger_id, position.entry_id + 1))

    def previous(self, position: Position) -> Position:
        """Returns the entry before a position; entry -1 of the first ledger if none is."""
        index = self.index(position) - 1
        return self.at(index) if index >= 0 else self.before_first

    def index(self, position: Position) -> int:
        """Counts the entries before a position."""
        place = bisect_left(self._ids, position.ledger_id)
        if place == len(self._ids):
            return self.entries_total
        if self._ids[place] != position.ledger_id:
            return self._before[place]
        return self._before[place] + min(max(position.entry_id, 0), self.entries(position.ledger_id))

    def at(self, index: int) -> Position:
        """Returns the entry with `index` entries before it; after the last one, the next position to be written."""
        if index >= self.entries_total:
            return self.next(self.last)
        place = bisect_right(self._before, max(index, 0)) - 1
        place = min(place, len(self._ids) - 1)
        return Position(self._ids[place], max(index, 0) - self._before[place])

    def between(self, after: Position, until: Position) -> int:
        """Counts the entries after `after`, up to and including `until`."""
        upper = self.index(Position(until.ledger_id, until.entry_id + 1))
        return max(0, upper - self.index(Position(after.ledger_id, after.entry_id + 1)))
