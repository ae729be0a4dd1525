"""The acknowledgements of one cursor: a mark-delete position, ranges above it, parts of batches. Without I/O.

Ranges are kept by ledger, as ascending, disjoint, never touching pairs of entry ids. Entries that are acknowledged
without a gap after the mark-delete position move it. Source: ManagedCursorImpl.java, OpenLongPairRangeSet.java.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from bkctl.codec.managed_ledger import AckedRange, BatchAck, CursorState, bits_of, words_of
from bkctl.log.ledgers import LedgerList
from bkctl.model.topic import Position

RANGES_MAX: Final = 10_000
"""Ranges, and batches, that are stored: the lowest. What lies above is delivered again after a restart."""
ORDER_SLACK: Final = 64
"""Of the order of batches: places of batches that are whole by now, as long as those that are not are few."""


@dataclass(slots=True)
class _Ranges:
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def add(self, start: int, end: int) -> int:
        """Adds start to end, both included; returns how many entries are new."""
        starts, ends = self.starts, self.ends
        first = bisect_left(ends, start - 1)  # ranges from here on touch or lie after
        last = bisect_right(starts, end + 1)  # those before here touch or lie before
        if first == last:
            starts.insert(first, start)
            ends.insert(first, end)
            return end - start + 1
        covered = sum(max(0, min(ends[i], end) - max(starts[i], start) + 1) for i in range(first, last))
        new_start, new_end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last] = [new_start]
        ends[first:last] = [new_end]
        return end - start + 1 - covered

    def holds(self, entry_id: int) -> bool:
        index = bisect_right(self.starts, entry_id) - 1
        return index >= 0 and entry_id <= self.ends[index]

    def cut(self, entry_id: int) -> int:
        """Forgets what lies up to entry_id; returns how many entries that were."""
        starts, ends = self.starts, self.ends
        whole = bisect_right(ends, entry_id)  # at once: there may be 100,000
        gone = sum(ends[:whole]) - sum(starts[:whole]) + whole
        del starts[:whole], ends[:whole]
        if starts and starts[0] <= entry_id:
            gone += entry_id - starts[0] + 1
            starts[0] = entry_id + 1
        return gone


class Acks:
    """The acknowledged part of a row of ledgers."""

    def __init__(self, ledgers: LedgerList, mark_delete: Position) -> None:
        self.mark_delete = mark_delete
        self.batches: dict[Position, int] = {}
        self._order: list[Position] = []  # heap of batches, with some that are whole by now
        self._ledgers = ledgers
        self._ranges: dict[int, _Ranges] = {}
        self._count = 0

    @property
    def above(self) -> int:
        """Entries that are acknowledged one by one, above the mark-delete position."""
        return self._count

    @property
    def range_count(self) -> int:
        """Ranges above the mark-delete position."""
        return sum(len(ranges.starts) for ranges in self._ranges.values())

    def is_acked(self, position: Position) -> bool:
        """True if the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        ranges = self._ranges.get(position.ledger_id)
        return ranges is not None and ranges.holds(position.entry_id)

    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        return max(0, self._ledgers.between(self.mark_delete, self._ledgers.last) - self._count)

    # -- acknowledging ------------------------------------------------------------------------------------------------

    def ack(self, position: Position) -> bool:
        """Acknowledges an entry; False if it was acknowledged before or does not exist."""
        if position <= self.mark_delete or not self._ledgers.contains(position):
            return False
        new = self._add(position.ledger_id, position.entry_id, position.entry_id)
        self.batches.pop(position, None)
        return new

    def ack_batch(self, position: Position, remaining: int) -> bool:
        """Acknowledges the messages of a batch whose bits in remaining are 0; all of them, and it is a whole entry."""
        if self.is_acked(position) or not self._ledgers.contains(position):
            return False
        old = self.batches.get(position)
        new = remaining if old is None else old & remaining
        if new == old:
            return False
        if not new:
            return self.ack(position)
        self._put(position, new)
        return True

    def ack_range(self, ledger_id: int, start: int, end: int) -> bool:
        """Acknowledges the entries of a ledger from start to end, both included; False if none is new."""
        for position in [p for p in self.batches if p.ledger_id == ledger_id and start <= p.entry_id <= end]:
            del self.batches[position]
        return self._load(ledger_id, start, end)

    def ack_until(self, position: Position) -> bool:
        """Acknowledges all entries up to position; False if the mark-delete position stays."""
        position = min(position, self._ledgers.last)
        if position <= self.mark_delete:
            return False
        self._move(position)
        return True

    def advance(self) -> bool:
        """Moves the mark-delete position over the acknowledged entries after it; True if it moved."""
        before = self.mark_delete
        while self._ranges:
            following = self._ledgers.next(self.mark_delete)
            ranges = self._ranges.get(following.ledger_id)
            if ranges is None or not ranges.holds(following.entry_id):
                break
            self._move(Position(following.ledger_id, ranges.ends[0]))
        return self.mark_delete != before

    def reset(self, mark_delete: Position) -> None:
        """Discards all acknowledgements except those up to mark_delete."""
        self.mark_delete = mark_delete
        self._ranges.clear()
        self.batches.clear()
        self._order.clear()
        self._count = 0

    def reached_with(self, entries: int) -> Position:
        """The entry with which so many more would be acknowledged, the oldest; the last one where there are fewer."""
        ledgers, following = self._ledgers, self._ledgers.next(self.mark_delete)
        if entries <= 0:
            return self.mark_delete
        for ledger_id in ledgers.ids[bisect_left(ledgers.ids, following.ledger_id) :]:
            first = following.entry_id if ledger_id == following.ledger_id else 0
            count = ledgers.entries(ledger_id)
            ranges = self._ranges.get(ledger_id) or _Ranges()
            for start, end in zip((*ranges.starts, count), (*ranges.ends, count), strict=True):
                if start - first >= entries:
                    return Position(ledger_id, first + entries - 1)
                entries -= max(start - first, 0)
                first = end + 1
        return ledgers.last

    def _put(self, position: Position, remaining: int) -> None:
        if position not in self.batches:
            heappush(self._order, position)
        self.batches[position] = remaining
        if len(self._order) > 2 * len(self.batches) + ORDER_SLACK:
            self._order = sorted(self.batches)

    def _add(self, ledger_id: int, start: int, end: int) -> bool:
        ranges = self._ranges.get(ledger_id)
        if ranges is None:
            ranges = self._ranges[ledger_id] = _Ranges()
        new = ranges.add(start, end)
        self._count += new
        return new > 0

    def _move(self, position: Position) -> None:
        self.mark_delete = position
        for ledger_id in [i for i in self._ranges if i <= position.ledger_id]:
            ranges = self._ranges[ledger_id]
            last = position.entry_id if ledger_id == position.ledger_id else (ranges.ends or [-1])[-1]
            self._count -= ranges.cut(last)
            if not ranges.starts:
                del self._ranges[ledger_id]
        while self._order and self._order[0] <= position:
            self.batches.pop(heappop(self._order), None)

    # -- storing ------------------------------------------------------------------------------------------------------

    def state(self, longs: dict[str, int], ranges_max: int = RANGES_MAX) -> CursorState:
        """Returns the state to store, with the lowest ranges_max ranges and batches."""
        batches = sorted(self.batches)[:ranges_max]
        return CursorState(
            self.mark_delete,
            tuple(islice(self._stored_ranges(), ranges_max)),
            dict(longs),
            tuple(BatchAck(p, words_of(self.batches[p])) for p in batches),
        )

    def _stored_ranges(self) -> Iterator[AckedRange]:
        for ledger_id in sorted(self._ranges):
            ranges = self._ranges[ledger_id]
            for start, end in zip(ranges.starts, ranges.ends, strict=True):
                yield AckedRange(Position(ledger_id, start - 1), Position(ledger_id, end))

    def load(self, state: CursorState) -> None:
        """Loads a stored state; entries that are not in the ledgers any more are ignored."""
        self.reset(self._settled(state.mark_delete))
        for one in state.ranges:
            self._load_range(one)
        for ledger_id, words in state.bits.items():
            for start, end in _runs(bits_of(words)):
                self._load(ledger_id, start, end)
        for batch in state.batches:
            bits = bits_of(batch.words)
            if bits and not self.is_acked(batch.position) and self._ledgers.contains(batch.position):
                self._put(batch.position, bits)
        self.advance()

    def settle(self) -> None:
        """Adapts the state to removed ledgers; all acknowledgements of the others are kept."""
        self.load(self.state({}, max(self.range_count, len(self.batches))))

    def _settled(self, position: Position) -> Position:
        """A stored mark-delete position, where its ledger is gone, or longer than what was recovered."""
        ledgers = self._ledgers
        if position.ledger_id not in ledgers.infos:
            later = [i for i in ledgers.ids if i > position.ledger_id]
            return Position(later[0], -1) if later else ledgers.last
        return min(position, max(ledgers.last, ledgers.before_first))

    def _load_range(self, one: AckedRange) -> None:
        if one.after.ledger_id == one.until.ledger_id:
            self._load(one.until.ledger_id, one.after.entry_id + 1, one.until.entry_id)
            return
        for ledger_id in self._ledgers.ids:  # older releases wrote ranges over the end of a ledger
            if one.after.ledger_id <= ledger_id <= one.until.ledger_id:
                start = one.after.entry_id + 1 if ledger_id == one.after.ledger_id else 0
                end = one.until.entry_id if ledger_id == one.until.ledger_id else self._ledgers.entries(ledger_id) - 1
                self._load(ledger_id, start, end)

    def _load(self, ledger_id: int, start: int, end: int) -> bool:
        start, end = max(start, 0), min(end, self._ledgers.entries(ledger_id) - 1)
        if ledger_id == self.mark_delete.ledger_id:
            start = max(start, self.mark_delete.entry_id + 1)
        return start <= end and ledger_id >= self.mark_delete.ledger_id and self._add(ledger_id, start, end)


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """Runs of ones, as (first, last)."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        yield at + zeros, at + zeros + ones - 1
        at += zeros + ones
        bits >>= ones
