"""What Java's `bookkeeper shell` printed, as rows to compare with."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.golden import Golden

_FRAME = re.compile(
    r"-+ Lid=(-?\d+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+) -+\n"
    r"Type: +(\w+)\n(?:LastConfirmed: +(-?\d+))?"
)
_SHARE = re.compile(r"-+ Lid=(\d+), TotalSizeOfEntriesOfLedger=(\d+) ")
_LOCATION = re.compile(r"entry (\d+)\t:\t\(log: ?(\d+), pos: (\d+)\)")


class Frame(NamedTuple):
    """A frame as readlog and readjournal print it; they count offsets from the 4-byte size, we from behind it."""

    ledger_id: int
    entry_id: int
    offset: int
    size: int
    last_confirmed: int | None


def frames(golden: Golden, name: str) -> list[Frame]:
    """The frames of readlog or readjournal.

    Only entries have a last confirmed; of an explicit-LAC record Java's shell prints other bytes as one.
    """
    found = []
    for ledger_id, entry_id, offset, size, kind, confirmed in _FRAME.findall(golden.shell_output(name)):
        last_confirmed = int(confirmed) if kind == "DATA" and int(entry_id) >= 0 else None
        found.append(Frame(int(ledger_id), int(entry_id), int(offset) + 4, int(size), last_confirmed))
    assert found
    return found


def shares(golden: Golden, name: str) -> dict[int, int]:
    """Ledger → bytes as readlogmetadata prints them, in no order."""
    return {int(ledger_id): int(size) for ledger_id, size in _SHARE.findall(golden.shell_output(name))}


def locations(golden: Golden, name: str) -> list[tuple[int, int, int]]:
    """(entry id, log id, offset) as `ledger` prints them."""
    return [(int(e), int(log), int(offset)) for e, log, offset in _LOCATION.findall(golden.shell_output(name))]
