"""Entry logs for tests of compaction: a ledger that is deleted, and one that stays, in the same logs."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.bookie.compaction import MAJOR, Compactor, Level
from bkdaemon.bookie.deleted_ledgers import DeletedLedgers
from bkdaemon.bookie.entry_log_catalog import EntryLogCatalog
from bkdaemon.bookie.service import LedgerCatalog

from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.unit.daemon.bookie.world import Calls, entry

LEVEL = Level(MAJOR, 0.8, 1.0, None)
DEAD, ALIVE, SPREAD = 5, 6, 7
BODY = bytes(1000)
FAST = {"log_size_limit": 20_000, "compaction_rate_by_entries": 1_000_000}


class Tools:
    """A compactor of a running bookie, as garbage collection makes one."""

    def __init__(self, calls: Calls) -> None:
        self.bookie = calls.bookie
        self.logs = EntryLogCatalog(calls.bookie)
        self.store = MemoryStore(MemoryTree())

    async def __aenter__(self) -> Tools:
        instance_id = await init_cluster(self.store, "/ledgers")
        self.ledgers = await open_ledgers(self.store, "/ledgers", write=True)
        self.deleted = DeletedLedgers(self.bookie, LedgerCatalog(self.ledgers, instance_id))
        self.compactor = Compactor(self.bookie, self.logs, self.deleted)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.logs.close()

    def names(self) -> set[str]:
        """The entry logs on disk."""
        disk, directory = self.bookie.world.disk, Path(self.bookie.config.ledger_dirs[0]) / "current"
        return {name for name in disk.names(directory) if name.endswith(".log")}


async def half_dead(calls: Calls) -> None:
    """Logs with two dead entries out of three, then one log that nothing needs."""
    for first in range(0, 30, 10):
        await calls.add(DEAD, range(2 * first, 2 * first + 20), payload=BODY)
        await calls.add(ALIVE, range(first, first + 10), payload=BODY)
        await calls.bookie.flush()
    await calls.bookie.delete([DEAD])


def entry_of(entry_id: int) -> bytes:
    """An entry that half_dead() stored."""
    return entry(ALIVE, entry_id, BODY)
