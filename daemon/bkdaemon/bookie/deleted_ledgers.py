"""Whether the ledgers of an entry log are deleted, as the metadata store says, before the log is removed or compacted.

A ledger that the index of this bookie does not know may be deleted, or its index row may be lost. Only a store that is
up to date and says that there is no such ledger decides; a log with any other ledger is kept, and logged once.
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
    from bkdaemon.bookie.closed_logs import ClosedLog

logger = logging.getLogger(__name__)

ASK_BATCH: Final = 1000
ASKED_MAX: Final = (
    100_000  # ledgers in a round, beside those of one log; the logs that are left wait for the next round
)
KEPT_REMEMBERED_MAX: Final = 100_000


class Catalogue(Protocol):
    """The ledgers of the cluster, as metadata has them. Every doubt is a BkctlError."""

    def ids(self) -> AsyncIterator[list[Any]]:
        """All ledger ids, in pieces."""

    async def gone(self, ledger_ids: list[int]) -> set[int]:
        """Those of the given ids for which metadata says, now and for sure, that there is no such ledger."""


class DeletedLedgers:
    """The answers of the metadata store that outlive a round: the logs that are kept, each with a ledger that exists.

    Attributes:
        kept: (directory number, log id) → a ledger that keeps it.
    """

    def __init__(self, bookie: Bookie, catalogue: Catalogue) -> None:
        self.bookie = bookie
        self.catalogue = catalogue
        self.kept: dict[tuple[int, int], int] = {}

    def round(self, gone: Iterable[int] = ()) -> Round:
        """The checks of one garbage collection or compaction; gone: ledgers that were found to be deleted just now."""
        return Round(self, set(gone))

    def forget_all_but(self, logs: Iterable[tuple[int, int]]) -> None:
        """Forgets the logs that are not there any more."""
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
    """The checks of one garbage collection or compaction: what was asked once in it is not asked again."""

    def __init__(self, ledgers: DeletedLedgers, gone: set[int]) -> None:
        self._ledgers = ledgers
        self._gone = gone
        self._asked = 0

    async def allows(self, log: ClosedLog) -> bool:
        """True if the metadata store says that every ledger of the log that the index does not know is deleted.

        False as well for a log whose turn comes in a later round.

        Raises:
            BkctlError: the store does not answer, or is another cluster's now.
        """
        storage, kept = self._ledgers.bookie.storage, self._ledgers.kept
        unknown = [i for i in log.contents.ids if i not in storage and i not in self._gone]
        if unknown and self._asked >= ASKED_MAX:
            return False
        keeper = kept.get(log.key)
        if keeper is not None and keeper in unknown:  # one read decides, as long as that ledger exists
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
            gone = await self._ledgers.catalogue.gone(ledger_ids)
        except UsageError as e:  # no node can have such an id: nothing can be known of it
            self._ledgers.keep(log, ledger_ids[0], f"and the metadata store cannot be asked: {e}")
            return False
        self._gone |= gone
        there = next((i for i in ledger_ids if i not in gone), None)
        if there is not None:
            self._ledgers.keep(log, there, "but exists in the metadata store; compare them: bkctl index check")
        return there is None
