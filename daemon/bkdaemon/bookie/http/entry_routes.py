"""The route of Java's HTTP port for the entries of a ledger, of any bookie: as US-ASCII text.

The ledger is opened without fencing. A bookie has no client of its own, so one is created for each request.
Source: ReadLedgerEntryService.java; BookKeeperAdmin.java (LedgerEntriesIterator).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bkctl.errors import Refused
from bkctl.meta.bookies import BookieRegistry
from bkdaemon.http_server import Answer, Request, Route, json_text

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.world import World
    from bkdaemon.bookie.config import BookieConfig

PATH: Final = "/api/v1/ledger/read"
PAGE_ENTRIES: Final = 1_000
ANSWER_BYTES_MAX: Final = 64 << 20
"""Bytes of payload in one answer; more is a 500. Java has no bound, and runs out of memory."""
READS_MAX: Final = 2
"""Requests that read entries at a time; more are a 503."""


class EntryRoutes:
    """The route to entries."""

    def __init__(self, ledgers: LedgerStore, config: BookieConfig, world: World) -> None:
        self._ledgers = ledgers
        self._config = config
        self._world = world
        self._reads = 0

    def routes(self) -> dict[str, Route]:
        """Returns the routes by path."""
        return {PATH: self._read}

    async def _read(self, request: Request) -> Answer:
        asked = request.parameters
        if request.method != "GET" or "ledger_id" not in asked:
            return Answer("Not found method. Should be GET method, with ledger_id provided", 404)
        ledger_id = int(asked["ledger_id"])
        first, last = int(asked.get("start_entry_id", "0")), int(asked.get("end_entry_id", "-1"))
        page = int(asked.get("page", "-1"))
        found: dict[str, str] = {}
        if page > 0:
            start = (page - 1) * PAGE_ENTRIES
            end = start + PAGE_ENTRIES - 1
            first = max(first, start)
            last = end if last == -1 or last > end else last
            found["Entries for page: "] = str(page)
        if last != -1 and first > last:
            words = f"parameter for start_entry_id: {first} and end_entry_id: {last} conflict with page={page}"
            return Answer(words, 500)
        if first < 0:
            raise ValueError(f"entry id {first} is negative")
        if self._reads >= READS_MAX:
            return Answer(f"{READS_MAX} requests are reading entries; retry later", 503)
        self._reads += 1
        try:
            found |= await self._entries(ledger_id, first, last)
            return Answer(await asyncio.to_thread(json_text, found))  # long: not on the event loop
        finally:
            self._reads -= 1

    async def _entries(self, ledger_id: int, first: int, last: int) -> dict[str, str]:
        """Returns the confirmed entries of a range, as text by id; last -1 is the end.

        Raises:
            NoSuchLedger; NoSuchEntry, Unavailable: no bookie returns an entry. Refused: the answer would be too long.
        """
        from bkctl.client.client import BookKeeper  # imported only for a request
        from bkctl.client.config import ClientConfig

        config = ClientConfig.of(dict(self._config.unknown))
        registry = BookieRegistry(self._ledgers.store, self._ledgers.root)
        client = BookKeeper(self._ledgers, registry, self._world, config)
        try:
            metadata, _ = await self._ledgers.read(ledger_id)
            reader = await client.open(ledger_id, metadata.password or b"")
            end = reader.last_confirmed if last == -1 else min(last, reader.last_confirmed)
            found: dict[str, str] = {}
            size = 0
            if first <= end:
                async for entries in reader.read(first, end):
                    size += sum(len(entry.payload) for entry in entries)
                    if size > ANSWER_BYTES_MAX:
                        raise Refused(f"entries {first} to {end} of ledger {ledger_id} are more than one answer holds")
                    found |= {str(entry.entry_id): entry.payload.decode("ascii", "replace") for entry in entries}
            return found
        finally:
            await client.close()
