"""Every ledger of the manifest, read from the bookies' directories by index and log, equals what was written."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from bkinspect.ledger_index import IndexDir, IndexRow, entries, find_indexes, ledgers

from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.entry import decode_entry
from bkctl.model.entry import Entry
from tests.golden import ALL, VARIANTS, Golden, GoldenLedger

CLEAN = [name for name in ALL if not name.endswith(".killed")]
ENTRY_LOG_DIRS = {"index": "ledgers", "index0": "ledgers0", "index1": "ledgers1", "index2": "ledgers2"}


def read(index: IndexDir, row: IndexRow, ledger: GoldenLedger) -> Entry:
    """One entry, by the log that its index row names, with its digest checked."""
    bookie = index.path.parents[1]
    log = bookie / ENTRY_LOG_DIRS[index.path.parent.name] / "current" / row.log
    with log.open("rb") as file:
        file.seek(row.offset - 4)
        size = int.from_bytes(file.read(4), "big")
        body = file.read(size)
    return decode_entry(body, digest_for(ledger.digest_type, ledger.password), ledger.id, row.entry_id)


def holders(golden: Golden, names: list[str]) -> dict[int, dict[int, set[str]]]:
    """ledger → entry → ids of the bookies that hold it; every entry is read and compared with the manifest."""
    found: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        bookie_id = golden.bookie_row(name)["id"]
        for index in find_indexes(golden.bookie(name)):
            for ledger in golden.ledgers(name).values():
                for row in entries(index, ledger.id):
                    entry = read(index, row, ledger)
                    assert entry.payload == ledger.payload(row.entry_id)
                    assert entry.length == ledger.length(row.entry_id)
                    found[ledger.id][row.entry_id].add(bookie_id)
    return found


@pytest.mark.parametrize("names", [[n for n in CLEAN if n not in VARIANTS], list(VARIANTS)], ids=["golden", "variants"])
def test_every_ledger_is_whole_on_its_write_sets(golden: Golden, names: list[str]) -> None:
    found = holders(golden, names)
    for ledger in golden.ledgers(names[0]).values():
        if ledger.deleted:
            continue
        metadata = ledger.metadata
        last = metadata.last_entry_id if metadata.closed else ledger.row["entries"] - 1
        assert max(found[ledger.id], default=-1) == last
        for entry_id in range(last + 1):
            expected, holding = ledger.bookies_of(entry_id), found[ledger.id][entry_id]
            copies = metadata.write_quorum_size if metadata.closed else metadata.ack_quorum_size
            assert len(expected & holding) >= copies, (ledger.id, entry_id)
            # Only a bookie that was replaced in the ensemble keeps copies that metadata no longer names.
            assert holding <= expected or len(metadata.ensembles) > 1, (ledger.id, entry_id)


@pytest.mark.parametrize("name", CLEAN)
def test_ledgers_of_an_index(golden: Golden, name: str) -> None:
    known = golden.ledgers(name)
    for index in find_indexes(golden.bookie(name)):
        listed = list(ledgers(index))
        assert [row.ledger_id for row in listed] == sorted({row.ledger_id for row in listed})
        for row in listed:
            found = [entry.entry_id for entry in entries(index, row.ledger_id)]
            assert (row.entries, row.first_entry_id, row.last_entry_id) == (
                len(found),
                found[0] if found else None,
                found[-1] if found else None,
            )
            if row.ledger_id in known and row.exists:
                password = known[row.ledger_id].password
                assert row.master_key == master_key(password)
                assert row.password_set == bool(password)


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    return {
        str(p.relative_to(folder)): (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_nlink)
        for p in folder.rglob("*")
        for s in [p.stat()]
    }


@pytest.mark.parametrize("name", ["bookie0", "bookie1.killed", "bookie5"])
def test_reading_leaves_no_trace(golden: Golden, name: str, tmp_path: Path) -> None:
    folder = golden.unpack(name, tmp_path / "bookie")
    before = snapshot(folder)
    for index in find_indexes(folder):
        for row in ledgers(index):
            list(entries(index, row.ledger_id))
    assert snapshot(folder) == before
