"""One contract for both indexes; what a crash may cost; tables that Java's RocksDB can read."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import MEMORY_INDEX_NAME, Index, MemoryIndex, RocksIndex, memory_index, rocks_index

from bkctl.codec.ledger_index import encode_location, location_key, rebuilt_ledger_key
from bkctl.errors import Corrupt, Refused
from bkctl.world import real_world
from tests.sim.disk import SimDisk
from tests.sim.trace import Trace
from tests.unit.daemon.bookie.world import sim_disk

Open = Callable[[], Index]


@pytest.fixture(params=["memory", "rocksdb"])
def open_index(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    factory = memory_index(real_world().disk) if request.param == "memory" else rocks_index(BookieConfig())
    return lambda: factory(tmp_path)


def put(index: Index, ledger_id: int, *entry_ids: int, location: int = 1028) -> None:
    batch = index.batch()
    for entry_id in entry_ids:
        batch.put(location_key(ledger_id, entry_id), encode_location(location + entry_id))
    index.commit(batch)


def test_locations(open_index: Open) -> None:
    index = open_index()
    put(index, 5, 2, 0, 7)
    put(index, 6, 1)
    put(index, 2**62, 3)
    assert index.locations([location_key(5, e) for e in (0, 1, 2, 7)]) == [1028, 0, 1030, 1035]
    assert [index.last_entry(i) for i in (4, 5, 6, 7, 2**62)] == [-1, 7, 1, -1, 3]
    assert index.entry_ids(5) == [0, 2, 7]
    assert index.entry_ids(4) == []
    put(index, 5, 2, location=5000)
    assert index.locations([location_key(5, 2)]) == [5002], "the last one counts"
    index.close()
    index = open_index()
    assert index.entry_ids(5) == [0, 2, 7], "durable"
    index.close()


def test_ledgers(open_index: Open) -> None:
    index = open_index()
    assert index.load_ledgers() == {}
    index.store_ledgers({5: b"five", 6: b"six"})
    index.store_ledgers({5: b"FIVE"})
    index.store_ledgers({})
    put(index, 5, 0, 1)
    put(index, 6, 0)
    index.remove_ledgers([5, 99])
    index.close()
    index = open_index()
    assert index.load_ledgers() == {6: b"six"}
    assert index.last_entry(5) == -1
    assert index.last_entry(6) == 0
    index.close()


def test_an_empty_batch(open_index: Open) -> None:
    index = open_index()
    index.commit(index.batch())
    index.close()


def test_the_memory_index_loses_only_unsynced_rows() -> None:
    for seed in range(40):
        disk = sim_disk(seed)
        door = disk.door(lambda: True)
        door.make_dirs(Path("/i"))
        index = MemoryIndex(door, Path("/i"))
        put(index, 5, *range(50))
        file = door.open(Path("/i") / MEMORY_INDEX_NAME, write=True)
        file.pwrite(bytes(range(256)) * 8, file.size())  # of a write in progress
        disk.lose_power()
        door = disk.door(lambda: True)
        index = MemoryIndex(door, Path("/i"))
        assert index.entry_ids(5) == list(range(50))
        put(index, 5, 50)
        disk.lose_power()
        assert MemoryIndex(disk.door(lambda: True), Path("/i")).entry_ids(5) == list(range(51))


class FailingSyncs(SimDisk):
    """A disk whose syncs fail while `failing` is set; writes do not."""

    failing = False

    def changing(self, growth: int = 0) -> None:
        if self.failing and growth <= 0:
            raise OSError(errno.EIO, "input/output error")
        super().changing(growth)


@pytest.mark.parametrize("restart", [False, True])
def test_memory_keeps_rows_whose_sync_failed_before_a_later_one_succeeded(restart: bool) -> None:
    """Linux drops the pages of a failed sync, and the next sync reports success without them."""
    disk = FailingSyncs(Random(1), Trace(lambda: 0.0), "b0")
    disk.door(lambda: True).make_dirs(Path("/i"))
    index = MemoryIndex(disk.door(lambda: True), Path("/i"))
    put(index, 5, 0)
    unsynced = index.batch()
    unsynced.put(location_key(5, 1), encode_location(2000))
    index.commit(unsynced, sync=False)
    disk.failing = True
    with pytest.raises(OSError, match="input/output error"):
        index.store_ledgers({5: b"row"})
    disk.failing = False
    if restart:
        index = MemoryIndex(disk.door(lambda: True), Path("/i"))
    index.store_ledgers({5: b"row"})
    stored = index.state()
    disk.lose_power()
    index = MemoryIndex(disk.door(lambda: True), Path("/i"))
    assert index.entry_ids(5) == [0, 1]
    assert index.load_ledgers() == {5: b"row"}
    assert index.state() == stored


def test_rows_of_the_rebuild_tool_win_until_they_are_written_again(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path, BookieConfig())
    index.store_ledgers({5: b"ours"})
    index._ledgers.put(rebuilt_ledger_key(5), b"rebuilt")
    assert index.load_ledgers() == {5: b"rebuilt"}, "as in Java"
    index.store_ledgers({5: b"ours again"})
    assert index.load_ledgers() == {5: b"ours again"}
    index._ledgers.put(rebuilt_ledger_key(5), b"rebuilt")
    index.remove_ledgers([5])
    assert index.load_ledgers() == {}
    index.close()


def test_tables_have_the_format_that_java_reads(tmp_path: Path) -> None:
    for _ in range(2):  # also of a database that exists
        index = RocksIndex(tmp_path, BookieConfig())
        put(index, 5, *range(1000))
        index.store_ledgers(dict.fromkeys(range(100), b"x" * 30))
        index._locations.flush()
        index._ledgers.flush()
        index.close()
    tables = sorted(tmp_path.rglob("*.sst"))
    assert {t.parent.name for t in tables} == {"locations", "ledgers"}
    assert {struct.unpack_from("<i", t.read_bytes()[-12:])[0] for t in tables} == {5}


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path, BookieConfig())
    with pytest.raises(Refused, match="another process"):
        RocksIndex(tmp_path, BookieConfig())
    index.close()


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    RocksIndex(tmp_path, BookieConfig()).close()
    (tmp_path / "locations/CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(Corrupt, match="locations"):
        RocksIndex(tmp_path, BookieConfig())
