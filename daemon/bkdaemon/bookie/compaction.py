"""Compaction: live entries of an entry log with mostly dead bytes move to the newest log, and the log is removed.

    1  candidates     closed logs of which less than a threshold of the bytes belongs to existing ledgers, the log with
                      most dead bytes first. The other ledgers must be deleted in metadata (deleted_ledgers.py), else
                      the log is kept
    2  live entries   the rows of those ledgers that point into the log, a slice at a time: rows decide, not frames
    3  move           the entries are appended to the newest log, synced; then their rows are replaced, synced
    4  remove         the log, when no row of its ledgers points into it any more

2 and 3 are one task of the flush worker, so that no row changes between them. A crash before 4 leaves a log with fewer
live entries; entries that were appended without a row are dead. A log with an unreadable entry is kept. Minor
compactions are frequent and compact the emptiest logs, major ones are rare and thorough.
Source: EntryLogCompactor.java, AbstractLogCompactor.java (Throttler), GarbageCollectorThread.java, and
SingleDirectoryDbLedgerStorage.java (updateEntriesLocations).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bkctl.codec.entry_log import split_location
from bkctl.codec.ledger_index import decode_location_rows
from bkctl.errors import BadBytes, NotFound
from bkdaemon.bookie.disks import used

if TYPE_CHECKING:
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.deleted_ledgers import DeletedLedgers
    from bkdaemon.bookie.entry_log_catalog import ClosedLog, EntryLogCatalog
    from bkdaemon.bookie.storage import Shard

logger = logging.getLogger(__name__)

SLICE_ROWS: Final = 4096  # rows of the index that one task reads
SLICE_BYTES: Final = 4 << 20  # bytes of entries that one task moves: a flush waits for no more than these
FAILURES: Final = frozenset({"starting", "stopping", "journal", "storage"})
FULL: Final = "disk"


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of compaction: logs of which less than `threshold` is live, every interval, for max_s at most."""

    name: str
    threshold: float
    interval_s: float
    max_s: float | None


MINOR: Final = "minor"
MAJOR: Final = "major"


def levels(config: BookieConfig) -> list[Level]:
    """Returns the enabled levels, whose threshold and interval are above 0; the major one first."""
    found = [
        _level(MAJOR, config.major_compaction_threshold, config.major_compaction_interval_s, config.major_max_ms),
        _level(MINOR, config.minor_compaction_threshold, config.minor_compaction_interval_s, config.minor_max_ms),
    ]
    return [level for level in found if level.threshold > 0 and level.interval_s > 0]


def _level(name: str, threshold: float, interval_s: int, max_ms: int) -> Level:
    return Level(name, threshold, interval_s, max_ms / 1000 if max_ms > 0 else None)


class Moved(NamedTuple):
    """The result of one task. after: the entry id to continue from, None at the end of the ledger."""

    entries: int
    bytes: int
    after: int | None


def move(shard: Shard, log_id: int, ledger_id: int, after: int) -> Moved:
    """Flush worker: moves entries of a ledger, from id `after` on, out of a log.

    Raises:
        BadBytes, NotFound: an entry cannot be read; nothing was moved.
        OSError: the disk failed; every row points to a whole entry, the old or the new one.
    """
    rows = decode_location_rows(shard.index.location_rows(ledger_id, after, SLICE_ROWS))
    entries: list[tuple[int, bytes]] = []
    size, next_id = 0, None
    for entry_id, location in rows:
        if size >= SLICE_BYTES:
            next_id = entry_id
            break
        if split_location(location)[0] == log_id:
            body = shard.logs.read(location, ledger_id, entry_id)
            entries.append((entry_id, body))
            size += len(body)
    else:
        next_id = rows[-1][0] + 1 if len(rows) == SLICE_ROWS else None
    if entries:
        batch = shard.index.batch()
        shard.logs.begin()
        try:
            shard.logs.append(ledger_id, entries, batch.put)
            shard.logs.sync()
        except BaseException:
            shard.logs.abandon()
            raise
        shard.index.commit(batch)  # if this fails, the appended entries stay: some rows may point to them
    return Moved(len(entries), size, next_id)


class Compactor:
    """Decides when a compaction is due, and runs it.

    Attributes:
        counts: completed compactions, by level.
        moved_bytes, reclaimed_bytes: of moved entries, of removed logs.
        running: the level that runs now, or None.
        paused: the levels that an operator has stopped; a compaction in progress continues.
        began_ms, ended_ms: when the compactor started; when each level last ended, initially the same.
    """

    def __init__(self, bookie: Bookie, logs: EntryLogCatalog, deleted: DeletedLedgers) -> None:
        self._bookie = bookie
        self._logs = logs
        self._deleted = deleted
        self._levels = levels(bookie.config)
        self._loop = asyncio.get_running_loop()
        self._ended = dict.fromkeys((MINOR, MAJOR), self._loop.time())
        self.counts = dict.fromkeys((MINOR, MAJOR), 0)
        self.moved_bytes = self.reclaimed_bytes = 0
        self.running: str | None = None
        self.paused: set[str] = set()
        self.began_ms = bookie.world.clock.now_ms()
        self.ended_ms = dict.fromkeys((MINOR, MAJOR), self.began_ms)

    def due(self, asked: frozenset[str] | None = None) -> Level | None:
        """Returns the level that is due, the major one if both are; None if none is.

        Args:
            asked: levels requested by an operator: one of them runs now, even if it is not due, or paused.
        """
        now = self._loop.time()
        for level in self._levels:
            if asked is not None:
                if level.name in asked and not self.suspended(level):
                    return level
                continue
            if level.name in self.paused:
                continue
            forced = level.name == MAJOR and self._runs_without_space() and self._almost_full()
            if (forced or now - self._ended[level.name] >= level.interval_s) and not self.suspended(level):
                return level
        return None

    def suspended(self, level: Level) -> bool:
        """Returns True while the bookie has failed, or a disk has too little space for the entries to move."""
        reasons = self._bookie.admission.reasons
        if not reasons.keys().isdisjoint(FAILURES):
            return True
        if self._runs_without_space():
            return False
        return FULL in reasons or (level.name == MAJOR and self._almost_full())

    async def run(self, level: Level) -> int:
        """Runs one compaction; returns the number of removed logs.

        Raises:
            OSError: a disk failed; entries that were moved stay moved.
            BkctlError: the metadata store does not report which ledgers are deleted; the remaining logs are kept.
        """
        self.running, started, gone = level.name, self._loop.time(), 0
        logger.info("%s compaction of logs with less than %.0f%% live bytes", level.name, 100 * level.threshold)
        try:
            deleted = self._deleted.round()
            for log in await self._candidates(level):
                late = level.max_s is not None and self._loop.time() - started > level.max_s
                if late or self.suspended(level):
                    logger.info(
                        "%s compaction stops: %s", level.name, "time limit reached" if late else "no disk space"
                    )
                    break
                if await deleted.allows(log) and await self._compact(log):
                    gone += 1
        finally:
            self.running = None
            for name in (MAJOR, MINOR) if level.name == MAJOR else (MINOR,):
                self._ended[name] = self._loop.time()
                self.ended_ms[name] = self._bookie.world.clock.now_ms()
        self.counts[level.name] += 1
        logger.info("%s compaction: removed %d entry logs", level.name, gone)
        return gone

    async def _candidates(self, level: Level) -> list[ClosedLog]:
        ledgers = self._bookie.storage
        weighed = [(log, *log.contents.weigh(ledgers)) for log in await self._logs.scan() if not self._logs.dead(log)]
        chosen = [(total - living, log) for log, living, total in weighed if living < level.threshold * total]
        return [log for _, log in sorted(chosen, key=lambda pair: (-pair[0], pair[1].key))]

    async def _compact(self, log: ClosedLog) -> bool:
        """Compacts a log; True if it is removed. A log with an unreadable entry is kept, and one that is being read."""
        try:
            for ledger_id in log.contents.living(self._bookie.storage):
                after: int | None = 0
                while after is not None:
                    after = await self._move(log, ledger_id, after)
        except (BadBytes, NotFound) as e:
            logger.warning("cannot read an entry; keeping its entry log: %s", e)
            return False
        self._logs.emptied(log)
        size = await self._logs.remove(log)
        self.reclaimed_bytes += size or 0
        return size is not None

    async def _move(self, log: ClosedLog, ledger_id: int, after: int) -> int | None:
        """Runs one task and pauses for the configured rate, at least for as long as the task took.

        So a scan of the rows of a huge ledger, few of which point into the log, uses at most half of a worker.
        """
        config, started = self._bookie.config, self._loop.time()
        moved = await self._bookie.between_flushes(lambda: move(log.shard, log.log_id, ledger_id, after))
        took_s = self._loop.time() - started
        self.moved_bytes += moved.bytes
        if config.throttle_by_bytes:
            due_s = moved.bytes / config.compaction_rate_bytes
        else:
            due_s = moved.entries / config.compaction_rate_entries
        await asyncio.sleep(max(took_s, due_s - took_s))
        return moved.after

    def _almost_full(self) -> bool:
        """Returns True if the disk of a ledger directory is full or nearly full, as for isForceGCAllowWhenNoSpace."""
        config, disk = self._bookie.config, self._bookie.world.disk
        usages = (disk.usage(Path(directory)) for directory in config.ledger_dirs)
        return FULL in self._bookie.admission.reasons or any(used(u) > config.disk_usage_warn_threshold for u in usages)

    def _runs_without_space(self) -> bool:
        return self._bookie.config.force_gc_when_no_space
