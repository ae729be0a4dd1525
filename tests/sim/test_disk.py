"""The disk that forgets: what a sync promises, and what a power cut may and may not do."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.disk import SECTOR, SimDisk
from tests.sim.loop import PowerCut
from tests.sim.trace import Trace

DIR = Path("/data")
FILE = DIR / "a"


def new_disk(seed: int = 1) -> SimDisk:
    disk = SimDisk(Random(seed), Trace(lambda: 0.0), "m")
    disk.door(lambda: True).make_dirs(DIR)
    return disk


def test_synced_bytes_outlive_power_cuts() -> None:
    for seed in range(50):
        disk = new_disk(seed)
        file = disk.door(lambda: True).open(FILE, create=True)
        file.pwrite(b"x" * 2000, 0)
        file.sync()
        file.pwrite(b"y" * 2000, 2000)
        disk.lose_power()
        assert disk.door(lambda: True).read(FILE)[:2000] == b"x" * 2000


def test_unsynced_writes_are_kept_torn_or_lost() -> None:
    found = set()
    for seed in range(300):
        disk = new_disk(seed)
        file = disk.door(lambda: True).open(FILE, create=True)
        file.allocate(0, 4 * SECTOR)
        file.sync()
        file.pwrite(b"y" * 3 * SECTOR, 0)
        assert file.pread(10, 0) == b"y" * 10
        disk.lose_power()
        found.add(disk.door(lambda: True).read(FILE))
    sectors = {bytes(data[i] for i in range(0, 4 * SECTOR, SECTOR)) for data in found}
    assert {b"\0\0\0\0", b"yyy\0", b"y\0\0\0", b"yy\0\0"} <= sectors
    assert b"\0y\0\0" in sectors, "sectors come in any order"
    assert all(set(data[i : i + SECTOR]) in ({0}, {ord("y")}) for data in found for i in range(0, 4 * SECTOR, SECTOR))


def test_a_killed_process_loses_nothing_and_writes_nothing_more() -> None:
    disk = new_disk()
    alive = True
    file = disk.door(lambda: alive).open(FILE, create=True)
    file.pwrite(b"kept", 0)
    alive = False
    file.pwrite(b"late", 0)
    assert disk.door(lambda: True).read(FILE) == b"kept"


def test_a_lying_sync_promises_nothing() -> None:
    lost = 0
    for seed in range(50):
        disk = new_disk(seed)
        disk.lie_from_now()
        file = disk.door(lambda: True).open(FILE, create=True)
        file.pwrite(b"z" * 100, 0)
        file.sync()
        disk.lose_power()
        assert disk.lied
        lost += disk.door(lambda: True).read(FILE) != b"z" * 100
    assert lost


def test_replace_is_whole_and_durable_and_a_removal_may_come_back() -> None:
    back = set()
    for seed in range(30):
        disk = new_disk(seed)
        door = disk.door(lambda: True)
        door.replace(FILE, b"old")
        door.replace(FILE, b"new")
        door.replace(DIR / "b", b"b")
        door.remove(DIR / "b")
        disk.lose_power()
        assert door.read(FILE) == b"new"
        back.add(door.exists(DIR / "b"))
        door.replace(DIR / "c", b"c")
        assert door.names(DIR)[-1] == "c"
    assert back == {True, False}


def test_a_removal_is_durable_after_the_next_sync_of_its_directory() -> None:
    for seed in range(30):
        disk = new_disk(seed)
        door = disk.door(lambda: True)
        door.replace(FILE, b"x")
        door.remove(FILE)
        door.replace(DIR / "other", b"y")
        disk.lose_power()
        assert not door.exists(FILE)


def test_a_full_disk_and_a_failing_one() -> None:
    disk = new_disk()
    door = disk.door(lambda: True)
    file = door.open(FILE, create=True)
    disk.capacity = 1000
    file.pwrite(b"x" * 900, 0)
    with pytest.raises(OSError, match="no space") as full:
        file.pwrite(b"x" * 200, 900)
    assert full.value.errno == errno.ENOSPC
    assert door.usage(DIR) == (1000, 100)
    disk.error_chance = 1.0
    with pytest.raises(OSError, match="input/output"):
        file.sync()
    disk.error_chance = 0.0
    file.sync()
    disk.lose_power()
    assert door.read(FILE) == b"", "what a failed sync dropped, a later one does not bring back"


def test_a_power_cut_in_the_middle_of_work() -> None:
    disk = new_disk()
    file = disk.door(lambda: True).open(FILE, create=True)
    disk.on_fail = disk.lose_power
    disk.fail_at = 2
    file.pwrite(b"x", 0)
    with pytest.raises(PowerCut):
        file.sync()


def test_locks_are_exclusive_and_end_with_the_power() -> None:
    disk = new_disk()
    door = disk.door(lambda: True)
    release = door.lock(DIR / "lock")
    assert release is not None
    assert door.lock(DIR / "lock") is None
    release()
    assert door.lock(DIR / "lock") is not None
    disk.lose_power()
    assert door.lock(DIR / "lock") is not None


def test_errors_are_those_of_the_system() -> None:
    door = new_disk().door(lambda: True)
    for call in (lambda: door.open(FILE), lambda: door.read(FILE), lambda: door.remove(FILE), lambda: door.size(FILE)):
        with pytest.raises(FileNotFoundError):
            call()
    with pytest.raises(FileNotFoundError):
        door.open(Path("/nowhere/a"), create=True)
    with pytest.raises(FileNotFoundError):
        door.names(Path("/nowhere"))
    door.open(FILE, create=True)
    with pytest.raises(FileExistsError):
        door.open(FILE, exclusive=True)
    with pytest.raises(OSError, match="bad file"):
        door.open(FILE).pwrite(b"x", 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("write", "grow", "cut", "sync")), st.integers(0, 40), st.binary(max_size=20)),
        max_size=20,
    ),
    st.integers(0, 9),
)
def test_reads_are_those_of_a_plain_file_until_the_power_goes(steps: list[tuple[str, int, bytes]], seed: int) -> None:
    disk = new_disk(seed)
    file = disk.door(lambda: True).open(FILE, create=True)
    model = bytearray()
    synced = b""
    for kind, offset, data in steps:
        if kind == "write":
            file.pwrite(data, offset)
            model.extend(bytes(max(0, offset - len(model)))) if data else None
            model[offset : offset + len(data)] = data
        elif kind == "grow":
            file.allocate(0, offset)
            model.extend(bytes(max(0, offset - len(model))))
        elif kind == "cut":
            file.truncate(offset)
            del model[offset:]
            model.extend(bytes(offset - len(model)))
        else:
            file.sync()
            synced = bytes(model)
        assert file.pread(100, 0) == bytes(model)
        assert file.size() == len(model)
    if steps and steps[-1][0] == "sync":
        disk.lose_power()
        assert disk.door(lambda: True).read(FILE) == synced
