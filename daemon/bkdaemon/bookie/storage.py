"""Ledger storage: new entries are in dicts, flushed entries in entry logs and the index.

    Ledger     one ledger in memory; its unflushed entries are in two dicts
    swap()     the entries of all ledgers become a Flush; new entries are added to new dicts
    flush()    worker: sorted into the entry logs of the ledger's directory (ledger id mod n), sync, index batch,
               then the ledgers' own rows, always (a fence must be durable before a mark)
    flushed()  the flushed dicts are dropped; the entries are read from disk from now on
    fetch()    worker: a batch of reads; entries that follow the requested ones are added to the read cache

Everything except flush() and fetch() runs on the event loop; these two use only data that do not change meanwhile.
Source: SingleDirectoryDbLedgerStorage.java, WriteCache.java, LedgerMetadataIndex.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from bkctl.codec.data_dir import CURRENT
from bkctl.codec.ledger_index import LedgerData, decode_ledger_data, encode_ledger_data, location_key
from bkctl.errors import BadBytes, NotFound
from bkctl.model.status import Status
from bkdaemon.bookie import idx_import, unfinished
from bkdaemon.bookie.entry_log import GAP_MAX, EntryLogs
from bkdaemon.bookie.lost_index import IndexGuard
from bkdaemon.bookie.read_cache import ReadCache

if TYPE_CHECKING:
    from bkctl.world import World
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.index import Batch, Index, IndexFactory

logger = logging.getLogger(__name__)

NOT_KNOWN: Final = -2
"""Below every entry id and LAC: unknown."""
APPEND_SLICE: Final = 4096
INDEX_ROWS_AT_ONCE: Final = 4096  # RocksDB blocks the event loop while it writes a batch: 2 ms for these
HANDLES_MAX: Final = 100_000
SEQUENCES_MAX: Final = 10_000
LOGS_KEPT_MAX: Final = 8
"""Durable logs of failed flushes, of one directory: with more of them the next one is removed."""
MISSING_LOGS_MAX: Final = 10_000  # missing logs that are remembered as logged
MOVES_MAX: Final = 8  # moves of an entry by compactions during one read
LAC_OFFSET: Final = 16
_I64: Final = Struct(">q")
T = TypeVar("T")


class Ledger:
    """One ledger, as far as it is in memory.

    last and lac are the highest known values, and exact once `loaded`. keyed: this process has journaled the key.
    fence_durable: the fence is durable.
    """

    __slots__ = (
        "entries",
        "explicit_lac",
        "fence_durable",
        "fenced",
        "flushing",
        "id",
        "key",
        "keyed",
        "lac",
        "last",
        "limbo",
        "loaded",
        "waiters",
    )

    def __init__(self, ledger_id: int, data: LedgerData, *, new: bool) -> None:
        self.id = ledger_id
        self.key = data.master_key
        self.fenced = self.fence_durable = data.fenced
        self.explicit_lac = data.explicit_lac
        self.limbo = data.limbo
        self.entries: dict[int, bytes] = {}
        self.flushing: dict[int, bytes] = {}
        self.last = self.lac = -1 if new else NOT_KNOWN
        self.loaded = new
        self.keyed = False
        self.waiters: dict[object, tuple[int, Callable[[], None]]] = {}
        if data.explicit_lac is not None:
            self.lac = max(self.lac, lac_of_packet(data.explicit_lac))

    @property
    def data(self) -> LedgerData:
        """The persistent data of the ledger, without its entries."""
        return LedgerData(self.key, self.fenced, self.explicit_lac, self.limbo)

    def wake(self, lac: int | None = None) -> None:
        """Wakes the waiters whose previous LAC is passed; None wakes all."""
        due = [token for token, (previous, _) in self.waiters.items() if lac is None or lac > previous]
        for wake in [self.waiters.pop(token)[1] for token in due]:
            wake()


def lac_of_packet(packet: bytes) -> int:
    """Returns the LAC in an explicit-LAC packet, -1 if it is too short."""
    return int(_I64.unpack_from(packet, 8)[0]) if len(packet) >= LAC_OFFSET else -1


@dataclass(slots=True)
class Flush:
    """The result of a swap: entries by ledger, and the rows of changed ledgers.

    done: directories where it is durable; kept: logs of failed attempts, to which rows may point until one succeeds.
    """

    entries: list[tuple[int, dict[int, bytes]]]
    rows: dict[int, bytes]
    size: int
    done: set[int] = field(default_factory=set)
    kept: dict[int, list[int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.entries or self.rows)


@dataclass(slots=True)
class Fetched:
    """The result of the read worker, in the order of the request.

    tails: (last entry, its LAC) of ledgers that were not loaded; ahead: entries for the read cache.
    """

    answers: list[tuple[int, bytes | None]] = field(default_factory=list)
    tails: dict[int, tuple[int, int]] = field(default_factory=dict)
    ahead: dict[int, dict[int, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shard:
    """One ledger directory: its index, its entry logs, and the record that both match."""

    index: Index
    logs: EntryLogs
    guard: IndexGuard


class Storage:
    """The ledgers of one bookie, over all its ledger directories.

    Attributes:
        ledgers: the Ledgers in memory; use ledger() for any other.
        active_bytes: bytes of entries that are in no Flush yet.
    """

    def __init__(self, config: BookieConfig, world: World, index_factory: IndexFactory) -> None:
        self._config = config
        self._disk = world.disk
        self._index_factory = index_factory
        self._shards: list[Shard] = []
        self._data: dict[int, bytes] = {}
        self._dirty: dict[int, bytes] = {}
        self._active: dict[int, Ledger] = {}
        self._flushing: list[Ledger] = []
        self._sequences: dict[int, int] = {}
        self._missing_logs: set[str] = set()
        self.ledgers: dict[int, Ledger] = {}
        self.active_bytes = 0
        self.read_cache = ReadCache(config.read_cache_mb << 20)

    def open(self) -> None:
        """Opens every directory's index and entry logs, and loads the ledgers; blocks.

        Raises:
            BadBytes: an index cannot be read, or does not match its entry logs; no entry log was changed.
        """
        config, count = self._config, len(self._config.ledger_dirs)
        places = [
            (Path(a) / CURRENT, Path(b) / CURRENT) for a, b in zip(config.ledger_dirs, config.index_dirs, strict=True)
        ]
        guards = [IndexGuard(self._disk, config, *place) for place in places]
        old = [not g.written and idx_import.needs_import(self._disk, config, g.indexes) for g in guards]
        for guard in (guard for guard, importing in zip(guards, old, strict=True) if not importing):
            guard.check_present()
        for number, ((current, indexes), guard, importing) in enumerate(zip(places, guards, old, strict=True)):
            if importing:
                idx_import.begin(self._disk, indexes)
            logs = EntryLogs(self._disk, current, config.log_size_limit, config.read_ahead_entries)
            shard = Shard(self._index_factory(indexes), logs, guard)
            self._shards.append(shard)
            if importing:
                idx_import.import_idx(self._disk, indexes, shard.index)
                idx_import.end(self._disk, indexes)
            # Java's offline rebuild tool writes every ledger into every directory: only one of them is the ledger's.
            rows = {i: row for i, row in shard.index.load_ledgers().items() if i % count == number}
            if not importing:
                guard.check(shard.index, rows)
            self._data.update(rows)
        for shard, (current, _) in zip(self._shards, places, strict=True):
            shard.guard.store(shard.index)
            unfinished.settle(self._disk, current, shard.index)

    def close(self) -> None:
        """Closes the files of every directory without a flush; blocks."""
        for shard in self._shards:
            shard.logs.close()
            try:
                shard.index.close()
            except OSError as e:  # acknowledged entries are in its write-ahead log or in the journal
                logger.error("failed to close the index: %s", e)
        self._shards.clear()

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def ids(self) -> Iterable[int]:
        """Returns the ids of all ledgers."""
        return self._data.keys()

    @property
    def count(self) -> int:
        """The number of ledgers."""
        return len(self._data)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._data

    def ledger(self, ledger_id: int) -> Ledger | None:
        """Returns a ledger, or None if it does not exist."""
        found = self.ledgers.get(ledger_id)
        if found is None and ledger_id in self._data:
            data = decode_ledger_data(self._data[ledger_id], source=f"ledger {ledger_id}")
            found = self.ledgers[ledger_id] = Ledger(ledger_id, data, new=False)
        return found

    def create(self, ledger_id: int, key: bytes) -> Ledger:
        """Creates a ledger with a master key."""
        ledger = self.ledgers[ledger_id] = Ledger(ledger_id, LedgerData(key), new=True)
        self.save(ledger)
        return ledger

    def save(self, ledger: Ledger) -> None:
        """Saves a changed key, fence or explicit LAC; the next flush writes it."""
        self._data[ledger.id] = self._dirty[ledger.id] = encode_ledger_data(ledger.data)

    def touch(self, ledger: Ledger) -> None:
        """Notes that entries are added to ledger.entries next."""
        self._active[ledger.id] = ledger

    def forget(self, ledger_ids: Iterable[int]) -> list[Ledger]:
        """Removes deleted ledgers from memory; returns those that were loaded."""
        gone = []
        for ledger_id in ledger_ids:
            self._data.pop(ledger_id, None)
            self._dirty.pop(ledger_id, None)
            self._active.pop(ledger_id, None)
            self.read_cache.drop_ledger(ledger_id)
            ledger = self.ledgers.pop(ledger_id, None)
            if ledger is not None:
                self.active_bytes -= sum(map(len, ledger.entries.values()))
                gone.append(ledger)
        return gone

    def remove(self, ledger_ids: list[int]) -> None:
        """Flush worker: removes the index rows of deleted ledgers."""
        for number, shard in enumerate(self._shards):
            mine = [i for i in ledger_ids if i % len(self._shards) == number]
            if mine:
                shard.index.remove_ledgers(mine)

    def shards(self) -> list[Shard]:
        """Returns the ledger directories."""
        return list(self._shards)

    def _shard(self, ledger_id: int) -> Shard:
        return self._shards[ledger_id % len(self._shards)]

    # -- flushing --------------------------------------------------------------------------------------------------

    def swap(self) -> Flush:
        """Returns everything that is not flushed. One Flush at a time: the last one must be flushed() before."""
        taken = []
        for ledger in self._active.values():
            if ledger.entries:
                ledger.flushing, ledger.entries = ledger.entries, {}
                taken.append(ledger)
        flush = Flush([(ledger.id, ledger.flushing) for ledger in taken], self._dirty, self.active_bytes)
        self._flushing, self._active, self._dirty, self.active_bytes = taken, {}, {}, 0
        return flush

    def flush(self, flush: Flush) -> None:
        """Flush worker: makes a Flush durable. After an error the same Flush can be retried."""
        count = len(self._shards)
        for number, shard in enumerate(self._shards):
            if number in flush.done:
                continue
            mine = sorted((pair for pair in flush.entries if pair[0] % count == number), key=lambda pair: pair[0])
            rows = {i: row for i, row in flush.rows.items() if i % count == number}
            batches = [shard.index.batch()]
            kept = flush.kept.setdefault(number, [])
            durable = False
            shard.logs.begin()
            try:
                self._append(shard, mine, batches)
                shard.logs.sync()
                durable = True
                for batch in batches:
                    shard.index.commit(batch, sync=batch is batches[-1])
                if rows:
                    shard.index.store_ledgers(rows)
            except BaseException:
                # Committed rows point to these logs. Most of their entries are in the journal too, whose mark has not
                # moved; but an entry that was not acknowledged may be only here, and its row must stay valid.
                if durable and len(kept) < LOGS_KEPT_MAX:
                    kept += shard.logs.keep()
                else:
                    shard.logs.abandon()
                raise
            shard.guard.store(shard.index)
            flush.done.add(number)
            shard.logs.discard(kept)

    def _append(self, shard: Shard, ledgers: list[tuple[int, dict[int, bytes]]], batches: list[Batch]) -> None:
        put, rows = batches[-1].put, 0
        rows_max = min(self._config.index_batch_rows, INDEX_ROWS_AT_ONCE)
        for ledger_id, entries in ledgers:
            ids = sorted(entries)
            for first in range(0, len(ids), APPEND_SLICE):
                part = [(entry_id, entries[entry_id]) for entry_id in ids[first : first + APPEND_SLICE]]
                if rows + len(part) > rows_max and rows:
                    batches.append(shard.index.batch())
                    put, rows = batches[-1].put, 0
                shard.logs.append(ledger_id, part, put)
                rows += len(part)

    def flushed(self) -> None:
        """Drops the entries of a durable Flush from memory."""
        for ledger in self._flushing:
            ledger.flushing = {}
        self._flushing = []
        if len(self.ledgers) > HANDLES_MAX:
            self._drop_idle()

    def _drop_idle(self) -> None:
        """Drops Ledgers whose data are on disk; their key is journaled again when they are used."""
        for ledger in list(self.ledgers.values()):
            busy = ledger.entries or ledger.flushing or ledger.waiters or ledger.fenced != ledger.fence_durable
            if not busy and ledger.id not in self._dirty:
                del self.ledgers[ledger.id]

    # -- reading ---------------------------------------------------------------------------------------------------

    def cached(self, ledger: Ledger, entry_id: int) -> bytes | None:
        """Returns an entry from memory, or None."""
        return ledger.entries.get(entry_id) or ledger.flushing.get(entry_id) or self.read_cache.get(ledger.id, entry_id)

    def load(self, ledger: Ledger) -> None:
        """Reads last and lac of a ledger from disk, unless they are known; blocks for a row and 24 bytes."""
        if not ledger.loaded:
            self.learn(ledger, self._tail(ledger.id))

    def learn(self, ledger: Ledger, tail: tuple[int, int]) -> None:
        """Stores the end of a ledger on disk, as a worker read it."""
        ledger.last, ledger.lac, ledger.loaded = max(ledger.last, tail[0]), max(ledger.lac, tail[1]), True

    def read(self, ledger: Ledger, entry_id: int) -> bytes | None:
        """Returns an entry from memory or disk; blocks."""
        return self.cached(ledger, entry_id) or self._stored(ledger.id, entry_id)

    def entry_ids(self, ledger: Ledger) -> list[int]:
        """Returns all entry ids of a ledger, ascending; blocks."""
        stored = self.stored_ids(ledger.id)
        if not ledger.entries and not ledger.flushing:
            return stored
        return sorted({*stored, *ledger.entries, *ledger.flushing})

    def stored_ids(self, ledger_id: int) -> list[int]:
        """Returns the entry ids of a ledger on disk, ascending; blocks, any thread."""
        return self._shard(ledger_id).index.entry_ids(ledger_id)

    def location_rows(self, ledger_id: int, entry_id: int, count: int) -> bytes:
        """Returns locations of the entries of a ledger, see Index.location_rows; blocks, any thread."""
        return self._shard(ledger_id).index.location_rows(ledger_id, entry_id, count)

    def fetch(self, pairs: list[tuple[int, int]], tails: set[int]) -> Fetched:
        """Read worker: reads (ledger id, entry id) pairs from disk, and the ends of some ledgers."""
        found = Fetched()
        for ledger_id in tails:
            try:
                found.tails[ledger_id] = self._tail(ledger_id)
            except (OSError, BadBytes, NotFound) as e:
                self.report_unreadable(f"the end of ledger {ledger_id}", e)
        answer, ahead_of, ok = found.answers.append, found.ahead, Status.OK
        for ledger_id, entry_id in pairs:
            ahead = ahead_of.get(ledger_id)
            if ahead is None:
                ahead = ahead_of[ledger_id] = {}
            body = ahead.get(entry_id)
            if body is None:
                try:
                    body = self._fetch(ledger_id, entry_id, ahead)
                except (OSError, BadBytes, NotFound) as e:
                    self.report_unreadable(f"entry {entry_id} of ledger {ledger_id}", e)
                    answer((Status.IO_ERROR, None))
                    continue
            self._sequences[ledger_id] = entry_id
            answer((ok, body) if body is not None else (Status.NO_ENTRY, None))
        if len(self._sequences) > SEQUENCES_MAX:
            self._sequences.clear()
        return found

    def report_unreadable(self, what: str, error: Exception) -> None:
        """Logs why entries cannot be read; one line for each missing entry log. Any thread."""
        path = str(error.details.get("path", "")) if isinstance(error, NotFound) else ""
        if not path:
            logger.error("failed to read %s: %s", what, error)
        elif path not in self._missing_logs:
            if len(self._missing_logs) >= MISSING_LOGS_MAX:
                self._missing_logs.clear()
            self._missing_logs.add(path)
            logger.error("entry log %s is missing; its entries cannot be read, the first is %s", path, what)

    def _fetch(self, ledger_id: int, entry_id: int, ahead: dict[int, bytes]) -> bytes | None:
        if not 0 < entry_id - self._sequences.get(ledger_id, NOT_KNOWN) <= GAP_MAX:
            return self._stored(ledger_id, entry_id)
        found = self._at(ledger_id, entry_id, self._shard(ledger_id).logs.read_ahead)
        if found is None:
            return None
        body, following = found
        ahead[entry_id] = body
        ahead.update(following)
        self._sequences[ledger_id] = next(reversed(following), entry_id)
        return body

    def _stored(self, ledger_id: int, entry_id: int) -> bytes | None:
        return self._at(ledger_id, entry_id, self._shard(ledger_id).logs.read)

    def _at(self, ledger_id: int, entry_id: int, read: Callable[[int, int, int], T]) -> T | None:
        """Calls `read` for the location of an entry in the index; None if it has none.

        A compaction may move the entry and remove its log in between: then the index has another location.
        """
        index, keys = self._shard(ledger_id).index, [location_key(ledger_id, entry_id)]
        location = index.locations(keys)[0]
        for _ in range(MOVES_MAX):
            if location == 0:
                return None
            try:
                return read(location, ledger_id, entry_id)
            except NotFound:
                before, location = location, index.locations(keys)[0]
                if location == before:
                    raise
        return read(location, ledger_id, entry_id)

    def _tail(self, ledger_id: int) -> tuple[int, int]:
        """Returns (last entry, its LAC) of a ledger on disk."""
        last = self._shard(ledger_id).index.last_entry(ledger_id)
        try:
            body = self._stored(ledger_id, last) if last >= 0 else None
        except (BadBytes, NotFound):
            # a row of a failed flush points into a removed log; its entry is in memory then
            ledger = self.ledgers.get(ledger_id)
            body = self.cached(ledger, last) if ledger is not None else None
            if body is None:
                raise
        return last, int(_I64.unpack_from(body, LAC_OFFSET)[0]) if body is not None else -1
