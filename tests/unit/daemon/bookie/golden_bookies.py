"""Directories of Java's bookies, as bookies of ours open them."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.bookie.config import BookieConfig

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import decode_entry
from tests.golden import Golden
from tests.unit.daemon.bookie.world import NO_LEDGER, OK, Calls, config_in

CLEAN = ("bookie0", "bookie1", "bookie2", "bookie3", "bookie4", "direct_io", "gc_cache_transactional", "several_dirs")
INSTANCE = "7f0c2f8e-0000-4000-8000-000000000001"


def config_of(name: str, folder: Path) -> BookieConfig:
    if name != "several_dirs":
        return config_in(folder, index_directories=(str(folder / "index"),))
    return config_in(
        folder,
        journal_directories=tuple(str(folder / f"journal{n}") for n in range(2)),
        ledger_dirs=tuple(str(folder / f"ledgers{n}") for n in range(3)),
        index_directories=tuple(str(folder / f"index{n}") for n in range(3)),
    )


async def holds_all(calls: Calls, golden: Golden, name: str, *, only_if_there: bool = False) -> int:
    """Checks every entry that the manifest says is on this bookie; returns their number."""
    row = golden.bookie_row(name)
    bookie_id = row.get("id", f"127.0.0.1:{32810 + row['bookie']}")
    count = 0
    for ledger in golden.ledgers(name).values():
        if ledger.deleted:
            if name == "gc_cache_transactional":
                assert [status for status, _ in await calls.read(ledger.id, 0)] == [NO_LEDGER], "Java collected it"
            continue
        entries = [e for e in range(ledger.row["entries"]) if bookie_id in ledger.bookies_of(e)]
        digest = digest_for(ledger.digest_type, ledger.password)
        for entry_id, (status, body) in zip(entries, await calls.read(ledger.id, *entries), strict=True):
            if status != OK and (only_if_there or ledger.row["state"] != "CLOSED"):
                continue  # this bookie need not have it
            assert status == OK, f"entry {entry_id} of ledger {ledger.id}"
            assert body is not None
            found = decode_entry(body, digest, ledger.id, entry_id)
            assert found.payload == ledger.payload(entry_id)
            count += 1
    return count
