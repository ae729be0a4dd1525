"""Payloads, and reading a whole ledger."""

from __future__ import annotations

from bkctl.client.client import BookKeeper
from bkctl.model.entry import Entry

PAYLOADS = [b"entry %d" % i for i in range(1_000)]


async def read_all(bookkeeper: BookKeeper, ledger_id: int, password: bytes = b"") -> list[bytes]:
    reader = await bookkeeper.open(ledger_id, password)
    found: list[Entry] = []
    async for entries in reader.read():
        found += entries
    assert [e.entry_id for e in found] == list(range(len(found)))
    return [e.payload for e in found]
