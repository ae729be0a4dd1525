"""Reads the entries of a managed ledger: from the tail in memory, else in chunks from the bookies, read ahead."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from bkctl.client.reader import LedgerReader
from bkctl.client.reader_sizes import LedgerSizes
from bkctl.errors import NoSuchEntry, Unavailable
from bkctl.log.cache import READ_AHEAD_ENTRIES_MAX, EntryCache, Found, Tail
from bkctl.log.ledgers import LedgerList
from bkctl.log.settings import LedgerSettings
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.client.writer import LedgerWriter

READERS_MAX: Final = 16  # ledgers of one topic whose metadata is remembered
MEASURED_MAX: Final = 2
"""Entries that are read at a time to learn how many bytes lie between them."""


class LedgerReads:
    """The reading half of one managed ledger; `writer` is set to that of the open ledger."""

    def __init__(
        self, bookkeeper: BookKeeper, settings: LedgerSettings, ledgers: LedgerList, cache: EntryCache
    ) -> None:
        self.writer: LedgerWriter | None = None
        self.tail = Tail(cache)
        self._cache = cache
        self._bookkeeper = bookkeeper
        self._settings = settings
        self._ledgers = ledgers
        self._readers: OrderedDict[int, LedgerReader] = OrderedDict()
        self._open_sizes = -1, LedgerSizes()  # of the open ledger, by its id

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> Found:
        """Entries of one ledger at or after start; [] where nothing is confirmed there yet."""
        position = self._ledgers.at_or_after(start)
        if not self._ledgers.contains(position):
            return []
        found = self.tail.get(position, entries_max, bytes_max)
        if found:
            self._cache.hits += 1
            return found
        self._cache.misses += 1
        return await self._from_bookies(position, max(1, entries_max), bytes_max)

    async def read_one(self, ledger_id: int, entry_id: int) -> bytes:
        """One entry by itself, from the bookies: where a read of many has failed, of which it was one."""
        return (await self._fetch(ledger_id, entry_id, entry_id))[0]

    async def _from_bookies(self, position: Position, entries_max: int, bytes_max: int) -> Found:
        ledger_id, entry_id = position
        first, entries = await self._cache.chunk(ledger_id, entry_id, self._last(ledger_id, entry_id), self._fetch)
        following = first + len(entries)
        if following < self._ledgers.entries(ledger_id):
            self._cache.ahead(ledger_id, following, self._last(ledger_id, following), self._fetch)
        found: Found = []
        size = 0
        at = entry_id - first
        for offset, entry in enumerate(entries[at : at + entries_max]):
            size += len(entry)
            if found and size > bytes_max:
                break
            found.append((Position(ledger_id, entry_id + offset), entry))
        return found

    def _last(self, ledger_id: int, first: int) -> int:
        """The last entry of a chunk whose entries are small."""
        return min(first + READ_AHEAD_ENTRIES_MAX, self._ledgers.entries(ledger_id)) - 1

    async def _fetch(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """Entries first to last, or as many of them as have this topic's share of bytes."""
        reader = await self._reader(ledger_id)
        try:
            return await self._fetch_with(reader, first, last)
        except (NoSuchEntry, Unavailable):  # auto recovery may have put it elsewhere since the reader was made
            version = reader.version
            if self._readers.get(ledger_id) is not reader:
                raise
            await reader.refresh()
            if reader.version == version:
                raise
        return await self._fetch_with(reader, first, last)

    async def _fetch_with(self, reader: LedgerReader, first: int, last: int) -> list[bytes]:
        ledger_id = reader.ledger_id
        share = self._cache.share(self)
        entry_size_max = self._bookkeeper.config.frame_size_max
        end = reader.known_fitting(first, last, share)
        if end is None:
            async with self._cache.flight(MEASURED_MAX * entry_size_max):
                end = await reader.fitting(first, last, share)
        bound = reader.sizes.bound(first, end)
        entries: list[bytes] = []
        async with self._cache.flight(min(bound or share, (end - first + 1) * entry_size_max)):
            async for batch in reader.read_unconfirmed(first, end):
                entries += [bytes(entry.payload) for entry in batch]
        if len(entries) != end - first + 1:
            raise NoSuchEntry(f"ledger {ledger_id}: {len(entries)} entries of {first} to {end}", ledger_id=ledger_id)
        return entries

    async def _reader(self, ledger_id: int) -> LedgerReader:
        reader = self._readers.get(ledger_id)
        writer = self.writer
        if writer is not None and writer.ledger_id == ledger_id:
            if self._open_sizes[0] != ledger_id:
                self._open_sizes = ledger_id, LedgerSizes()
            digest = self._bookkeeper.digest_of(writer.metadata, ledger_id, self._settings.password)
            context = self._bookkeeper.context
            reader = LedgerReader(context, ledger_id, writer.metadata, 0, digest, self._open_sizes[1])
        elif reader is None:
            reader = await self._bookkeeper.open(ledger_id, self._settings.password, self._settings.digest_type)
            self._readers[ledger_id] = reader
            while len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)
        else:
            self._readers.move_to_end(ledger_id)
        entries, size, sizes = self._ledgers.entries(ledger_id), self._ledgers.size(ledger_id), reader.sizes
        if entries and size:
            sizes.learn(entries - 1, size)
            sizes.entry_size = sizes.entry_size or max(size / entries, 1.0)
        return reader

    def forget(self, ledger_id: int) -> None:
        """A ledger was trimmed."""
        self._readers.pop(ledger_id, None)
        self._cache.forget(ledger_id)
