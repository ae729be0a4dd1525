"""Checks in the metadata store that ledgers are deleted, before their entry log is removed or compacted.

A ledger that the index of this bookie does not know may be deleted, or its index row may be lost. It counts as deleted
only if an up-to-date store reports that it does not exist; a log with any other ledger is kept, and logged once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from bkctl.codec.data_dir import CURRENT
from bkctl.codec.entry_log import log_name
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.entry_log_catalog import ClosedLog

logger = logging.getLogger(__name__)

ASK_BATCH: Final = 1000
ASKED_MAX: Final = (
    100_000  # ledgers in a round, beside those of one log; the remaining logs are checked in the next round
)
KEPT_REMEMBERED_MAX: Final = 100_000


class Catalog(Protocol):
    """The ledgers of the cluster in metadata. It raises a BkctlError in any case of doubt."""

    def ids(self) -> AsyncIterator[list[Any]]:
        """Yields all ledger ids, in pieces."""

    async def gone(self, ledger_ids: list[int]) -> set[int]:
        """Returns those of the given ids that do not exist in up-to-date metadata."""


class DeletedLedgers:
    """The replies of the metadata store that are kept between rounds: each kept log, with a ledger that exists.

    Attributes:
        kept: (directory number, log id) → a ledger because of which it is kept.
    """

    def __init__(self, bookie: Bookie, catalog: Catalog) -> None:
        self.bookie = bookie
        self.catalog = catalog
        self.kept: dict[tuple[int, int], int] = {}

    def round(self, gone: Iterable[int] = ()) -> Round:
        """Starts the checks of one garbage collection or compaction; gone: ledgers that are known to be deleted."""
        return Round(self, set(gone))

    def forget_all_but(self, logs: Iterable[tuple[int, int]]) -> None:
        """Forgets logs that do not exist any more."""
        present = set(logs)
        for key in self.kept.keys() - present:
            del self.kept[key]

    def keep(self, log: ClosedLog, ledger_id: int, why: str) -> None:
        """Remembers and logs that a log is kept."""
        if log.key in self.kept:
            self.kept[log.key] = ledger_id
            return
        if len(self.kept) >= KEPT_REMEMBERED_MAX:
            self.kept.clear()
        self.kept[log.key] = ledger_id
        path = Path(self.bookie.config.ledger_dirs[log.number]) / CURRENT / log_name(log.log_id)
        logger.warning("keeping entry log %s: ledger %d is not in this bookie's index, %s", path, ledger_id, why)


class Round:
    """The checks of one garbage collection or compaction: no ledger is checked twice."""

    def __init__(self, ledgers: DeletedLedgers, gone: set[int]) -> None:
        self._ledgers = ledgers
        self._gone = gone
        self._asked = 0

    async def allows(self, log: ClosedLog) -> bool:
        """Returns True if every ledger of the log that the index does not know is deleted in the metadata store.

        False also for a log that is checked in a later round.

        Raises:
            BkctlError: the store does not answer, or belongs to another cluster now.
        """
        storage, kept = self._ledgers.bookie.storage, self._ledgers.kept
        unknown = [i for i in log.contents.ids if i not in storage and i not in self._gone]
        if unknown and self._asked >= ASKED_MAX:
            return False
        keeper = kept.get(log.key)
        if keeper is not None and keeper in unknown:  # one read is enough while that ledger exists
            unknown.remove(keeper)
            if not await self._ask(log, [keeper]):
                return False
        for start in range(0, len(unknown), ASK_BATCH):
            if not await self._ask(log, unknown[start : start + ASK_BATCH]):
                return False
        kept.pop(log.key, None)
        return True

    async def _ask(self, log: ClosedLog, ledger_ids: list[int]) -> bool:
        self._asked += len(ledger_ids)
        try:
            gone = await self._ledgers.catalog.gone(ledger_ids)
        except UsageError as e:  # no node can have such an id: its state is unknown
            self._ledgers.keep(log, ledger_ids[0], f"and the metadata store cannot be asked: {e}")
            return False
        self._gone |= gone
        there = next((i for i in ledger_ids if i not in gone), None)
        if there is not None:
            self._ledgers.keep(log, there, "but exists in the metadata store; compare them: bkctl index check")
        return there is None
