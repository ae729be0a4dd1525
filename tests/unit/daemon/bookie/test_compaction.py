"""Compaction: what lives moves and is read, whatever crashes, fails, is deleted or is read meanwhile; the log goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie.bookie import RECOVERY_ADD
from bkdaemon.bookie.compaction import MAJOR, MINOR, Compactor, levels, move
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import Index, IndexFactory, memory_index, rocks_index
from bkinspect.digests import DigestBook
from bkinspect.finding import Severity
from bkinspect.fsck import check, files_of

from bkctl.codec.entry_log import log_name, split_location
from bkctl.codec.ledger_index import location_key
from bkctl.errors import UsageError
from bkctl.world import World, real_world
from tests.sim.disk import DiskDoor, SimDisk
from tests.sim.loop import PowerCut
from tests.unit.daemon.bookie.compacting import ALIVE, BODY, DEAD, FAST, LEVEL, SPREAD, Tools, entry_of, half_dead
from tests.unit.daemon.bookie.world import HERE, NO_LEDGER, Unsure, config_in, running, sim_disk, world_on

CHANGES_MAX = 400


@pytest.fixture(params=["memory", "rocksdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[BookieConfig, World, IndexFactory]:
    """Both indexes: a simulated disk with the one in memory, real files with RocksDB."""
    if request.param == "memory":
        config, world = config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))
        return config, world, memory_index(world.disk)
    config = config_in(tmp_path, **FAST)
    return config, real_world(1), rocks_index(config)


async def test_live_entries_move_and_their_old_logs_are_removed(
    place: tuple[BookieConfig, World, IndexFactory],
) -> None:
    async with running(*place) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            before = tools.names()
            gone = await tools.compactor.run(LEVEL)
            assert gone >= 3
            assert len(before - tools.names()) == gone
            assert tools.compactor.counts == {MINOR: 0, MAJOR: 1}
            assert tools.compactor.moved_bytes >= 10 * len(BODY)
            assert tools.compactor.reclaimed_bytes > tools.compactor.moved_bytes
            await tools.compactor.run(LEVEL)  # the log that was written until then
            assert await tools.compactor.run(LEVEL) == 0, "all entries of the new log are live"
        assert await calls.has(ALIVE, range(30), payload=BODY)
        assert (await calls.read(DEAD, 0))[0][0] == NO_LEDGER
        assert await calls.add(ALIVE, [30], payload=BODY) == [0]
    async with running(*place) as calls:
        assert await calls.has(ALIVE, range(31), payload=BODY), "after a restart"


async def test_the_files_pass_inspection_after_a_compaction(tmp_path: Path) -> None:
    config = config_in(tmp_path, **FAST)
    async with running(config, real_world(1), rocks_index(config)) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            assert await tools.compactor.run(LEVEL) >= 3
    found = list(check(files_of([tmp_path / "journal", tmp_path / "ledgers"]), DigestBook()))
    assert [finding for finding in found if finding.severity is not Severity.INFO] == []


async def test_only_below_the_threshold_and_most_dead_bytes_first() -> None:
    async with running(config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            assert await tools.compactor.run(replace(LEVEL, threshold=0.01)) == 0
            candidates = await tools.compactor._candidates(LEVEL)
            dead = [total - alive for alive, total in (log.contents.weigh(calls.bookie.storage) for log in candidates)]
            assert dead == sorted(dead, reverse=True)
            assert len(set(dead)) > 1


class Power:
    """Of a machine."""

    def __init__(self) -> None:
        self._on = True

    def is_on(self) -> bool:
        return self._on

    def cut(self) -> None:
        self._on = False


async def test_a_power_cut_at_any_moment_loses_nothing() -> None:
    cuts = 0
    for moment in range(1, CHANGES_MAX):
        disk, power = sim_disk(moment), Power()
        config = config_in(HERE, **FAST)
        async with running(config, world_on(disk.door(power.is_on)), crash=True) as calls:
            await half_dead(calls)
            async with Tools(calls) as tools:
                disk.on_fail, disk.fail_at = power.cut, moment
                try:
                    await tools.compactor.run(LEVEL)
                except PowerCut:
                    cuts += 1
        finished = power.is_on()
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True))) as calls:
            assert await calls.has(ALIVE, range(30), payload=BODY), f"cut at change {moment}"
            assert (await calls.read(DEAD, 0))[0][0] == NO_LEDGER
            async with Tools(calls) as tools:
                await tools.compactor.run(LEVEL)
                assert await calls.has(ALIVE, range(30), payload=BODY), "and the compaction is resumed"
        if finished:
            break
    assert finished, "every change of a compaction was cut"
    assert cuts > 20


async def test_a_failing_disk_loses_nothing() -> None:
    failed = 0
    for seed in range(60):
        disk = sim_disk(seed)
        config = config_in(HERE, **FAST)
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            await half_dead(calls)
            async with Tools(calls) as tools:
                disk.error_chance = 0.03
                try:
                    await tools.compactor.run(LEVEL)
                except OSError:
                    failed += 1
                disk.error_chance = 0.0
                assert await calls.has(ALIVE, range(30), payload=BODY)
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True))) as calls:
            assert await calls.has(ALIVE, range(30), payload=BODY), f"seed {seed}"
    assert failed > 10


async def test_rows_of_a_failed_compaction_point_to_entries() -> None:
    disk = sim_disk()
    world, config = world_on(disk.door(lambda: True)), config_in(HERE, **FAST)
    made: list[Unsure] = []

    def factory(directory: Path) -> Index:
        made.append(Unsure(world.disk, directory))
        return made[-1]

    async with running(config, world, factory, crash=True) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            made[-1].fails = True
            with pytest.raises(OSError, match="input/output"):
                await tools.compactor.run(LEVEL)
            made[-1].fails = False
        assert await calls.has(ALIVE, range(30), payload=BODY)
    disk.lose_power()
    async with running(config, world_on(disk.door(lambda: True)), factory) as calls:
        assert await calls.has(ALIVE, range(30), payload=BODY)


async def test_entries_written_during_a_compaction_are_kept() -> None:
    async with running(config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))) as calls:
        await half_dead(calls)
        await calls.fence(ALIVE)
        await calls.add(ALIVE, range(30), payload=b"newer", flags=RECOVERY_ADD)
        await calls.bookie.flush()
        async with Tools(calls) as tools:
            assert await tools.compactor.run(LEVEL) >= 3
            assert tools.compactor.moved_bytes < len(BODY), "no row points to the old ones"
        assert await calls.has(ALIVE, range(30), payload=b"newer")


async def test_adds_flushes_and_deletions_continue_during_a_compaction() -> None:
    async with running(config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            running_ = asyncio.create_task(tools.compactor.run(LEVEL))
            for first in range(0, 100, 10):
                await calls.add(SPREAD, range(first, first + 10), payload=BODY)
                await calls.bookie.flush()
                if first == 50:
                    await calls.bookie.delete([ALIVE])
                    assert (await calls.read(ALIVE, 0))[0][0] == NO_LEDGER
            await running_
        assert await calls.has(SPREAD, range(100), payload=BODY)
        assert calls.bookie.storage.location_rows(ALIVE, 0, 100) == b"", "a deleted ledger has no rows again"


async def test_an_entry_that_cannot_be_read_keeps_its_log() -> None:
    disk = sim_disk()
    async with running(config_in(HERE, **FAST), world_on(disk.door(lambda: True))) as calls:
        await half_dead(calls)
        shard = calls.bookie.storage.shards()[0]
        log_id, position = split_location(shard.index.locations([location_key(ALIVE, 3)])[0])
        disk.files[Path(HERE / "ledgers/current" / log_name(log_id))].seen[position + 8] ^= 0xFF
        async with Tools(calls) as tools:
            await tools.compactor.run(LEVEL)
            assert log_name(log_id) in tools.names()
        others = [e for e in range(30) if e != 3]
        assert await calls.has(ALIVE, others, payload=BODY)


class Overtaken(DiskDoor):
    """A disk on which something happens between a look into the index and the opening of a log."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk, lambda: True)
        self.before_open: Any = None

    def open(self, path: Path, *, create: bool = False, write: bool = False, exclusive: bool = False) -> Any:
        if self.before_open is not None and path.suffix == ".log" and not (create or write):
            before, self.before_open = self.before_open, None
            before()
        return super().open(path, create=create, write=write, exclusive=exclusive)


@pytest.mark.parametrize("sequential", [False, True])
async def test_a_read_follows_an_entry_that_moves_meanwhile(sequential: bool) -> None:
    door = Overtaken(sim_disk())
    config = config_in(HERE, **FAST)
    async with running(config, world_on(door), crash=True) as calls:
        await half_dead(calls)
    async with running(config, world_on(door)) as calls:
        storage = calls.bookie.storage
        shard = storage.shards()[0]
        log_id = split_location(shard.index.locations([location_key(ALIVE, 1)])[0])[0]

        def compact() -> None:
            shard.logs.begin()
            moved = [(e, entry_of(e)) for e in range(30)]
            batch = shard.index.batch()
            shard.logs.append(ALIVE, moved, batch.put)
            shard.logs.sync()
            shard.index.commit(batch)
            shard.logs._disk.remove(HERE / "ledgers/current" / log_name(log_id))

        if sequential:
            storage._sequences[ALIVE] = 0
        door.before_open = compact
        assert storage.fetch([(ALIVE, 1)], set()).answers == [(0, entry_of(1))]
        assert door.before_open is None, "the log was gone when it was opened"


async def test_tasks_are_bounded_and_continue_after_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.compaction.SLICE_ROWS", 4)
    monkeypatch.setattr("bkdaemon.bookie.compaction.SLICE_BYTES", 3_000)
    async with running(config_in(HERE, log_size_limit=1 << 20), world_on(sim_disk().door(lambda: True))) as calls:
        await calls.add(ALIVE, range(11), payload=BODY)
        await calls.bookie.flush()
        shard = calls.bookie.storage.shards()[0]
        pieces, after = [], 0
        while after is not None:
            moved = await calls.bookie.between_flushes(partial(move, shard, 0, ALIVE, after))
            pieces.append(moved.entries)
            after = moved.after
        assert pieces == [3, 3, 3, 2]
        assert await calls.has(ALIVE, range(11), payload=BODY)


async def test_a_compaction_is_due_after_its_interval() -> None:
    config = config_in(HERE, minor_compaction_interval_s=60, major_compaction_interval_s=600)
    async with running(config, world_on(sim_disk().door(lambda: True))) as calls, Tools(calls) as tools:
        compactor = tools.compactor
        assert compactor.due() is None
        compactor._ended[MINOR] -= 61
        assert [level.name for level in [compactor.due()] if level] == [MINOR]
        compactor._ended[MAJOR] -= 601
        level = compactor.due()
        assert level is not None
        assert level.name == MAJOR
        await compactor.run(level)
        assert compactor.due() is None, "a major compaction does for a minor one"


async def test_no_compaction_runs_after_a_failure_or_without_space() -> None:
    disk = sim_disk()
    config = config_in(HERE, disk_usage_warn_threshold=0.5, disk_usage_threshold=0.9)
    async with running(config, world_on(disk.door(lambda: True))) as calls, Tools(calls) as tools:
        major, minor = levels(config)
        assert not tools.compactor.suspended(major)
        await calls.add(ALIVE, [0], payload=bytes(1000))
        disk.capacity = int(disk.used() / 0.6)
        assert (tools.compactor.suspended(major), tools.compactor.suspended(minor)) == (True, False)
        forced = Compactor(calls.bookie, tools.logs, tools.deleted)
        for reasons in ({}, {"disk": "full"}):
            for kind, text in reasons.items():
                calls.bookie.admission.add_reason(kind, text)
            assert tools.compactor.suspended(minor) is bool(reasons)
            assert forced.due() is None
            calls.bookie.config = replace(config, force_gc_when_no_space=True)
            level = forced.due()
            assert level is not None, "little room makes a major compaction due, where the operator allows that"
            assert level.name == MAJOR
            calls.bookie.config = config
        calls.bookie.config = replace(config, force_gc_when_no_space=True)
        calls.bookie.admission.add_reason("storage", "a flush failed")
        assert forced.due() is None
        disk.capacity = 1 << 40
        calls.bookie.admission.drop_reason("disk")
        calls.bookie.admission.drop_reason("storage")


def test_levels_and_rates_follow_the_configuration() -> None:
    both = levels(BookieConfig())
    assert [(level.name, level.threshold, level.interval_s, level.max_s) for level in both] == [
        (MAJOR, 0.8, 86_400, None),
        (MINOR, 0.2, 3_600, None),
    ]
    assert [level.name for level in levels(BookieConfig(minor_compaction_threshold=0))] == [MAJOR]
    assert [level.name for level in levels(BookieConfig(major_compaction_interval_s=0))] == [MINOR]
    assert levels(BookieConfig(major_max_ms=1500))[0].max_s == 1.5
    assert BookieConfig(compaction_rate_old=7).compaction_rate_entries == 7
    assert BookieConfig(compaction_rate_by_entries=9).compaction_rate_entries == 9
    with pytest.raises(UsageError, match="share"):
        BookieConfig(major_compaction_threshold=80)
    with pytest.raises(UsageError, match="smaller threshold"):
        BookieConfig(minor_compaction_threshold=0.9)
