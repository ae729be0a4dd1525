"""Entries in memory: the tail of every topic, and beside it what slow subscriptions are catching up on.

The two have bounds of their own, so that a subscription that reads a day of backlog cannot push out the tail. The tail
holds what was just written, oldest out first, over all topics of the broker. Catch-up reads fetch whole chunks of a
ledger, one fetch however many subscriptions ask, and the next chunk while this one is being delivered.
Source of the idea: EntryCacheImpl.java, RangeEntryCacheManagerImpl.java.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final

from bkctl.model.topic import Position

CHUNK_ENTRIES_MAX: Final = 512  # of the tail: what is found by one comparison, and goes at once
CHUNK_BYTES_MAX: Final = 256 * 1024
CHUNKS_MIN: Final = 16  # into which the tails are cut at least
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
READ_AHEAD_ENTRIES_MAX: Final = 2_000
TAIL_BYTES_DEFAULT: Final = 32 * 1024 * 1024
CATCH_UP_BYTES_DEFAULT: Final = 16 * 1024 * 1024

Found = list[tuple[Position, bytes]]
Fetch = Callable[[int, int, int], Awaitable[list[bytes]]]
"""(ledger, first entry, last entry) → the entries."""


class _Chunk:
    """Consecutive entries of one ledger."""

    __slots__ = ("entries", "first", "ledger_id", "size")

    def __init__(self, ledger_id: int, first: int) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.entries: list[bytes] = []
        self.size = 0


class EntryCache:
    """The memory of one broker for entries."""

    def __init__(
        self, tail_bytes_max: int = TAIL_BYTES_DEFAULT, catch_up_bytes_max: int = CATCH_UP_BYTES_DEFAULT
    ) -> None:
        self.tail_bytes_max = tail_bytes_max
        self.catch_up_bytes_max = catch_up_bytes_max
        self.chunk_bytes = min(CHUNK_BYTES_MAX, tail_bytes_max // CHUNKS_MIN)
        self.tail_bytes = self.catch_up_bytes = 0
        self.hits = self.misses = 0
        self._order: deque[tuple[Tail, _Chunk]] = deque()
        self._chunks: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()  # (ledger, first entry)
        self._fetches: dict[tuple[int, int], asyncio.Task[list[bytes]]] = {}

    # -- the tails ----------------------------------------------------------------------------------------------------

    def added(self, tail: Tail, chunk: _Chunk, size: int, *, new: bool) -> None:
        """A tail has grown; the oldest chunks of all tails go where there is no room."""
        self.tail_bytes += size
        if new:
            self._order.append((tail, chunk))
        while self._order and (self.tail_bytes > self.tail_bytes_max or not self._order[0][1].entries):
            owner, oldest = self._order.popleft()
            owner.drop(oldest)

    # -- catching up --------------------------------------------------------------------------------------------------

    async def chunk(self, ledger_id: int, first: int, last: int, fetch: Fetch) -> list[bytes]:
        """The entries of a ledger from first on, at least up to last; fetched once for all who ask meanwhile.

        A chunk that was shorter when it was fetched is completed.
        """
        key = (ledger_id, first)
        wanted = last - first + 1
        while True:
            known = self._chunks.get(key)
            if known is not None and len(known) >= wanted:
                self._chunks.move_to_end(key)
                return known
            task = self._fetches.get(key)
            if task is None:
                task = self._start(key, known or [], first, last, fetch)
            entries = await asyncio.shield(task)
            if len(entries) >= wanted:
                return entries

    def ahead(self, ledger_id: int, first: int, last: int, fetch: Fetch) -> None:
        """Fetches a chunk that will be asked for soon; its failure is for those who ask."""
        key = (ledger_id, first)
        if key not in self._fetches and key not in self._chunks:
            self._start(key, [], first, last, fetch)

    def _start(
        self, key: tuple[int, int], known: list[bytes], first: int, last: int, fetch: Fetch
    ) -> asyncio.Task[list[bytes]]:
        task = asyncio.ensure_future(self._fetch(key, known, first, last, fetch))
        self._fetches[key] = task
        task.add_done_callback(lambda t: self._fetched(key, t))
        return task

    async def _fetch(
        self, key: tuple[int, int], known: list[bytes], first: int, last: int, fetch: Fetch
    ) -> list[bytes]:
        entries = known + await fetch(key[0], first + len(known), last)
        self.catch_up_bytes += sum(map(len, entries)) - sum(map(len, self._chunks.pop(key, ())))
        self._chunks[key] = entries
        while self.catch_up_bytes > self.catch_up_bytes_max and len(self._chunks) > 1:
            _, gone = self._chunks.popitem(last=False)
            self.catch_up_bytes -= sum(map(len, gone))
        return entries

    def _fetched(self, key: tuple[int, int], task: asyncio.Task[list[bytes]]) -> None:
        if self._fetches.get(key) is task:
            del self._fetches[key]
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody has to

    def forget(self, ledger_id: int) -> None:
        """A ledger is gone."""
        for key in [key for key in self._chunks if key[0] == ledger_id]:
            self.catch_up_bytes -= sum(map(len, self._chunks.pop(key)))


class Tail:
    """The last entries of one topic."""

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._chunks: deque[_Chunk] = deque()

    def add(self, ledger_id: int, first: int, entries: list[bytes]) -> None:
        """Entries that were just confirmed, from `first` on."""
        size = sum(map(len, entries))
        chunk = self._chunks[-1] if self._chunks else None
        new = (
            chunk is None
            or chunk.ledger_id != ledger_id
            or chunk.first + len(chunk.entries) != first
            or len(chunk.entries) >= CHUNK_ENTRIES_MAX
            or chunk.size >= self._cache.chunk_bytes
        )
        if chunk is None or new:
            chunk = _Chunk(ledger_id, first)
            self._chunks.append(chunk)
        chunk.entries += entries
        chunk.size += size
        self._cache.added(self, chunk, size, new=new)

    def get(self, start: Position, entries_max: int, bytes_max: int) -> Found:
        """Entries from start on, as many as are here in a row; [] if that one is not."""
        ledger_id, entry_id = start
        for index in range(len(self._chunks) - 1, -1, -1):
            chunk = self._chunks[index]
            if (chunk.ledger_id, chunk.first) > start:
                continue
            if chunk.ledger_id != ledger_id or entry_id >= chunk.first + len(chunk.entries):
                return []
            return self._from(index, entry_id, entries_max, bytes_max)
        return []

    def _from(self, index: int, entry_id: int, entries_max: int, bytes_max: int) -> Found:
        found: Found = []
        size = 0
        chunk = self._chunks[index]
        while True:
            at = entry_id - chunk.first
            for entry in chunk.entries[at : at + entries_max - len(found)]:
                size += len(entry)
                if found and size > bytes_max:
                    return found
                found.append((Position(chunk.ledger_id, entry_id), entry))
                entry_id += 1
            index += 1
            if len(found) >= entries_max or index >= len(self._chunks):
                return found
            following = self._chunks[index]
            if following.ledger_id != chunk.ledger_id or following.first != entry_id:
                return found
            chunk = following

    def drop(self, chunk: _Chunk) -> None:
        """Makes room: a chunk goes, which is the first but for those that clear() let go."""
        if self._chunks and self._chunks[0] is chunk:
            self._chunks.popleft()
            self._cache.tail_bytes -= chunk.size

    def clear(self) -> None:
        """The topic is closed."""
        for chunk in self._chunks:
            self._cache.tail_bytes -= chunk.size
            chunk.entries = []  # the broker's row of chunks still has it for a while
        self._chunks.clear()


def read_ahead_entries(entries: int, size: int) -> int:
    """How many entries of a ledger with these figures make a chunk of READ_AHEAD_BYTES."""
    if not entries or not size:
        return 100
    return max(1, min(READ_AHEAD_ENTRIES_MAX, READ_AHEAD_BYTES * entries // size))
