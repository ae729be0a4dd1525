"""The catalog of closed entry logs: the ledgers in each, and the removal of logs.

Garbage collection and compaction use it. The contents of a log do not change, so they are read once; whether it may be
removed is decided again each time. While a reader outside the bookie follows rows of the index into the logs (`held`),
a log that has bytes of existing ledgers is kept, although its entries have moved.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bkctl.errors import BadBytes
from bkctl.world import run_in

if TYPE_CHECKING:
    from bkctl.world import Worker
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.storage import Shard

logger = logging.getLogger(__name__)

LEDGERS_REMEMBERED_MAX: Final = 5_000_000  # 16 bytes each, of all logs; other logs are read in every cycle
UNREADABLE_LOGGED_MAX: Final = 10_000


class Contents:
    """The ledgers that have entries in a log, and their bytes."""

    __slots__ = ("ids", "sizes")

    def __init__(self, sizes: dict[int, int]) -> None:
        self.ids = array("q", sizes)
        self.sizes = array("q", sizes.values())

    def living(self, ledgers: Container[int]) -> list[int]:
        """Returns the ledgers that exist."""
        return [ledger_id for ledger_id in self.ids if ledger_id in ledgers]

    def weigh(self, ledgers: Container[int]) -> tuple[int, int]:
        """Returns (bytes of existing ledgers, bytes of all ledgers)."""
        pairs = zip(self.ids, self.sizes, strict=True)
        return sum(size for ledger_id, size in pairs if ledger_id in ledgers), sum(self.sizes)


@dataclass(frozen=True, slots=True)
class ClosedLog:
    """A closed log: the number of its directory, its id, its contents."""

    number: int
    shard: Shard
    log_id: int
    contents: Contents

    @property
    def key(self) -> tuple[int, int]:
        """Its identifier among all logs of the bookie."""
        return self.number, self.log_id


class EntryLogCatalog:
    """The closed logs of all ledger directories.

    Attributes:
        count, bytes: of the logs that the last scan() found, without logs removed since.
    """

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self._worker: Worker = bookie.world.worker("gc")
        self._known: dict[tuple[int, int], Contents] = {}
        self._known_ledgers = 0
        self._emptied: set[tuple[int, int]] = set()
        self._unreadable: set[tuple[int, int]] = set()
        self._holds = 0
        self._lock = threading.Lock()
        self.count = self.bytes = 0

    def close(self) -> None:
        """Closes the catalog after running work has ended."""
        self._worker.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps every log that has entries of existing ledgers, for a reader of index rows; any thread."""
        with self._lock:
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1

    async def scan(self) -> list[ClosedLog]:
        """Returns all readable closed logs; unreadable ones are kept, and logged once."""
        found: list[ClosedLog] = []
        size = 0
        for number, shard in enumerate(self._bookie.storage.shards()):
            for log_id in await run_in(self._worker, shard.logs.closed_ids):
                contents = await self._contents(number, shard, log_id)
                if contents is not None:
                    found.append(ClosedLog(number, shard, log_id, contents))
                    size += sum(contents.sizes)
        self.count, self.bytes = len(found), size
        present = {log.key for log in found}
        self._emptied &= present
        return found

    def dead(self, log: ClosedLog) -> bool:
        """Returns True if no row of the index points into the log: its ledgers do not exist, or its entries have moved.

        It may be removed only if its other ledgers are deleted in metadata (deleted_ledgers.py).
        """
        return log.key in self._emptied or not log.contents.living(self._bookie.storage)

    def emptied(self, log: ClosedLog) -> None:
        """Notes that no row of the index points into the log any more."""
        self._emptied.add(log.key)

    async def remove(self, log: ClosedLog) -> int | None:
        """Removes a dead log; returns its bytes, or None if it is kept for now or was removed already."""
        if log.key in self._emptied and self._holds:
            return None
        try:
            size = await run_in(self._worker, lambda: log.shard.logs.remove(log.log_id))
        except FileNotFoundError:
            return None
        self._emptied.discard(log.key)
        if self._known.pop(log.key, None) is not None:
            self._known_ledgers -= len(log.contents.ids)
        self.count, self.bytes = self.count - 1, self.bytes - sum(log.contents.sizes)
        return size

    async def _contents(self, number: int, shard: Shard, log_id: int) -> Contents | None:
        known = self._known.get((number, log_id))
        if known is not None:
            return known
        try:
            contents = Contents(await run_in(self._worker, lambda: shard.logs.ledgers_in(log_id)))
        except FileNotFoundError:
            return None  # removed by the flush that created it
        except (BadBytes, OSError) as e:
            if (number, log_id) not in self._unreadable and len(self._unreadable) < UNREADABLE_LOGGED_MAX:
                self._unreadable.add((number, log_id))
                logger.warning("cannot read an entry log; keeping it: %s", e)
            return None
        if (number, log_id) not in self._known and self._known_ledgers + len(contents.ids) <= LEDGERS_REMEMBERED_MAX:
            self._known[number, log_id] = contents
            self._known_ledgers += len(contents.ids)
        return contents
