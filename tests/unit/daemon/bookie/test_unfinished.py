"""Copies of an unfinished compaction of Java's bookie: completed if the index points to them, else removed."""

from __future__ import annotations

import pytest
from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.index import memory_index

from bkctl.codec.data_dir import LAST_ID_NAME, encode_last_id
from bkctl.codec.entry_log import compacted_name, compacting_name, encode_location, log_name, split_location
from bkctl.codec.ledger_index import encode_location as encode_row
from bkctl.codec.ledger_index import location_key
from bkctl.world import Disk
from tests.sim.disk import SimDisk
from tests.sim.loop import PowerCut
from tests.unit.daemon.bookie.world import HERE, Calls, config_in, running, sim_disk, world_on

CURRENT = HERE / "ledgers" / "current"
LEDGER, OLD, NEW = 6, 0, 0x1F4
COPY = CURRENT / compacted_name(NEW, OLD)
CONFIG = config_in(HERE)


async def written(disk: SimDisk) -> bytes:
    """A bookie with entries in log OLD, stopped; that log's bytes, which a copy of all of it has too."""
    world = world_on(disk.door(lambda: True))
    async with running(CONFIG, world, memory_index(world.disk)) as calls:
        await calls.add(LEDGER, range(30))
        await calls.bookie.flush()
        (row,) = calls.bookie.storage.shards()[0].index.locations([location_key(LEDGER, 0)])
        assert split_location(row)[0] == OLD
    world.disk.replace(CURRENT / LAST_ID_NAME, encode_last_id(NEW))  # written when the copy was begun
    return world.disk.read(CURRENT / log_name(OLD))


def point_to_the_copy(disk: SimDisk) -> None:
    """The rows as Java's batch writes them."""
    index = memory_index(disk.door(lambda: True))(CURRENT)
    batch = index.batch()
    keys = [location_key(LEDGER, entry_id) for entry_id in range(30)]
    for key, location in zip(keys, index.locations(keys), strict=True):
        batch.put(key, encode_row(encode_location(NEW, split_location(location)[1])))
    index.commit(batch)
    index.close()


def logs(door: Disk) -> set[str]:
    return {name for name in door.names(CURRENT) if ".log" in name}


async def starts(disk: SimDisk) -> set[str]:
    """A bookie starts and serves every entry; the logs that it has then, and what is written goes to a new one."""
    world = world_on(disk.door(lambda: True))
    async with running(CONFIG, world, memory_index(world.disk)) as calls:
        assert await calls.has(LEDGER, range(30))
        found = logs(world.disk)
        await add_more(calls)
        (begun,) = logs(world.disk) - found
        assert int(begun.removesuffix(".log"), 16) > NEW, "no id is taken twice"
    return found


async def add_more(calls: Calls) -> None:
    bookie: Bookie = calls.bookie
    await calls.add(LEDGER, [30])
    await bookie.flush()


async def test_a_partial_copy_is_removed() -> None:
    disk = sim_disk()
    data = await written(disk)
    disk.door(lambda: True).replace(CURRENT / compacting_name(NEW), data[:-5])
    assert await starts(disk) == {log_name(OLD)}


@pytest.mark.parametrize("linked", [False, True])
async def test_a_copy_without_rows_is_removed(linked: bool) -> None:
    disk = sim_disk()
    data = await written(disk)
    disk.door(lambda: True).replace(COPY, data)
    if linked:
        disk.door(lambda: True).replace(CURRENT / log_name(NEW), data)
    assert await starts(disk) == {log_name(OLD)}


@pytest.mark.parametrize("linked", [False, True])
async def test_a_copy_with_rows_becomes_a_log(linked: bool) -> None:
    disk = sim_disk()
    data = await written(disk)
    disk.door(lambda: True).replace(COPY, data)
    if linked:
        disk.door(lambda: True).replace(CURRENT / log_name(NEW), data)
    point_to_the_copy(disk)
    assert await starts(disk) == {log_name(OLD), log_name(NEW)}


@pytest.mark.parametrize("linked", [False, True])
async def test_a_copy_is_kept_as_a_log_if_the_original_is_missing(linked: bool) -> None:
    disk = sim_disk()
    door, data = disk.door(lambda: True), await written(disk)
    door.replace(COPY, data)
    if linked:
        door.replace(CURRENT / log_name(NEW), data)
    door.remove(CURRENT / log_name(OLD))
    world = world_on(door)
    async with running(CONFIG, world, memory_index(door)):
        assert logs(door) == {log_name(NEW)}
        assert door.read(CURRENT / log_name(NEW)) == data


async def test_a_damaged_copy_and_files_with_other_names_are_kept() -> None:
    disk = sim_disk()
    data = await written(disk)
    door = disk.door(lambda: True)
    door.replace(COPY, data[:1024] + b"\x7f" * 64 + data[1088:])
    door.replace(CURRENT / "x.log.y.compacted", b"")
    assert await starts(disk) == {log_name(OLD), COPY.name, "x.log.y.compacted"}


async def test_a_power_cut_at_any_moment_loses_nothing() -> None:
    for counts in (False, True):
        cuts = 0
        for moment in range(1, 100):
            disk, on = sim_disk(moment), [True]
            data = await written(disk)
            disk.door(lambda: True).replace(COPY, data)
            if counts:
                point_to_the_copy(disk)
            world = world_on(disk.door(lambda on=on: on[0]))  # type: ignore[misc]
            disk.on_fail, disk.fail_at = (lambda on=on: on.__setitem__(0, False)), moment  # type: ignore[misc]
            try:
                async with running(CONFIG, world, memory_index(world.disk), crash=True):
                    pass
            except PowerCut:
                cuts += 1
            disk.lose_power()
            wanted = {log_name(OLD), log_name(NEW)} if counts else {log_name(OLD)}
            assert await starts(disk) == wanted, f"cut at change {moment}"
            if on[0]:
                break
        assert cuts, counts
