"""Reads the entries of a managed ledger: from the tail in memory, else in chunks from the bookies, read ahead."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from bkctl.client.reader import LedgerReader
from bkctl.errors import NoSuchEntry
from bkctl.model.topic import Position
from bkdaemon.broker.cache import EntryCache, Found, Tail, read_ahead_entries
from bkdaemon.broker.ledger_list import LedgerList
from bkdaemon.broker.ledger_settings import LedgerSettings

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.client.writer import LedgerWriter

READERS_MAX: Final = 16  # ledgers of one topic whose metadata is remembered


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
        self._chunk_entries: dict[int, int] = {}

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

    async def _from_bookies(self, position: Position, entries_max: int, bytes_max: int) -> Found:
        ledger_id, entry_id = position
        per_chunk = self._per_chunk(ledger_id)
        number, at = divmod(entry_id, per_chunk)
        first, last = self._bounds(ledger_id, number, per_chunk)
        if first + per_chunk < self._ledgers.entries(ledger_id):
            ahead = self._bounds(ledger_id, number + 1, per_chunk)
            self._cache.ahead(ledger_id, *ahead, self._fetch)
        entries = await self._cache.chunk(ledger_id, first, last, self._fetch)
        found: Found = []
        size = 0
        for offset, entry in enumerate(entries[at : at + entries_max]):
            size += len(entry)
            if found and size > bytes_max:
                break
            found.append((Position(ledger_id, entry_id + offset), entry))
        return found

    def _per_chunk(self, ledger_id: int) -> int:
        """Entries of a chunk, settled when a ledger is first read, so that all who read it ask for the same chunks."""
        known = self._chunk_entries.get(ledger_id)
        if known is None:
            known = read_ahead_entries(self._ledgers.entries(ledger_id), self._ledgers.size(ledger_id))
            self._chunk_entries[ledger_id] = known
        return known

    def _bounds(self, ledger_id: int, number: int, per_chunk: int) -> tuple[int, int]:
        first = number * per_chunk
        return first, min(first + per_chunk, self._ledgers.entries(ledger_id)) - 1

    async def _fetch(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        entries: list[bytes] = []
        reader = await self._reader(ledger_id)
        async for batch in reader.read_unconfirmed(first, last):
            entries += [bytes(entry.payload) for entry in batch]
        if len(entries) != last - first + 1:
            raise NoSuchEntry(f"ledger {ledger_id}: {len(entries)} entries of {first} to {last}", ledger_id=ledger_id)
        return entries

    async def _reader(self, ledger_id: int) -> LedgerReader:
        writer = self.writer
        if writer is not None and writer.ledger_id == ledger_id:
            digest = self._bookkeeper.digest_of(writer.metadata, ledger_id, self._settings.password)
            return LedgerReader(self._bookkeeper.context, ledger_id, writer.metadata, 0, digest)
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = await self._bookkeeper.open(ledger_id, self._settings.password, self._settings.digest_type)
            self._readers[ledger_id] = reader
            while len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)
        self._readers.move_to_end(ledger_id)
        return reader

    def forget(self, ledger_id: int) -> None:
        """A ledger was trimmed."""
        self._readers.pop(ledger_id, None)
        self._chunk_entries.pop(ledger_id, None)
        self._cache.forget(ledger_id)
