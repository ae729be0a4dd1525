"""The journal: entries are acknowledged only after they are durable, whatever the disk does."""

from __future__ import annotations

from tests.unit.daemon.bookie.world import (
    HERE,
    IO_ERROR,
    OK,
    READ_ONLY,
    config_in,
    entry,
    running,
    sim_disk,
    world_on,
)


async def test_a_group_interrupted_by_a_power_failure_is_replayed_wholly_or_not_at_all() -> None:
    """The sectors of the last write reach the disk in any subset; no partial entry may be read."""
    outcomes = set()
    for seed in range(60):
        disk = sim_disk(seed)
        config = config_in(HERE)
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            assert await calls.add(5, range(3)) == [OK] * 3
            journal = calls.bookie.journals[0]
            journal._sync = False  # type: ignore[attr-defined]  # the power goes before the sync
            await calls.add(5, range(2, 9), payload=bytes(range(256)) * 5)
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            found = [body for _, body in await calls.read(5, *range(9))]
            old = [entry(5, e) for e in range(3)] + [None] * 6
            new = old[:2] + [entry(5, e, bytes(range(256)) * 5) for e in range(2, 9)]
            assert found in (old, new)
            outcomes.add(found == new)
    assert False in outcomes


async def test_an_add_whose_sync_failed_is_not_acknowledged() -> None:
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
        assert await calls.add(5, range(3)) == [OK] * 3
        disk.error_chance = 1.0
        assert await calls.add(5, [3]) == [IO_ERROR]
        disk.error_chance = 0.0
        assert calls.bookie.read_only
        assert "journal" in calls.bookie.admission.reasons
        assert await calls.add(5, [4]) == [READ_ONLY]
        assert await calls.fence(5) == IO_ERROR, "nor is a fence promised"
        assert await calls.has(5, range(3)), "reads are served"
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.has(5, range(3))
        assert await calls.add(5, [4]) == [OK]


async def test_adds_fail_on_a_full_disk_and_succeed_when_there_is_space_again() -> None:
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.add(5, range(3)) == [OK] * 3
        disk.capacity = disk.used() + 4096
        statuses = [await calls.add(5, [e], payload=bytes(100_000)) for e in range(3, 20)]
        assert [IO_ERROR] in statuses
        assert statuses[-1] == [READ_ONLY]
        taken = statuses.index([IO_ERROR])
        assert await calls.has(5, range(3, 3 + taken), payload=bytes(100_000)), "reads are served"
        disk.capacity = 1 << 40
        calls.bookie.admission.drop_reason("disk")
        assert await calls.add(5, range(30, 40)) == [OK] * 10
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.has(5, range(30, 40))
        assert await calls.has(5, range(3, 3 + taken), payload=bytes(100_000))
