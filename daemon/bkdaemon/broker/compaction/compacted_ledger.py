"""The compacted ledger of a topic, for reading: found by places in the topic, read in chunks through the cache.

Source: CompactedTopicImpl.java.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from bkctl.codec.managed_ledger import LedgerInfo
from bkctl.codec.pulsar_compacted import COMPACTED_DIGEST, COMPACTED_PASSWORD, decode_compacted
from bkctl.codec.pulsar_entry import publish_time
from bkctl.log.ledgers import LedgerList
from bkctl.log.reads import LedgerReads
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkctl.client.reader import LedgerReader
    from bkctl.log.node import LedgerContext
    from bkctl.log.settings import LedgerSettings

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

PLACES_MAX: Final = 100
"""Entries of which is remembered where in the topic they were."""


class CompactedLedger:
    """One compacted ledger, open. `CompactedLedger.open` makes it.

    Attributes:
        horizon: the last entry of the topic that was compacted; later entries are only in the topic.
        entries, size: how many entries and bytes it has.
    """

    def __init__(
        self, context: LedgerContext, settings: LedgerSettings, reader: LedgerReader, horizon: Position
    ) -> None:
        self.horizon = horizon
        self.ledger_id = reader.ledger_id
        self.entries = reader.last_confirmed + 1
        self.size = max(reader.metadata.length, 0)
        self._reader = reader
        self._places: OrderedDict[int, Position] = OrderedDict()
        self._following: OrderedDict[Position, int] = OrderedDict()  # position after a read → next entry
        info = LedgerInfo(self.ledger_id, self.entries, self.size, 0)
        settings = replace(settings, digest_type=COMPACTED_DIGEST, password=COMPACTED_PASSWORD)
        self._reads = LedgerReads(context.bookkeeper, settings, LedgerList([info]), context.cache)

    @classmethod
    async def open(
        cls, context: LedgerContext, settings: LedgerSettings, ledger_id: int, horizon: Position
    ) -> CompactedLedger:
        """Opens a compacted ledger, which was closed before the cursor named it.

        Raises:
            NoSuchLedger, Unavailable: it cannot be opened.
        """
        return cls(
            context, settings, await context.bookkeeper.open(ledger_id, COMPACTED_PASSWORD, COMPACTED_DIGEST), horizon
        )

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> list[tuple[Position, bytes]]:
        """Entries at or after a place in the topic, at least one if there is one.

        Raises:
            BadBytes, NoSuchEntry, Unavailable: an entry that cannot be had, and why.
        """
        first = await self.index(start)
        if first >= self.entries:
            return []
        read = await self._reads.read(Position(self.ledger_id, first), entries_max, bytes_max)
        found = [decode_compacted(data, source=f"ledger {self.ledger_id}") for _, data in read]
        if found:
            last = found[-1][0]
            _remember(self._following, Position(last.ledger_id, last.entry_id + 1), first + len(found))
        return found

    async def last(self) -> tuple[Position, bytes] | None:
        """Returns the last entry; None if the ledger is empty.

        Raises:
            BadBytes, NoSuchEntry, Unavailable: as `read`.
        """
        return await self._entry(self.entries - 1) if self.entries else None

    async def at_time(self, ms: int) -> Position | None:
        """Where the first entry that was published at or after ms was in the topic; None where all are older.

        Where the last one was published then, it is that one, as with Java's broker.

        Raises:
            BadBytes, NoSuchEntry, Unavailable: as `read`.
        """
        last = await self.last()
        if last is None or (newest := publish_time(last[1])) < ms:
            return None
        if newest == ms:
            return last[0]
        low, high = 0, self.entries - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if publish_time((await self._entry(middle))[1]) >= ms else (middle + 1, high)
        return (await self._entry(low))[0]

    async def index(self, position: Position) -> int:
        """How many entries lie before a place in the topic."""
        known = self._following.get(position)
        if known is not None:
            return known
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if await self._place(middle) >= position else (middle + 1, high)
        return low

    async def _place(self, entry_id: int) -> Position:
        known = self._places.get(entry_id)
        if known is None:
            known = (await self._entry(entry_id))[0]
            _remember(self._places, entry_id, known)
        return known

    async def _entry(self, entry_id: int) -> tuple[Position, bytes]:
        entry = await self._reader.read_entry(entry_id)
        return decode_compacted(bytes(entry.payload), source=f"ledger {self.ledger_id}")

    def forget(self) -> None:
        """It is read no more: what memory has of it may go."""
        self._reads.forget(self.ledger_id)


def _remember(known: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    known[key] = value
    if len(known) > PLACES_MAX:
        known.popitem(last=False)
