"""Entry logs that are written no more: what is in each, and their removal.

Garbage collection and compaction both ask here. What is in a log does not change, so it is read once; whether it may
go is asked again each time. While a reader outside the bookie follows rows of the index into the logs (`held`), a log
that still has bytes of living ledgers stays, though its entries have moved.
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

LEDGERS_REMEMBERED_MAX: Final = 5_000_000  # 16 bytes each, over all logs; beyond that logs are read again every cycle
UNREADABLE_LOGGED_MAX: Final = 10_000


class Contents:
    """The ledgers that have entries in a log, and how many bytes each."""

    __slots__ = ("ids", "sizes")

    def __init__(self, sizes: dict[int, int]) -> None:
        self.ids = array("q", sizes)
        self.sizes = array("q", sizes.values())

    def living(self, ledgers: Container[int]) -> list[int]:
        """The ledgers that are still there."""
        return [ledger_id for ledger_id in self.ids if ledger_id in ledgers]

    def weigh(self, ledgers: Container[int]) -> tuple[int, int]:
        """(bytes of ledgers that are still there, bytes of all)."""
        pairs = zip(self.ids, self.sizes, strict=True)
        return sum(size for ledger_id, size in pairs if ledger_id in ledgers), sum(self.sizes)


@dataclass(frozen=True, slots=True)
class ClosedLog:
    """One log: its directory by number, its id, what is in it."""

    number: int
    shard: Shard
    log_id: int
    contents: Contents

    @property
    def key(self) -> tuple[int, int]:
        """What names it among all logs of the bookie."""
        return self.number, self.log_id


class ClosedLogs:
    """The closed logs of all ledger directories.

    Attributes:
        count, bytes: of the logs that scan() found last, without those that were removed since.
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
        """What is under way ends first."""
        self._worker.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Rows that are read in here lead to entries until the end, whatever a compaction moves; any thread."""
        with self._lock:
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1

    async def scan(self) -> list[ClosedLog]:
        """All closed logs that can be read; the others stay for ever, with a warning the first time."""
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
        """True if no row of the index leads into the log: none of its ledgers is here, or its entries have moved.

        It may be removed only where metadata says that its other ledgers are deleted (deleted_ledgers.py).
        """
        return log.key in self._emptied or not log.contents.living(self._bookie.storage)

    def emptied(self, log: ClosedLog) -> None:
        """No row of the index points into the log any more."""
        self._emptied.add(log.key)

    async def remove(self, log: ClosedLog) -> int | None:
        """Removes a dead log; its bytes, or None where it stays for now, or was removed already."""
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
            return None  # the flush that began it took it back
        except (BadBytes, OSError) as e:
            if (number, log_id) not in self._unreadable and len(self._unreadable) < UNREADABLE_LOGGED_MAX:
                self._unreadable.add((number, log_id))
                logger.warning("cannot read an entry log; keeping it: %s", e)
            return None
        if (number, log_id) not in self._known and self._known_ledgers + len(contents.ids) <= LEDGERS_REMEMBERED_MAX:
            self._known[number, log_id] = contents
            self._known_ledgers += len(contents.ids)
        return contents
