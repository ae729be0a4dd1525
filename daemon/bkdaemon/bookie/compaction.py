"""Compaction: what still lives in an entry log of mostly dead bytes moves to the newest log, and the log goes.

    1  which logs     closed, and less than a threshold of their bytes belongs to ledgers that are here; most dead
                      first. The other ledgers must be deleted in metadata (deleted_ledgers.py), else the log is kept
    2  what lives     the rows of those ledgers that point into the log, a slice at a time: a row counts, not a frame
    3  move           the entries are appended to the newest log, synced; then their rows are replaced, synced
    4  remove         the log, when no row of its ledgers is left that points into it

2 and 3 are one piece of work for the worker that flushes, so that no row changes between them. A crash before 4 leaves
a log in which less lives than before; what was appended without a row is as dead as the rest. An entry that cannot be
read keeps its log. Minor compactions are frequent and take the emptiest logs, major ones rare and thorough.
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
    from bkdaemon.bookie.closed_logs import ClosedLog, ClosedLogs
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.deleted_ledgers import DeletedLedgers
    from bkdaemon.bookie.storage import Shard

logger = logging.getLogger(__name__)

SLICE_ROWS: Final = 4096  # of the index that one piece of work looks at
SLICE_BYTES: Final = 4 << 20  # of entries that one piece of work moves: a flush waits no longer than for these
TROUBLE: Final = frozenset({"starting", "stopping", "journal", "storage"})
FULL: Final = "disk"


@dataclass(frozen=True, slots=True)
class Level:
    """How thorough a compaction is: logs of which less than `threshold` lives, every interval, for max_s at most."""

    name: str
    threshold: float
    interval_s: float
    max_s: float | None


MINOR: Final = "minor"
MAJOR: Final = "major"


def levels(config: BookieConfig) -> list[Level]:
    """The levels that are switched on: a threshold and an interval above 0; the thorough one first."""
    found = [
        _level(MAJOR, config.major_compaction_threshold, config.major_compaction_interval_s, config.major_max_ms),
        _level(MINOR, config.minor_compaction_threshold, config.minor_compaction_interval_s, config.minor_max_ms),
    ]
    return [level for level in found if level.threshold > 0 and level.interval_s > 0]


def _level(name: str, threshold: float, interval_s: int, max_ms: int) -> Level:
    return Level(name, threshold, interval_s, max_ms / 1000 if max_ms > 0 else None)


class Moved(NamedTuple):
    """What one piece of work did. after: the entry id to go on from, None at the end of the ledger."""

    entries: int
    bytes: int
    after: int | None


def move(shard: Shard, log_id: int, ledger_id: int, after: int) -> Moved:
    """Worker, the one that flushes: moves entries of a ledger, from id `after` on, out of a log.

    Raises:
        BadBytes, NotFound: an entry cannot be read; nothing was moved.
        OSError: the disk refuses; every row points to a whole entry, the old or the new one.
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
        shard.index.commit(batch)  # where this fails, what was appended stays: some rows may point there
    return Moved(len(entries), size, next_id)


class Compactor:
    """Decides when a compaction is due, and runs it.

    Attributes:
        counts: compactions that ended, by level.
        moved_bytes, reclaimed_bytes: of entries that moved, of logs that went.
        under_way: the level that runs now, or None.
        paused: the levels that an operator has stopped; a compaction in progress continues.
        began_ms, ended_ms: when this began; when each level last ended, at first the same.
    """

    def __init__(self, bookie: Bookie, logs: ClosedLogs, deleted: DeletedLedgers) -> None:
        self._bookie = bookie
        self._logs = logs
        self._deleted = deleted
        self._levels = levels(bookie.config)
        self._loop = asyncio.get_running_loop()
        self._ended = dict.fromkeys((MINOR, MAJOR), self._loop.time())
        self.counts = dict.fromkeys((MINOR, MAJOR), 0)
        self.moved_bytes = self.reclaimed_bytes = 0
        self.under_way: str | None = None
        self.paused: set[str] = set()
        self.began_ms = bookie.world.clock.now_ms()
        self.ended_ms = dict.fromkeys((MINOR, MAJOR), self.began_ms)

    def due(self, asked: frozenset[str] | None = None) -> Level | None:
        """The level whose turn it is, if any: the thorough one, where both are due.

        Args:
            asked: by an operator: one of these levels now, due or not, paused or not.
        """
        now = self._loop.time()
        for level in self._levels:
            if asked is not None:
                if level.name in asked and not self.suspended(level):
                    return level
                continue
            if level.name in self.paused:
                continue
            forced = level.name == MAJOR and self._no_room_is_no_reason() and self._almost_full()
            if (forced or now - self._ended[level.name] >= level.interval_s) and not self.suspended(level):
                return level
        return None

    def suspended(self, level: Level) -> bool:
        """True while the bookie is in trouble, or a disk has too little room for what a compaction writes first."""
        reasons = self._bookie.gate.reasons
        if not reasons.keys().isdisjoint(TROUBLE):
            return True
        if self._no_room_is_no_reason():
            return False
        return FULL in reasons or (level.name == MAJOR and self._almost_full())

    async def run(self, level: Level) -> int:
        """One compaction; returns the number of logs that went.

        Raises:
            OSError: a disk refuses; what has moved has moved.
            BkctlError: the metadata store does not say what is deleted; the logs that are left stay as they are.
        """
        self.under_way, started, gone = level.name, self._loop.time(), 0
        logger.info("%s compaction: logs of which less than %.0f%% lives", level.name, 100 * level.threshold)
        try:
            deleted = self._deleted.round()
            for log in await self._candidates(level):
                late = level.max_s is not None and self._loop.time() - started > level.max_s
                if late or self.suspended(level):
                    logger.info("%s compaction ends early: %s", level.name, "its time is up" if late else "no room")
                    break
                if await deleted.allows(log) and await self._compact(log):
                    gone += 1
        finally:
            self.under_way = None
            for name in (MAJOR, MINOR) if level.name == MAJOR else (MINOR,):
                self._ended[name] = self._loop.time()
                self.ended_ms[name] = self._bookie.world.clock.now_ms()
        self.counts[level.name] += 1
        logger.info("%s compaction: %d entry logs went", level.name, gone)
        return gone

    async def _candidates(self, level: Level) -> list[ClosedLog]:
        ledgers = self._bookie.storage
        weighed = [(log, *log.contents.weigh(ledgers)) for log in await self._logs.scan() if not self._logs.dead(log)]
        chosen = [(total - living, log) for log, living, total in weighed if living < level.threshold * total]
        return [log for _, log in sorted(chosen, key=lambda pair: (-pair[0], pair[1].key))]

    async def _compact(self, log: ClosedLog) -> bool:
        """True if the log is deleted. A log with an unreadable entry stays, as does one that is being read."""
        try:
            for ledger_id in log.contents.living(self._bookie.storage):
                after: int | None = 0
                while after is not None:
                    after = await self._move(log, ledger_id, after)
        except (BadBytes, NotFound) as e:
            logger.warning("an entry log stays, with an entry that cannot be read: %s", e)
            return False
        self._logs.emptied(log)
        size = await self._logs.remove(log)
        self.reclaimed_bytes += size or 0
        return size is not None

    async def _move(self, log: ClosedLog, ledger_id: int, after: int) -> int | None:
        """One piece of work, and a pause: as the configured rate asks, and as long as the work at least.

        So a walk over the rows of a huge ledger, few of which point into the log, takes half of a worker and no more.
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
        """True if a ledger directory's disk is full, or nearly: as isForceGCAllowWhenNoSpace means it too."""
        config, disk = self._bookie.config, self._bookie.world.disk
        usages = (disk.usage(Path(directory)) for directory in config.ledger_dirs)
        return FULL in self._bookie.gate.reasons or any(used(u) > config.disk_usage_warn_threshold for u in usages)

    def _no_room_is_no_reason(self) -> bool:
        return self._bookie.config.force_gc_when_no_space
