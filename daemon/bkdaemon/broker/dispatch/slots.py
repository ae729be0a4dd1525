"""The slots of keys, and which consumer has which: ranges, points on a ring, or one range each."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bkctl.codec.pulsar import ErrorCode
from bkctl.codec.pulsar_entry import decode_metadata, message_key
from bkctl.codec.pulsar_hash import SLOTS, ring_slot_of, slot_of
from bkctl.errors import BadBytes
from bkdaemon.broker.dispatch.consumer import Consumer
from bkdaemon.broker.refusal import Refusal

if TYPE_CHECKING:
    from bkdaemon.broker.rules import TopicRules

RING_POINTS: Final = 100
NO_LIMIT: Final = 1 << 31


def look_ahead(rules: TopicRules, consumers: int) -> int:
    """Entries that wait for their consumer before nothing new is read, with so many consumers."""
    each, whole = rules.look_ahead_per_consumer_max, rules.look_ahead_per_subscription_max
    most = min(each * consumers or NO_LIMIT, whole or NO_LIMIT)
    if most < NO_LIMIT:
        return most
    return min(rules.unacked_per_subscription_max or NO_LIMIT, rules.unacked_per_consumer_max * consumers or NO_LIMIT)


def entry_slot(metadata: Any, division: Division) -> int:
    """The slot of an entry; one without a key goes by its producer and number."""
    if metadata is None:
        return 1
    key = message_key(metadata)
    return division.slot_of(key if key is not None else f"{metadata.producer_name}-{metadata.sequence_id}".encode())


class Ring:
    """Automatic division of the slots, the same at every broker: by the names of consumers, numbered where alike."""

    slot_of = staticmethod(ring_slot_of)

    def __init__(self, points_each: int = RING_POINTS) -> None:
        self._points_each = points_each
        self._consumers: dict[int, list[Consumer]] = {}  # at a point: who came first has it
        self._points: list[int] = []
        self._numbers: dict[Consumer, int] = {}

    def _points_of(self, consumer: Consumer) -> list[int]:
        number = self._numbers[consumer]
        return [ring_slot_of(f"{consumer.name}\0{number}\0{i}".encode()) for i in range(self._points_each)]

    def add(self, consumer: Consumer) -> None:
        """A consumer joins."""
        taken = {number for other, number in self._numbers.items() if other.name == consumer.name}
        self._numbers[consumer] = next(number for number in count() if number not in taken)
        for point in self._points_of(consumer):
            self._consumers.setdefault(point, []).append(consumer)
        self._points = sorted(self._consumers)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves; one that is not there is gone already."""
        if consumer not in self._numbers:
            return
        for point in self._points_of(consumer):
            there = self._consumers[point]
            there.remove(consumer)
            if not there:
                del self._consumers[point]
        del self._numbers[consumer]
        self._points = sorted(self._consumers)

    def owner(self, slot: int) -> Consumer | None:
        """Returns the owner of a slot."""
        if not self._points:
            return None
        at = bisect_left(self._points, slot)
        return self._consumers[self._points[at % len(self._points)]][0]

    def ranges(self) -> list[tuple[int, int, Consumer]]:
        """Returns first slot, last slot and owner of each range, in order."""
        found: list[tuple[int, int, Consumer]] = []
        first = 1
        for last in (*self._points, SLOTS - 1):
            owner = self.owner(last)
            if owner is None or first > last:
                break
            if found and found[-1][2] is owner:
                found[-1] = (found[-1][0], last, owner)
            else:
                found.append((first, last, owner))
            first = last + 1
        return found


class AutoSplit:
    """Automatic division into one range each: a consumer that joins gets the lower half of the widest range."""

    slot_of = staticmethod(slot_of)

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._consumers: dict[int, Consumer] = {}  # by the last slot of a range

    def add(self, consumer: Consumer) -> None:
        """A consumer joins.

        Raises:
            Refusal: no range has two slots.
        """
        end = SLOTS
        if self._ends:
            width, widest = max(
                ((last - before, last) for before, last in zip([0, *self._ends], self._ends, strict=False)),
                key=lambda found: found[0],
            )
            if width <= 1:
                why = f"No more range can assigned to new consumer, assigned consumers {len(self._ends)}"
                raise Refusal(ErrorCode.CONSUMER_ASSIGN, why)
            end = widest - (width >> 1)
        insort(self._ends, end)
        self._consumers[end] = consumer

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves: the next range grows down over its own; before the end, the one below grows up."""
        end = next((last for last, owner in self._consumers.items() if owner is consumer), None)
        if end is None:
            return
        del self._consumers[end]
        self._ends.remove(end)
        if end == SLOTS and self._ends:
            self._consumers[end] = self._consumers.pop(self._ends[-1])
            self._ends[-1] = end

    def owner(self, slot: int) -> Consumer | None:
        """Returns the owner of a slot."""
        return self._consumers[self._ends[bisect_left(self._ends, slot)]] if self._ends else None

    def ranges(self) -> list[tuple[int, int, Consumer]]:
        """Returns first slot, last slot and owner of each range, in order, as Java numbers them."""
        firsts = [0, *(last + 1 for last in self._ends)]
        return [(first, last, self._consumers[last]) for first, last in zip(firsts, self._ends, strict=False)]


class Ranges:
    """Ranges that consumers chose."""

    slot_of = staticmethod(slot_of)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Consumer]] = []

    def add(self, consumer: Consumer) -> None:
        """A consumer joins.

        Raises:
            Refusal: no range, one that ends before it begins, or one that meets another.
        """
        wanted = [(r.start, r.end) for r in consumer.key_shared.hashRanges]
        if not wanted:
            raise Refusal(ErrorCode.CONSUMER_ASSIGN, "Ranges for KeyShared policy must not be empty.")
        wanted.sort(key=lambda one: one[0])
        for k, (start, end) in enumerate(wanted):
            shown = f"[{start},{end}]"
            if start > end:
                raise Refusal(ErrorCode.CONSUMER_ASSIGN, f"Fixed hash range start > end for range: {shown}")
            if k + 1 < len(wanted) and wanted[k + 1][0] <= end:
                other = f"[{wanted[k + 1][0]},{wanted[k + 1][1]}]"
                why = f"Consumer's own ranges conflict: {shown} overlaps with {other}"
                raise Refusal(ErrorCode.CONSUMER_ASSIGN, why)
        for start, end in wanted:
            if any(start <= e and s <= end for s, e, _ in self._ranges):
                raise Refusal(ErrorCode.CONSUMER_ASSIGN, f"Range conflict with consumer: [{start},{end}]")
        self._ranges += [(start, end, consumer) for start, end in wanted]

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves."""
        self._ranges = [r for r in self._ranges if r[2] is not consumer]

    def owner(self, slot: int) -> Consumer | None:
        """Returns the owner of a slot; None if no consumer chose it."""
        return next((c for start, end, c in self._ranges if start <= slot <= end), None)

    def ranges(self) -> list[tuple[int, int, Consumer]]:
        """Returns first slot, last slot and owner of each range, in order."""
        return sorted(self._ranges, key=lambda r: r[0])

    def hold(self, entry: bytes) -> bool:
        """True if a consumer chose the slot of an entry."""
        return self.owner(entry_slot(metadata_of(entry), self)) is not None


Division: TypeAlias = Ring | AutoSplit | Ranges


def new_division(rules: TopicRules, *, sticky: bool) -> Division:
    """A division of the slots without consumers: in sticky mode, by a ring, or into one range each."""
    if sticky:
        return Ranges()
    return Ring(rules.ring_points) if rules.consistent_hashing else AutoSplit()


def metadata_of(entry: bytes) -> Any:
    """The metadata of an entry; None if it is corrupt."""
    try:
        return decode_metadata(entry)
    except BadBytes:
        return None
