"""Start-up: journals are replayed into storage, whatever the disk held at the crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.bookie import identity
from bkdaemon.bookie.index import rocks_index

from bkctl.codec.entry import encode_lac
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import config_of, holds_all
from tests.unit.daemon.bookie.world import (
    DIGEST,
    FENCED,
    HERE,
    OK,
    READ_ONLY,
    config_in,
    flushed,
    running,
    sim_disk,
    world_on,
)


@pytest.mark.parametrize("flush_first", [False, True])
async def test_acknowledged_entries_survive_a_crash(flush_first: bool) -> None:
    for seed in range(20):
        disk = sim_disk(seed)
        config = config_in(HERE)
        world = world_on(disk.door(lambda: True))
        packet = encode_lac(7, 3, DIGEST)
        async with running(config, world, crash=True) as calls:
            await calls.add(5, range(30), payload=bytes(700))
            if flush_first:
                await calls.bookie.flush()
            assert await calls.fence(6) == OK, "a ledger it had not known"
            assert await calls.write_lac(7, packet) == OK
            await calls.add(5, range(30, 60), payload=bytes(700))
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            assert await calls.has(5, range(60), payload=bytes(700))
            assert await calls.add(6, [0]) == [FENCED]
            assert calls.bookie.read_lac(7)[1] == packet
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True))) as calls:
            assert await calls.has(5, range(60), payload=bytes(700)), "replaying twice is replaying once"


async def test_a_start_on_a_full_disk_serves_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.checkpoint.RETRY_S", 0.01)
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
        await calls.add(5, range(30), payload=bytes(20_000))
    disk.capacity = disk.used()
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert "storage" in calls.bookie.admission.reasons
        assert await calls.has(5, range(30), payload=bytes(20_000))
        assert await calls.add(5, [30]) == [READ_ONLY]
        disk.capacity = 1 << 40
        await flushed(calls)
        assert not calls.bookie.read_only
        assert await calls.add(5, [30]) == [OK]
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.has(5, range(30), payload=bytes(20_000))


async def test_the_journals_of_a_killed_java_bookie_are_replayed(golden: Golden, tmp_path: Path) -> None:
    name = "bookie1.killed"
    folder = golden.unpack(name, tmp_path / name)
    config = config_of(name, folder)
    assert identity.was_dirty(real_world().disk, config)
    async with running(config, real_world(1), rocks_index(config)) as calls:
        count = await holds_all(calls, golden, name, only_if_there=True)
        ids = sorted(calls.bookie.storage.ids())
        listed = {ledger_id: calls.bookie.list_entries(ledger_id)[1] for ledger_id in ids}
    assert count > 100
    assert sum(map(len, listed.values())) >= count
