"""Entry logs at work: locations, rolls with their map, what a restart or an error does to the ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie.entry_log import EntryLogs
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.entry_log import decode_header, decode_ledgers_map, encode_location, records, split_location
from bkctl.errors import BadBytes, Corrupt, NotFound
from bkctl.world import Disk
from tests.sim.disk import DiskDoor
from tests.unit.daemon.bookie.compacting import entry_of
from tests.unit.daemon.bookie.world import entry, sim_disk

HERE = Path("/l")
LIMIT = 8192


@pytest.fixture
def disk() -> Disk:
    door = sim_disk().door(lambda: True)
    door.make_dirs(HERE)
    return door


def logs_on(disk: Disk, limit: int = LIMIT) -> EntryLogs:
    return EntryLogs(disk, HERE, limit, 100)


class Rows:
    """The rows for an index."""

    def __init__(self) -> None:
        self.locations: dict[tuple[int, int], int] = {}

    def put(self, key: bytes, value: bytes) -> None:
        ids = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
        self.locations[ids] = int.from_bytes(value, "big")


def test_appended_entries_are_read(disk: Disk) -> None:
    logs, rows = logs_on(disk), Rows()
    logs.append(5, [(e, entry(5, e, bytes(1000))) for e in range(20)], rows.put)
    logs.append(9, [(3, entry(9, 3))], rows.put)
    logs.sync()
    assert rows.locations[5, 0] == 1028, "after header and size, in log 0"
    for (ledger_id, entry_id), location in rows.locations.items():
        payload = bytes(1000) if ledger_id == 5 else b"payload"
        assert logs.read(location, ledger_id, entry_id) == entry(ledger_id, entry_id, payload)
    assert disk.read(HERE / "lastId") == b"3\n"
    logs.close()


def test_closed_logs_have_a_valid_map(disk: Disk) -> None:
    logs, rows = logs_on(disk), Rows()
    for ledger_id in range(3):
        logs.append(ledger_id, [(e, entry(ledger_id, e, bytes(900))) for e in range(10)], rows.put)
    logs.sync()
    names = [name for name in disk.names(HERE) if name.endswith(".log")]
    assert names == ["0.log", "1.log", "2.log", "3.log", "4.log"]
    for name in names[:-1]:
        data = disk.read(HERE / name)
        header = decode_header(data, source=name)
        sizes: dict[int, int] = {}
        for record in records(data[: header.map_offset], source=name):
            sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + record.size + 4
        assert decode_ledgers_map(data[header.map_offset :], header, source=name) == sizes
        assert header.map_offset <= LIMIT
        assert logs.ledgers_in(int(name[0])) == sizes
    assert decode_header(disk.read(HERE / names[-1]), source="active").map_offset == 0
    assert logs.closed_ids() == [0, 1, 2, 3]
    assert logs.ledgers_in(4).keys() == {2}, "without a map, from the frames"
    logs.close()


def test_the_ledgers_of_an_unreadable_log_are_unknown(disk: Disk) -> None:
    disk.replace(HERE / "0.log", b"BKLX" + bytes(2000))
    disk.replace(HERE / "1.log", b"")
    logs = logs_on(disk)
    with pytest.raises(BadBytes):
        logs.ledgers_in(0)
    assert logs.ledgers_in(1) == {}, "preallocated and never used"


def test_no_log_is_written_twice(disk: Disk) -> None:
    for name in ("5.log", "a.log.compacting", "1f.log.3.compacted", "x.log", "1.logs"):
        disk.replace(HERE / name, b"")
    rows = Rows()
    logs = logs_on(disk)
    logs.append(5, [(0, entry(5, 0))], rows.put)
    logs.abandon()
    logs.append(5, [(0, entry(5, 0))], rows.put)
    logs.sync()
    logs.close()
    logs = logs_on(disk)
    logs.append(5, [(1, entry(5, 1))], rows.put)
    logs.close()
    assert {split_location(location)[0] for location in rows.locations.values()} == {0x21, 0x22}
    disk.replace(HERE / "lastId", b"ff\n")
    logs = logs_on(disk)
    logs.append(5, [(2, entry(5, 2))], rows.put)
    assert split_location(rows.locations[5, 2])[0] == 0x100
    disk.replace(HERE / "lastId", b"nonsense")
    assert logs_on(disk)._next_id == 0x101


def test_reading_ahead_stays_with_the_ledger(disk: Disk) -> None:
    logs, rows = logs_on(disk, 1 << 20), Rows()
    logs.append(5, [(e, entry(5, e)) for e in (0, 1, 2, 4, 5, 50)], rows.put)
    logs.append(6, [(6, entry(6, 6))], rows.put)
    logs.sync()
    body, ahead = logs.read_ahead(rows.locations[5, 0], 5, 0)
    assert body == entry(5, 0)
    assert ahead == {e: entry(5, e) for e in (1, 2, 4, 5)}, "small gaps are those of a striped ensemble"
    assert logs.read_ahead(rows.locations[5, 50], 5, 50)[1] == {}


def test_large_entries_are_read_completely(disk: Disk) -> None:
    logs, rows = logs_on(disk), Rows()
    bodies = {e: entry(5, e, bytes([e]) * 300_000) for e in range(3)}
    logs.append(5, bodies.items(), rows.put)
    logs.sync()
    for entry_id, body in bodies.items():
        assert logs.read(rows.locations[5, entry_id], 5, entry_id) == body
        assert logs.read_ahead(rows.locations[5, entry_id], 5, entry_id)[0] == body


def test_a_location_of_another_entry_is_reported_as_corrupt(disk: Disk) -> None:
    logs, rows = logs_on(disk), Rows()
    logs.append(5, [(0, entry(5, 0)), (1, entry(5, 1))], rows.put)
    logs.sync()
    for location, ledger_id, entry_id in (
        (rows.locations[5, 0], 5, 1),
        (rows.locations[5, 0], 6, 0),
        (rows.locations[5, 0] + 1, 5, 0),
        (encode_location(0, 1 << 20), 5, 0),
    ):
        with pytest.raises(Corrupt, match=r"0\.log"):
            logs.read(location, ledger_id, entry_id)
    with pytest.raises(NotFound, match=r"7\.log"):
        logs.read(encode_location(7, 1028), 5, 0)
    assert logs.remove(0) > 1028
    with pytest.raises(NotFound):
        logs.read(rows.locations[5, 0], 5, 0)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3000), min_size=1, max_size=8)), max_size=6))
def test_every_append_can_be_read(appends: list[tuple[int, list[int]]]) -> None:
    disk = sim_disk().door(lambda: True)
    disk.make_dirs(HERE)
    logs, rows = logs_on(disk), Rows()
    expected: dict[tuple[int, int], bytes] = {}
    for ledger_id, sizes in appends:
        items = [(e, entry(ledger_id, e, bytes([e + 1]) * size)) for e, size in enumerate(sizes)]
        logs.append(ledger_id, items, rows.put)
        expected.update({(ledger_id, e): body for e, body in items})
    logs.sync()
    assert {ids: logs.read(location, *ids) for ids, location in rows.locations.items()} == expected


def test_entries_of_a_failed_flush_are_removed(disk: Disk) -> None:
    logs, rows = logs_on(disk), Rows()
    logs.begin()
    logs.append(5, [(e, entry(5, e, bytes(1000))) for e in range(3)], rows.put)
    logs.sync()
    before = disk.read(HERE / "0.log")
    for _ in range(3):
        logs.begin()
        logs.append(5, [(e, entry(5, e, bytes(1000))) for e in range(3, 40)], Rows().put)
        logs.abandon()
        assert [name for name in disk.names(HERE) if name.endswith(".log")] == ["0.log"]
        assert disk.read(HERE / "0.log") == before
    logs.begin()
    logs.append(5, [(3, entry(5, 3))], rows.put)
    logs.sync()
    assert split_location(rows.locations[5, 3])[0] > 0, "not in a log with an error"
    assert logs.read(rows.locations[5, 0], 5, 0) == entry(5, 0, bytes(1000))


def test_a_new_log_is_not_reported_as_closed() -> None:
    seen: list[list[int]] = []

    class Watched(DiskDoor):
        def open(self, path: Path, *, create: bool = False, write: bool = False, exclusive: bool = False) -> Any:
            file = super().open(path, create=create, write=write, exclusive=exclusive)
            if exclusive:
                seen.append(logs.closed_ids())
            return file

    door = Watched(sim_disk(), lambda: True)
    door.make_dirs(HERE)
    logs = EntryLogs(door, HERE, 8192, 100)
    logs.append(1, [(e, entry_of(e)) for e in range(20)], lambda *_: None)
    assert seen[0] == []
    assert all(number not in ids for number, ids in enumerate(seen))
