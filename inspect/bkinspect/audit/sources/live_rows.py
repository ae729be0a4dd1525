"""Types that the readers of running bookies share: the table, the ledgers to read, and rows for failed reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bkinspect.audit.schemas import Table
from bkinspect.audit.sources.base import batch_of
from bkinspect.audit.sources.scan import SCAN

if TYPE_CHECKING:
    import pyarrow as pa

COPIES: Final = Table("copies", "What running bookies hold: a scan without files and offsets.", SCAN.columns)
UNREAD: Final = "_unread"
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A ledger to read.

    digest: (type, password), None if not known; bookies: those that should hold copies; entry_size: the estimated
    bytes of an entry; fragments: (first entry, last entry or None if not known, bookies) of each.
    """

    ledger_id: int
    digest: tuple[str, bytes] | None
    bookies: tuple[str, ...]
    entry_size: int
    fragments: tuple[tuple[int, int | None, tuple[str, ...]], ...] = ()
    write_quorum_size: int = 1

    def expected(self, bookie: str, newest: int) -> Iterator[int]:
        """Yields the entries that belong on a bookie; a fragment without a known end is taken to end with `newest`."""
        for first, last, bookies in self.fragments:
            places = [index for index, name in enumerate(bookies) if name == bookie]
            if places:
                size, quorum = len(bookies), self.write_quorum_size
                held = [any((index - turn) % size < quorum for index in places) for turn in range(size)]
                end = (newest if last is None else last) + 1
                yield from (entry_id for entry_id in range(first, end) if held[entry_id % size])


def unread(bookie: str, what: str, status: int, ledger_id: int | None = None) -> pa.RecordBatch:
    """Returns a row of kind `_unread`, for a request that failed.

    Args:
        what: the request. status: the status of the reply.
    """
    values = {"ledger_id": ledger_id, "bookie_id": bookie, "source": "live", "kind": UNREAD}
    values["note"] = json.dumps({"status": status, "what": what})
    return batch_of(COPIES, [tuple(values.get(name) for name in COPIES.names)])
