"""Indexes against logs and journals: rows without an entry, entries without a row, keys and ledgers that differ."""

from __future__ import annotations

from pathlib import Path

from bkinspect.fsck import files_of
from bkinspect.ledger_index import IndexRow, entries, ledgers
from rocksdict import Options, Rdict

from bkctl.codec.ledger_index import decode_ledger_data, encode_ledger_data, ledger_key, location_key
from tests.golden import Golden
from tests.unit.inspect.bookie_check import CAPTURED, codes, findings


def databases(folder: Path) -> tuple[Rdict, Rdict]:
    """Locations and ledgers, for writing."""
    current = folder / "index" / "current"
    locations, known = (Rdict(str(current / name), Options(raw_mode=True)) for name in ("locations", "ledgers"))
    return locations, known


def close(*open_ones: Rdict) -> None:
    for database in open_ones:
        database.close()


def rows_of(folder: Path) -> list[IndexRow]:
    (index,) = files_of([folder]).indexes
    return [row for ledger in ledgers(index) for row in entries(index, ledger.ledger_id) if row.ledger_id < CAPTURED]


def test_an_entry_without_a_row(golden: Golden, folder: Path) -> None:
    lost = rows_of(folder)[-1]
    locations, known = databases(folder)
    del locations[location_key(lost.ledger_id, lost.entry_id)]
    close(locations, known)
    found = findings(golden, "bookie0", folder)
    assert {f.code for f in found} == {"BKC304", "BKC306"}, "the log has it, and the journal before the mark"
    assert {(f.ledger_id, f.entry_id) for f in found} == {(lost.ledger_id, lost.entry_id)}
    (in_log,) = (f for f in found if f.code == "BKC304")
    assert (in_log.offset, in_log.evidence["found"]) == (lost.offset, "none")
    assert in_log.file is not None
    assert in_log.file.endswith(lost.log)


def test_what_the_journal_replays_is_missed_nowhere(golden: Golden, folder: Path) -> None:
    lost = rows_of(folder)[-1]
    locations, known = databases(folder)
    del locations[location_key(lost.ledger_id, lost.entry_id)]
    close(locations, known)
    for mark in folder.rglob("lastMark"):
        mark.write_bytes(bytes(16))
    assert codes(golden, "bookie0", folder) == set()


def test_a_row_without_an_entry(golden: Golden, folder: Path) -> None:
    rows = rows_of(folder)
    one, other = rows[0], rows[-1]
    locations, known = databases(folder)
    locations[location_key(one.ledger_id, one.entry_id)] = locations[location_key(other.ledger_id, other.entry_id)]
    close(locations, known)
    (found,) = findings(golden, "bookie0", folder)
    assert (found.code, found.ledger_id, found.entry_id) == ("BKC303", one.ledger_id, one.entry_id)
    assert f"entry {other.entry_id} of ledger {other.ledger_id}" in str(found.evidence["found"])


def test_a_log_that_is_gone(golden: Golden, folder: Path) -> None:
    gone = rows_of(folder)[0].log
    (folder / "ledgers" / "current" / gone).unlink()
    found = findings(golden, "bookie0", folder)
    assert {f.code for f in found} == {"BKC303"}
    assert {f.evidence["found"] for f in found} == {f"no {gone}"}


def test_a_key_that_was_changed_and_a_ledger_that_was_forgotten(golden: Golden, folder: Path) -> None:
    first, last = rows_of(folder)[0].ledger_id, rows_of(folder)[-1].ledger_id
    locations, known = databases(folder)
    data = decode_ledger_data(known[ledger_key(first)], source="")
    known[ledger_key(first)] = encode_ledger_data(type(data)(b"\1" * 20, data.fenced, data.explicit_lac, data.limbo))
    del known[ledger_key(last)]
    close(locations, known)
    found = {f.code: f.ledger_id for f in findings(golden, "bookie0", folder)}
    assert found == {"BKC307": first, "BKC305": last}
