"""Which entries of a ledger a bookie has: the ids, packed in groups of runs.

    offset    size  type   meaning
    0         4     i32    version, 0
    4         4     i32    number of groups
    8         56           zeros
    64 + 24k  8     i64    group k: start of its first run
              8     i64             start of its last run
              4     i32             size of a run
              4     i32             distance between starts, 0 where there is one run

A group stands for the runs [s, s + size) for s = first, first + period, …, last. Groups ascend by their first run.
Java's encoder makes a group of each run and never merges; a reader takes both.
Source: AvailabilityOfEntriesOfLedger.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from bkctl.errors import Corrupt

HEADER_SIZE: Final = 64
VERSION: Final = 0
_HEADER: Final = struct.Struct(">ii")
_GROUP: Final = struct.Struct(
    ">q"  # start of the first run
    "q"  # start of the last run
    "i"  # size of a run
    "i"  # period
)
_RUN_SIZE_MAX: Final = 2**31 - 1


def encode(entry_ids: Iterable[int]) -> bytes:
    """Packs ascending ids as Java does, a group for each run."""
    groups = [_GROUP.pack(first, first, size, 0) for first, size in _runs_of(entry_ids)]
    return b"".join((_HEADER.pack(VERSION, len(groups)), bytes(HEADER_SIZE - _HEADER.size), *groups))


def _runs_of(entry_ids: Iterable[int]) -> Iterable[tuple[int, int]]:
    first, size = 0, 0
    for entry in entry_ids:
        if size and entry == first + size - 1:
            continue
        if size and entry == first + size and size < _RUN_SIZE_MAX:
            size += 1
            continue
        if size:
            yield first, size
        first, size = entry, 1
    if size:
        yield first, size


def decode(data: bytes, *, source: str = "availability") -> list[range]:
    """The runs of entry ids, ascending.

    Raises:
        Corrupt: too short, a later version, or a group that makes no sense.
    """
    if len(data) < HEADER_SIZE:
        raise Corrupt("too short", source=source, offset=0, expected=f"{HEADER_SIZE} bytes", found=len(data))
    version, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise Corrupt("version", source=source, offset=0, expected=VERSION, found=version)
    if count < 0 or len(data) != HEADER_SIZE + count * _GROUP.size:
        expected = f"{HEADER_SIZE} + {count} groups of {_GROUP.size} bytes"
        raise Corrupt("number of groups", source=source, offset=4, expected=expected, found=len(data))
    runs: list[range] = []
    for index, (first, last, size, period) in enumerate(_GROUP.iter_unpack(data[HEADER_SIZE:])):
        offset = HEADER_SIZE + index * _GROUP.size
        sane = size > 0 and (first == last if period == 0 else period >= size and (last - first) % period == 0)
        if not sane or last < first or (runs and first < runs[-1].stop):
            found = (first, last, size, period)
            raise Corrupt("group", source=source, offset=offset, expected="ascending runs", found=found)
        if period and (last - first) // period >= _RUNS_MAX:
            raise Corrupt("group", source=source, offset=offset, expected=f"<= {_RUNS_MAX} runs", found=last - first)
        runs.extend(range(start, start + size) for start in range(first, last + 1, period or 1))
    return runs


_RUNS_MAX: Final = 10_000_000
"""Maximum runs in one group of a valid reply: a frame of 5 MB holds 200,000 groups."""
