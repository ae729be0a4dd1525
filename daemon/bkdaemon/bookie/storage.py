"""Ledger storage: what arrived is in dicts, what was flushed is in entry logs and the index.

    Ledger     what is known of one ledger; its entries that are not flushed lie in two dicts
    swap()     the entries of all ledgers become a Flush; new ones gather in fresh dicts
    flush()    worker: sorted into the entry logs of the ledger's directory (ledger id mod n), sync, index batch,
               then the ledgers' own rows, always (a mark must not outrun a fence)
    flushed()  the flushed dicts are let go; the entries are found on disk from now on
    fetch()    worker: a batch of reads; entries that follow the wanted ones come along into the read cache

Everything but flush() and fetch() runs on the event loop; those two touch only what does not change under them.
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
"""Below every entry id and LAC: nothing was seen yet."""
APPEND_SLICE: Final = 4096
INDEX_ROWS_AT_ONCE: Final = 4096  # the event loop stands still while RocksDB takes a batch: 2 ms for these
HANDLES_MAX: Final = 100_000
SEQUENCES_MAX: Final = 10_000
LOGS_KEPT_MAX: Final = 8
"""Logs of tries that failed when they were durable, of one directory: with more, the next is taken back."""
MISSING_LOGS_MAX: Final = 10_000  # that were logged once; beyond that they are logged again
MOVES_MAX: Final = 8  # of an entry by compactions, while one read looks for it
LAC_OFFSET: Final = 16
_I64: Final = Struct(">q")
T = TypeVar("T")


class Ledger:
    """One ledger, as far as it is in memory.

    last and lac are the highest that were seen; the whole truth once `loaded`. keyed: this process has journalled
    the key. fence_durable: the fence needs no journal any more.
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
        """What is kept of the ledger beside its entries."""
        return LedgerData(self.key, self.fenced, self.explicit_lac, self.limbo)

    def wake(self, lac: int | None = None) -> None:
        """Wakes who waits for the LAC to pass theirs; None wakes all."""
        due = [token for token, (previous, _) in self.waiters.items() if lac is None or lac > previous]
        for wake in [self.waiters.pop(token)[1] for token in due]:
            wake()


def lac_of_packet(packet: bytes) -> int:
    """The LAC in an explicit-LAC packet, -1 where it is too short to hold one."""
    return int(_I64.unpack_from(packet, 8)[0]) if len(packet) >= LAC_OFFSET else -1


@dataclass(slots=True)
class Flush:
    """What one swap took: entries a ledger, and the rows of ledgers that changed.

    done: directories that have it; kept: logs of tries that failed, which rows may point to until one succeeds.
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
    """What the read worker found, in the order of what was wanted.

    tails: (last entry, its LAC) of ledgers that were not loaded; ahead: entries for the read cache.
    """

    answers: list[tuple[int, bytes | None]] = field(default_factory=list)
    tails: dict[int, tuple[int, int]] = field(default_factory=dict)
    ahead: dict[int, dict[int, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shard:
    """One ledger directory: where entries lie, the logs they lie in, and the note that both belong together."""

    index: Index
    logs: EntryLogs
    guard: IndexGuard


class Storage:
    """The ledgers of one bookie, over all its ledger directories.

    Attributes:
        ledgers: the Ledgers in memory; use ledger() to get one that may not be.
        active_bytes: of entries that no Flush has taken yet.
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
        """Closes every directory's files; blocks. Nothing is flushed."""
        for shard in self._shards:
            shard.logs.close()
            try:
                shard.index.close()
            except OSError as e:  # what was acknowledged is in its log, or in the journal
                logger.error("the index did not close cleanly: %s", e)
        self._shards.clear()

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def ids(self) -> Iterable[int]:
        """All ledgers that are here."""
        return self._data.keys()

    @property
    def count(self) -> int:
        """How many ledgers are here."""
        return len(self._data)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._data

    def ledger(self, ledger_id: int) -> Ledger | None:
        """A ledger that is here, or None."""
        found = self.ledgers.get(ledger_id)
        if found is None and ledger_id in self._data:
            data = decode_ledger_data(self._data[ledger_id], source=f"ledger {ledger_id}")
            found = self.ledgers[ledger_id] = Ledger(ledger_id, data, new=False)
        return found

    def create(self, ledger_id: int, key: bytes) -> Ledger:
        """A new ledger, bound to a master key."""
        ledger = self.ledgers[ledger_id] = Ledger(ledger_id, LedgerData(key), new=True)
        self.save(ledger)
        return ledger

    def save(self, ledger: Ledger) -> None:
        """Takes note of a changed key, fence or explicit LAC; the next flush writes it."""
        self._data[ledger.id] = self._dirty[ledger.id] = encode_ledger_data(ledger.data)

    def touch(self, ledger: Ledger) -> None:
        """Entries are about to be put into ledger.entries."""
        self._active[ledger.id] = ledger

    def forget(self, ledger_ids: Iterable[int]) -> list[Ledger]:
        """Ledgers are deleted: they are not here any more. Returns those that were in memory."""
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
        """Worker, the one that flushes: removes the index rows of deleted ledgers."""
        for number, shard in enumerate(self._shards):
            mine = [i for i in ledger_ids if i % len(self._shards) == number]
            if mine:
                shard.index.remove_ledgers(mine)

    def shards(self) -> list[Shard]:
        """The ledger directories."""
        return list(self._shards)

    def _shard(self, ledger_id: int) -> Shard:
        return self._shards[ledger_id % len(self._shards)]

    # -- flushing --------------------------------------------------------------------------------------------------

    def swap(self) -> Flush:
        """Takes everything that is not flushed. One Flush at a time: the last one must be flushed() by now."""
        taken = []
        for ledger in self._active.values():
            if ledger.entries:
                ledger.flushing, ledger.entries = ledger.entries, {}
                taken.append(ledger)
        flush = Flush([(ledger.id, ledger.flushing) for ledger in taken], self._dirty, self.active_bytes)
        self._flushing, self._active, self._dirty, self.active_bytes = taken, {}, {}, 0
        return flush

    def flush(self, flush: Flush) -> None:
        """Worker: makes a Flush durable. After an error the same Flush may be tried again."""
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
                # Rows that were committed point there. Most of their entries are in the journal too, whose mark has not
                # moved; but one that was not acknowledged may be nowhere else, and its row must not point to nothing.
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
        """The Flush is durable: its entries need no memory any more."""
        for ledger in self._flushing:
            ledger.flushing = {}
        self._flushing = []
        if len(self.ledgers) > HANDLES_MAX:
            self._drop_idle()

    def _drop_idle(self) -> None:
        """Drops Ledgers whose data are all on disk; their key is written to the journal again when they are used."""
        for ledger in list(self.ledgers.values()):
            busy = ledger.entries or ledger.flushing or ledger.waiters or ledger.fenced != ledger.fence_durable
            if not busy and ledger.id not in self._dirty:
                del self.ledgers[ledger.id]

    # -- reading ---------------------------------------------------------------------------------------------------

    def cached(self, ledger: Ledger, entry_id: int) -> bytes | None:
        """An entry that is in memory."""
        return ledger.entries.get(entry_id) or ledger.flushing.get(entry_id) or self.read_cache.get(ledger.id, entry_id)

    def load(self, ledger: Ledger) -> None:
        """Learns last and lac of a ledger from disk, where they are not known; blocks for a row and 24 bytes."""
        if not ledger.loaded:
            self.learn(ledger, self._tail(ledger.id))

    def learn(self, ledger: Ledger, tail: tuple[int, int]) -> None:
        """Takes note of what a worker found to be the end of a ledger on disk."""
        ledger.last, ledger.lac, ledger.loaded = max(ledger.last, tail[0]), max(ledger.lac, tail[1]), True

    def read(self, ledger: Ledger, entry_id: int) -> bytes | None:
        """One entry from memory or disk; blocks."""
        return self.cached(ledger, entry_id) or self._stored(ledger.id, entry_id)

    def entry_ids(self, ledger: Ledger) -> list[int]:
        """All entries of a ledger, ascending; blocks."""
        stored = self.stored_ids(ledger.id)
        if not ledger.entries and not ledger.flushing:
            return stored
        return sorted({*stored, *ledger.entries, *ledger.flushing})

    def stored_ids(self, ledger_id: int) -> list[int]:
        """The entries of a ledger that are on disk, ascending; blocks, any thread."""
        return self._shard(ledger_id).index.entry_ids(ledger_id)

    def location_rows(self, ledger_id: int, entry_id: int, count: int) -> bytes:
        """Where the entries of a ledger lie on disk, see Index.location_rows; blocks, any thread."""
        return self._shard(ledger_id).index.location_rows(ledger_id, entry_id, count)

    def fetch(self, wanted: list[tuple[int, int]], tails: set[int]) -> Fetched:
        """Worker, the one that reads: (ledger id, entry id) pairs from disk, and the ends of some ledgers."""
        found = Fetched()
        for ledger_id in tails:
            try:
                found.tails[ledger_id] = self._tail(ledger_id)
            except (OSError, BadBytes, NotFound) as e:
                self.report_unreadable(f"the end of ledger {ledger_id}", e)
        answer, ahead_of, ok = found.answers.append, found.ahead, Status.OK
        for ledger_id, entry_id in wanted:
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
        """Logs that entries cannot be read and why; of a missing entry log one line a file. Any thread."""
        path = str(error.details.get("path", "")) if isinstance(error, NotFound) else ""
        if not path:
            logger.error("%s cannot be read: %s", what, error)
        elif path not in self._missing_logs:
            if len(self._missing_logs) >= MISSING_LOGS_MAX:
                self._missing_logs.clear()
            self._missing_logs.add(path)
            logger.error("entry log %s is missing: its entries cannot be read, first %s", path, what)

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
        """What `read` makes of the place that the index names, None where it names none.

        A compaction may move the entry and remove its log between the two: then the index names another place.
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
        """(last entry, its LAC) of what is on disk of a ledger."""
        last = self._shard(ledger_id).index.last_entry(ledger_id)
        try:
            body = self._stored(ledger_id, last) if last >= 0 else None
        except (BadBytes, NotFound):
            # a row that a failed flush left points into what was taken back; its entry is in memory then
            ledger = self.ledgers.get(ledger_id)
            body = self.cached(ledger, last) if ledger is not None else None
            if body is None:
                raise
        return last, int(_I64.unpack_from(body, LAC_OFFSET)[0]) if body is not None else -1
