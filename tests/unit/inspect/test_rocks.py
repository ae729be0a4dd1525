"""RocksDB read beside a writer, without a trace, and what happens where it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bkinspect.ledger_index import IndexDir, entries, ledgers, log_metadata
from bkinspect.rocks import is_database, open_database
from rocksdict import Options, Rdict

from bkctl.codec.ledger_index import (
    LEDGERS,
    LOCATIONS,
    LedgerData,
    LogMetadata,
    decode_ledger_data,
    decode_ledger_key,
    decode_location,
    decode_location_key,
    decode_log_metadata,
    encode_ledger_data,
    encode_location,
    encode_log_metadata,
    ledger_key,
    location_key,
    rebuilt_ledger_key,
)
from bkctl.errors import Corrupt, NotFound
from tests.golden import ALL, Golden


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Any]:
    """A bookie's databases, open for writing while the test reads them."""
    databases = [Rdict(str(tmp_path / name), Options(raw_mode=True)) for name in ("locations", "ledgers")]
    yield databases
    for database in databases:
        database.close()


def index(folder: Path) -> IndexDir:
    return IndexDir(folder, "rocksdb")


def test_a_database_that_is_being_written(writer: Any, tmp_path: Path) -> None:
    locations, known = writer
    known[ledger_key(5)] = encode_ledger_data(LedgerData(b"k" * 20))
    for entry_id in range(3000):
        locations[location_key(5, entry_id)] = encode_location(1000 + entry_id)
    before = {p.name for p in tmp_path.rglob("*")}
    assert len(list(entries(index(tmp_path), 5))) == 3000
    locations.flush()
    locations.compact_range(None, None)
    locations[location_key(5, 3000)] = encode_location(7)
    assert [row.offset for row in entries(index(tmp_path), 5)][-2:] == [3999, 7]
    assert "rocksdict-config.json" in before  # the writer's own
    names = {p.name for p in tmp_path.rglob("*") if not p.name.startswith(("0", "MANIFEST", "OPTIONS"))}
    assert names <= before


def test_reading_starts_before_a_compaction_removes_the_tables(writer: Any, tmp_path: Path) -> None:
    locations, _ = writer
    for entry_id in range(2000):
        locations[location_key(1, entry_id)] = encode_location(1)
        if entry_id % 500 == 0:
            locations.flush()
    rows = entries(index(tmp_path), 1)
    assert next(rows).entry_id == 0
    locations.flush()
    locations.compact_range(None, None)
    assert sum(1 for _ in rows) == 1999


def test_rows_that_java_leaves(writer: Any, tmp_path: Path) -> None:
    locations, known = writer
    known[ledger_key(5)] = encode_ledger_data(LedgerData(b"k" * 20))
    known[rebuilt_ledger_key(5)] = encode_ledger_data(LedgerData(b"", fenced=True))  # hides the row before it
    known[ledger_key(6)] = encode_ledger_data(LedgerData(b"", limbo=True))
    known[b"\xff" * 6 + b"\x11\x03"] = bytes(7) + b"\x01"  # storage flags: no ledger
    locations[location_key(4, 9)] = encode_location(1)  # entries whose ledger was removed first
    locations[location_key(6, 2)] = encode_location(1)
    found = [(r.ledger_id, r.exists, r.fenced, r.limbo, r.entries, r.password_set) for r in ledgers(index(tmp_path))]
    assert found == [
        (4, False, None, None, 1, None),
        (5, True, True, False, 0, None),
        (6, True, False, True, 1, None),
    ]


def test_a_row_that_cannot_be_decoded(writer: Any, tmp_path: Path) -> None:
    locations, known = writer
    known[ledger_key(5)] = b"\x08"
    locations[b"short"] = bytes(8)
    for _ in range(2):  # first the ledger, then the entry
        with pytest.raises(Corrupt) as caught:
            list(ledgers(index(tmp_path)))
        assert caught.value.source.startswith(str(tmp_path))
        known[ledger_key(5)] = encode_ledger_data(LedgerData())


def test_no_database(tmp_path: Path) -> None:
    assert not is_database(tmp_path)
    with pytest.raises(NotFound), open_database(tmp_path):
        pass
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(Corrupt), open_database(tmp_path):
        pass


def test_metadata_cache_of_java(golden: Golden) -> None:
    folder = golden.bookie("gc_cache_transactional") / "ledgers"
    rows = list(log_metadata(folder))
    assert rows
    for row in rows:
        assert isinstance(row, LogMetadata)
        assert row.total_size >= row.remaining_size >= sum(row.ledgers.values()) > 0
    assert not (folder / "current/metadata-cache/rocksdict-config.json").exists()


def rows_of(folder: Path) -> dict[bytes, bytes]:
    with open_database(folder) as database:
        return dict(database.items())


@pytest.mark.parametrize("name", ALL)
def test_rows_of_java_are_written_again_to_the_same_bytes(golden: Golden, name: str) -> None:
    for folder in golden.bookie(name).glob("index*/current"):
        if not is_database(folder / LOCATIONS):
            continue
        known, places = rows_of(folder / LEDGERS), rows_of(folder / LOCATIONS)
        for key, value in known.items():
            assert key == ledger_key(decode_ledger_key(key, source="key"))
            assert encode_ledger_data(decode_ledger_data(value, source="row")) == value
        for key, value in places.items():
            assert location_key(*decode_location_key(key, source="key")) == key
            assert encode_location(decode_location(value, source="row")) == value
        assert {decode_location_key(key, source="key")[0] for key in places} <= {
            decode_ledger_key(key, source="key") for key in known
        }
        caches = [p for p in golden.bookie(name).glob("ledgers*/current/metadata-cache") if is_database(p)]
        assert bool(caches) == (name == "gc_cache_transactional")
        for cache in caches:
            for value in rows_of(cache).values():
                assert encode_log_metadata(decode_log_metadata(value, source="row")) == value
