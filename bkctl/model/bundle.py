"""Bundles: a namespace's hash space [0, 0xffffffff] split into ranges, each owned by one broker at a time.

The bundle of a topic follows from the CRC-32 of its full name; a bundle contains its lower boundary, the last one its
upper boundary too. Source: NamespaceBundles.java, NamespaceBundleFactory.java.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bkctl.errors import UsageError
from bkctl.model.topic import TopicName

HASH_MAX: Final = 0xFFFFFFFF
_RANGE: Final = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")


class Bundle(NamedTuple):
    """One range of a namespace's hash space; upper is exclusive unless it is HASH_MAX."""

    namespace: str
    lower: int
    upper: int

    @property
    def range(self) -> str:
        """0xLLLLLLLL_0xUUUUUUUU, as nodes and URLs name it."""
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"

    def holds(self, place: int) -> bool:
        """True if a place of the hash space is in this range."""
        return self.lower <= place < self.upper or self.upper == place == HASH_MAX


def hash_of(topic: str) -> int:
    """The hash of a topic (its full name, with the partition)."""
    return zlib.crc32(topic.encode())


def inside(topic: TopicName, bundle: Bundle) -> bool:
    """True if a topic belongs to a bundle of its namespace."""
    return bundle.holds(hash_of(str(topic)))


def parse_range(namespace: str, text: str) -> Bundle:
    """Reads 0xLLLLLLLL_0xUUUUUUUU.

    Raises:
        UsageError: it is not a bundle.
    """
    match = _RANGE.fullmatch(text)
    if match is None or int(match[1], 16) >= int(match[2], 16):
        raise UsageError(f"{text!r} is not a valid bundle", hint="0x00000000_0x40000000")
    return Bundle(namespace, int(match[1], 16), int(match[2], 16))


@dataclass(frozen=True, slots=True)
class Bundles:
    """The bundles of a namespace; boundaries go from 0 to HASH_MAX."""

    namespace: str
    boundaries: tuple[int, ...]

    def __post_init__(self) -> None:
        ends = self.boundaries
        if len(ends) < 2 or ends[0] != 0 or ends[-1] != HASH_MAX or list(ends) != sorted(set(ends)):
            raise UsageError(f"bundles of {self.namespace}: {self.texts(ends)} are not valid boundaries")

    @classmethod
    def even(cls, namespace: str, count: int) -> Bundles:
        """Bundles of equal size."""
        if count < 1:
            raise UsageError(f"{count} bundles are too few")
        step = (HASH_MAX + 1) // count
        return cls(namespace, (*(i * step for i in range(count)), HASH_MAX))

    @classmethod
    def parse(cls, namespace: str, texts: Sequence[str]) -> Bundles:
        """From the texts of a policies node.

        Raises:
            UsageError: they are not valid boundaries.
        """
        try:
            return cls(namespace, tuple(int(text, 16) for text in texts))
        except ValueError:
            raise UsageError(f"bundles of {namespace}: {list(texts)} are not valid boundaries") from None

    @staticmethod
    def texts(boundaries: Sequence[int]) -> list[str]:
        """Boundaries as nodes have them."""
        return [f"0x{boundary:08x}" for boundary in boundaries]

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def all(self) -> list[Bundle]:
        """Every bundle, ascending."""
        ends = self.boundaries
        return [Bundle(self.namespace, ends[i], ends[i + 1]) for i in range(len(ends) - 1)]

    def of(self, topic: str) -> Bundle:
        """The bundle of a topic, by its full name."""
        return self.at(hash_of(topic))

    def at(self, place: int) -> Bundle:
        """The bundle of a hash."""
        index = min(bisect_right(self.boundaries, place) - 1, len(self) - 1)
        return Bundle(self.namespace, self.boundaries[index], self.boundaries[index + 1])

    def split(self, bundle: Bundle, at: Sequence[int] = ()) -> Bundles:
        """The same with one bundle split, into halves unless positions inside it are given.

        Raises:
            UsageError: it is not one of them, or too small, or a position is not inside.
        """
        if bundle not in self.all():
            raise UsageError(f"{bundle} is not a bundle of {self.namespace}")
        places = at or (bundle.lower + (bundle.upper - bundle.lower) // 2,)
        for place in places:
            if not bundle.lower < place < bundle.upper:
                raise UsageError(f"{bundle} is too small to be split" if not at else f"{place:#x} is not in {bundle}")
        return Bundles(self.namespace, tuple(sorted({*self.boundaries, *places})))
