"""Reads: from memory, from entry logs and from the read cache, in batches."""

from __future__ import annotations

from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import IndexFactory

from bkctl.world import World
from tests.unit.daemon.bookie.world import (
    NO_ENTRY,
    NO_LEDGER,
    OK,
    entry,
    running,
)


async def test_entries_are_read_from_memory_entry_log_and_read_cache(
    place: tuple[BookieConfig, World, IndexFactory],
) -> None:
    async with running(*place) as calls:
        assert await calls.add(5, range(100)) == [OK] * 100
        assert await calls.has(5, range(100)), "from memory"
        await calls.bookie.flush()
        assert await calls.has(5, range(100)), "from the entry log"
        assert await calls.has(5, range(100)), "from the read cache"
        assert await calls.read(5, -1) == [(OK, entry(5, 99))]
        assert await calls.read(5, 100, -7) == [(NO_ENTRY, None)] * 2
        assert await calls.read(6, 0, -1) == [(NO_LEDGER, None)] * 2
        assert calls.bookie.list_entries(5) == (OK, list(range(100)))
        assert calls.bookie.list_entries(6) == (NO_LEDGER, [])
        assert calls.bookie.last_confirmed(5) == 98
        assert calls.bookie.last_confirmed(6) == -1
