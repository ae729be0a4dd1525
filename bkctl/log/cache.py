"""Entries in memory: the tail of every topic, and the chunks that slow subscriptions are catching up on.

The two have bounds of their own, so that a subscription that reads a day of backlog cannot push out the tail. The tail
holds what was just written, oldest out first, over all topics of the broker. Catch-up reads fetch chunks of a ledger,
one fetch however many subscriptions ask, and the next chunk while this one is being delivered. A chunk is as many
entries as fit into a topic's share of bytes. The bytes in flight of all fetches are bounded too; further fetches wait.
Source of the idea: EntryCacheImpl.java, RangeEntryCacheManagerImpl.java.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from bkctl.errors import BkctlError
from bkctl.model.topic import Position

CHUNK_ENTRIES_MAX: Final = 512  # of the tail: what is found by one comparison, and goes at once
CHUNK_BYTES_MAX: Final = 256 * 1024
CHUNKS_MIN: Final = 16  # into which the tails are divided at least
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Of one chunk."""
READ_AHEAD_ENTRIES_MAX: Final = 2_000
SHARE_BYTES_MIN: Final = 64 * 1024
"""Of a chunk, however many topics catch up at once."""
CATCHING_UP_S: Final = 1.0
"""A topic that fetched nothing for so long leaves its share to others."""
FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Limit of the bytes in flight of all fetches."""
CATCH_UP_CHUNKS_MAX: Final = 20_000
ENTRY_OVERHEAD_BYTES: Final = 48
"""Of an entry that waits to be delivered, besides its own: its object, and its place in the row."""
TAIL_BYTES_DEFAULT: Final = 32 * 1024 * 1024
CATCH_UP_BYTES_DEFAULT: Final = 16 * 1024 * 1024
UNCONFIRMED_BYTES_HIGH: Final = 256 * 1024 * 1024
"""Added to all logs and not safe yet: above, none of them asks for more."""

Found = list[tuple[Position, bytes]]
Fetch = Callable[[int, int, int], Awaitable[list[bytes]]]
"""(ledger, first entry, last entry) → the entries from the first on, at least one, as far as bytes allow."""


class _Chunk:
    """Consecutive entries of one ledger."""

    __slots__ = ("entries", "first", "ledger_id", "size")

    def __init__(self, ledger_id: int, first: int) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.entries: list[bytes] = []
        self.size = 0


class EntryCache:
    """The memory of one broker for entries.

    Attributes:
        tail_bytes, catch_up_bytes: bytes of the cached entries.
        flight_bytes: bytes that fetches have in flight.
        unconfirmed_bytes: bytes that were added to logs and are not confirmed yet.
        skipped: entries that were skipped because they are lost for good.
    """

    def __init__(
        self, tail_bytes_max: int = TAIL_BYTES_DEFAULT, catch_up_bytes_max: int = CATCH_UP_BYTES_DEFAULT
    ) -> None:
        self.tail_bytes_max = tail_bytes_max
        self.catch_up_bytes_max = catch_up_bytes_max
        self.chunk_bytes = min(CHUNK_BYTES_MAX, tail_bytes_max // CHUNKS_MIN)
        self.tail_bytes = self.catch_up_bytes = self.flight_bytes = self.unconfirmed_bytes = 0
        self.hits = self.misses = self.skipped = 0
        self._order: deque[tuple[Tail, _Chunk]] = deque()
        self._chunks: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()  # (ledger, first entry)
        self._starts: dict[int, list[int]] = {}  # of each ledger's chunks, ascending
        self._fetches: dict[int, dict[int, tuple[int, asyncio.Task[list[bytes]]]]] = {}  # ledger: first: (last, …)
        self._catching_up: OrderedDict[int, float] = OrderedDict()  # topic: when it fetched last
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def full(self) -> bool:
        """True while so many bytes are unconfirmed that no log should accept more."""
        return self.unconfirmed_bytes > UNCONFIRMED_BYTES_HIGH

    # -- the tails ----------------------------------------------------------------------------------------------------

    def added(self, tail: Tail, chunk: _Chunk, size: int, *, new: bool) -> None:
        """Accounts for a grown tail and removes the oldest chunks of all tails above the limit."""
        self.tail_bytes += size
        if new:
            self._order.append((tail, chunk))
        while self._order and (self.tail_bytes > self.tail_bytes_max or not self._order[0][1].entries):
            owner, oldest = self._order.popleft()
            owner.drop(oldest)

    # -- catching up --------------------------------------------------------------------------------------------------

    async def chunk(self, ledger_id: int, entry_id: int, last: int, fetch: Fetch) -> tuple[int, list[bytes]]:
        """Returns (first entry, entries) of a chunk that contains this entry and ends at `last` or before.

        Concurrent callers share one fetch.
        """
        while True:
            known = self._known(ledger_id, entry_id)
            if known is not None:
                return known
            in_flight = self._in_flight(ledger_id, entry_id)
            first, task = in_flight or (entry_id, self._start(ledger_id, entry_id, last, fetch))
            try:
                entries = await asyncio.shield(task)
            except BkctlError:
                if first == entry_id:
                    raise
                continue  # of an entry before this one, perhaps
            if entry_id < first + len(entries):
                return first, entries

    def ahead(self, ledger_id: int, first: int, last: int, fetch: Fetch) -> None:
        """Starts to fetch a chunk that will be requested soon; a failure is reported to its readers."""
        if self._known(ledger_id, first) is None and self._in_flight(ledger_id, first) is None:
            self._start(ledger_id, first, last, fetch)

    def share(self, topic: object) -> int:
        """Returns the bytes of a topic's next chunk, so that it and the one ahead stay until they are delivered."""
        now = asyncio.get_running_loop().time()
        active = self._catching_up
        active[id(topic)] = now
        active.move_to_end(id(topic))
        while now - next(iter(active.values())) > CATCHING_UP_S:
            active.popitem(last=False)
        return min(READ_AHEAD_BYTES, max(SHARE_BYTES_MIN, self.catch_up_bytes_max // (2 * len(active))))

    @asynccontextmanager
    async def flight(self, size: int) -> AsyncIterator[None]:
        """Reserves room for this number of bytes in flight; waits in the order of arrival."""
        size = min(size, FLIGHT_BYTES_MAX)
        if self._waiting or self.flight_bytes + size > FLIGHT_BYTES_MAX:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, room))
            try:
                await room
            except asyncio.CancelledError:
                if room.done() and not room.cancelled():
                    self._landed(size)
                else:
                    with suppress(ValueError):  # A fetch that ended meanwhile has skipped it.
                        self._waiting.remove((size, room))
                    self._landed(0)
                raise
        else:
            self.flight_bytes += size
        try:
            yield
        finally:
            self._landed(size)

    def _landed(self, size: int) -> None:
        self.flight_bytes -= size
        while self._waiting and self.flight_bytes + self._waiting[0][0] <= FLIGHT_BYTES_MAX:
            more, room = self._waiting.popleft()
            if not room.done():
                self.flight_bytes += more
                room.set_result(None)

    def _known(self, ledger_id: int, entry_id: int) -> tuple[int, list[bytes]] | None:
        starts = self._starts.get(ledger_id, ())
        at = bisect_right(starts, entry_id) - 1
        if at < 0:
            return None
        first = starts[at]
        entries = self._chunks[ledger_id, first]
        if entry_id >= first + len(entries):
            return None
        self._chunks.move_to_end((ledger_id, first))
        return first, entries

    def _in_flight(self, ledger_id: int, entry_id: int) -> tuple[int, asyncio.Task[list[bytes]]] | None:
        for first, (last, task) in self._fetches.get(ledger_id, {}).items():
            if first <= entry_id <= last and not task.done():  # a wait for a finished one would never yield to the loop
                return first, task
        return None

    def _start(self, ledger_id: int, first: int, last: int, fetch: Fetch) -> asyncio.Task[list[bytes]]:
        starts, fetches = self._starts.get(ledger_id, ()), self._fetches.setdefault(ledger_id, {})
        at = bisect_right(starts, first)
        later = [*starts[at : at + 1], *(other for other in fetches if other > first)]
        last = min(last, *(other - 1 for other in later)) if later else last
        task = asyncio.ensure_future(self._fetch(ledger_id, first, last, fetch))
        fetches[first] = last, task
        task.add_done_callback(lambda t: self._fetched(ledger_id, first, t))
        return task

    async def _fetch(self, ledger_id: int, first: int, last: int, fetch: Fetch) -> list[bytes]:
        entries = await fetch(ledger_id, first, last)
        key = ledger_id, first
        if key not in self._chunks:
            insort(self._starts.setdefault(ledger_id, []), first)
        self.catch_up_bytes += _size(entries) - _size(self._chunks.pop(key, ()))
        self._chunks[key] = entries
        while (self.catch_up_bytes > self.catch_up_bytes_max or len(self._chunks) > CATCH_UP_CHUNKS_MAX) and len(
            self._chunks
        ) > 1:
            self._drop(next(iter(self._chunks)))
        return entries

    def _drop(self, key: tuple[int, int]) -> None:
        self.catch_up_bytes -= _size(self._chunks.pop(key))
        starts = self._starts[key[0]]
        starts.remove(key[1])
        if not starts:
            del self._starts[key[0]]

    def _fetched(self, ledger_id: int, first: int, task: asyncio.Task[list[bytes]]) -> None:
        fetches = self._fetches.get(ledger_id, {})
        if first in fetches and fetches[first][1] is task:
            del fetches[first]
            if not fetches:
                del self._fetches[ledger_id]
        if not task.cancelled():
            task.exception()  # its waiters have it, if any

    def forget(self, ledger_id: int) -> None:
        """Removes the chunks of a deleted ledger."""
        for first in list(self._starts.get(ledger_id, ())):
            self._drop((ledger_id, first))


def _size(entries: Sequence[bytes]) -> int:
    return sum(map(len, entries)) + ENTRY_OVERHEAD_BYTES * len(entries)


class Tail:
    """The last entries of one topic."""

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._expected = 0
        self._chunks: deque[_Chunk] = deque()

    def expect(self, size: int) -> int:
        """Counts bytes as unconfirmed, or no longer if negative; returns them."""
        self._expected += size
        self._cache.unconfirmed_bytes += size
        return size

    def add(self, ledger_id: int, first: int, entries: list[bytes]) -> None:
        """Adds entries that were just confirmed, from `first` on."""
        size = sum(map(len, entries))
        self.expect(-min(size, self._expected))
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
        """Returns the cached consecutive entries from start on; [] if start is not cached."""
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
        """Removes a chunk to make room, unless clear() removed it before."""
        if self._chunks and self._chunks[0] is chunk:
            self._chunks.popleft()
            self._cache.tail_bytes -= chunk.size

    def clear(self) -> None:
        """Removes all entries of a closed topic, and its unconfirmed bytes from the account."""
        self.expect(-self._expected)
        for chunk in self._chunks:
            self._cache.tail_bytes -= chunk.size
            chunk.entries = []  # The broker's queue of chunks still refers to it for a while.
        self._chunks.clear()
