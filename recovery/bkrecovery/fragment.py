"""Fragments: the part of a ledger that one ensemble holds, with the ensemble indexes whose copies are missing.

    segment of the metadata     its fragment covers
    not the last one            [its first entry, the next one's first entry - 1]
    last, ledger closed         [its first entry, last entry of the ledger]; empty where the latter comes first
    last, ledger not closed     [its first entry, last confirmed], one entry at least: it may be on its way

Entry e lives on the indexes (e + i) mod E, i = 0 … Qw - 1. A fragment may be copied when no writer can add to it any
more ("settled"). Source: LedgerChecker.java, LedgerFragment.java, RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.placement import holds, striped_ends, write_set
from bkctl.world import Random

PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Fragment:
    """Entries first_entry_id to last_entry_id of a ledger (none if last < first) on the bookies of one ensemble.

    bad are the indexes whose copies are missing, ascending. settled: no writer can add to it. last: it is the ledger's
    last segment.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    bookies: tuple[BookieId, ...]
    write_quorum_size: int
    settled: bool
    last: bool
    bad: tuple[int, ...] = ()

    def holds(self, entry_id: int, index: int) -> bool:
        """True if the bookie at this index stores the entry."""
        return holds(entry_id, index, len(self.bookies), self.write_quorum_size)

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """The indexes that store the entry, in the order of reads."""
        return write_set(entry_id, len(self.bookies), self.write_quorum_size)

    def striped(self, index: int) -> tuple[int, int] | None:
        """The first and last entry that the bookie at this index stores, or None if it stores none."""
        return striped_ends(self.first_entry_id, self.last_entry_id, index, len(self.bookies), self.write_quorum_size)

    def stores(self, index: int) -> Iterator[int]:
        """Every entry that the bookie at this index stores, ascending."""
        return (e for e in range(self.first_entry_id, self.last_entry_id + 1) if self.holds(e, index))

    def copy_range(self) -> tuple[int, int] | None:
        """From the first to the last entry that a bad index stores; without such an entry: None."""
        ends = [found for index in self.bad if (found := self.striped(index)) is not None]
        return (min(first for first, _ in ends), max(last for _, last in ends)) if ends else None

    def with_bad(self, indexes: Iterable[int]) -> Fragment:
        """The same fragment with these indexes bad."""
        return replace(self, bad=tuple(sorted(set(indexes))))

    def bad_bookies(self) -> tuple[BookieId, ...]:
        """The bookies at the bad indexes."""
        return tuple(self.bookies[index] for index in self.bad)


def fragments_of(ledger_id: int, metadata: LedgerMetadata, last_confirmed: int) -> list[Fragment]:
    """All fragments of a ledger, none of them bad yet.

    last_confirmed takes effect if the ledger is not closed: it is read from its bookies without fencing. An earlier
    segment whose end it does not reach is left alone: either it was read too low, or entries are missing.
    """
    found = []
    for at, ensemble in enumerate(metadata.ensembles):
        last = at == len(metadata.ensembles) - 1
        if not last:
            end = metadata.ensembles[at + 1].first_entry_id - 1
            settled = metadata.closed or last_confirmed >= metadata.last_ensemble.first_entry_id - 1
        elif metadata.closed:
            end, settled = int(metadata.last_entry_id), True
        else:
            end, settled = max(last_confirmed, ensemble.first_entry_id), False
        found.append(
            Fragment(
                ledger_id,
                ensemble.first_entry_id,
                max(end, ensemble.first_entry_id - 1),
                ensemble.bookies,
                metadata.write_quorum_size,
                settled,
                last,
            )
        )
    return found


def may_be_unwritten(fragment: Fragment) -> bool:
    """True for the one entry of an open last segment that was perhaps never written: if none of its bookies has it, the
    fragment says nothing about lost copies."""
    return fragment.last and not fragment.settled and fragment.first_entry_id == fragment.last_entry_id


def sample(fragment: Fragment, index: int, percentage: int, random: Random) -> list[int]:
    """The entries to read from the bookie at this index to check its part: the first, the last, and so
    many in between that percentage of the range is checked. Empty if the bookie stores nothing."""
    ends = fragment.striped(index)
    if ends is None:
        return []
    first, last = ends
    length = last - first + 1
    count = length * min(max(percentage, 0), PERCENT) // PERCENT
    if count >= length:
        return list(fragment.stores(index))
    chosen = {first, last}
    if count:
        bucket = length // count
        for start in range(first, last + 1, bucket):
            entry_id = start + random.randrange(bucket)
            if entry_id <= last and fragment.holds(entry_id, index):
                chosen.add(entry_id)
    return sorted(chosen)


def split(first_entry_id: int, last_entry_id: int, count: int) -> Iterator[tuple[int, int]]:
    """The range cut into pieces of at most count entries: (first, last), ascending."""
    for first in range(first_entry_id, last_entry_id + 1, count):
        yield first, min(first + count - 1, last_entry_id)
