"""Checkpoints: what the stored mark covers is in storage, whatever arrives while a flush runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from bkdaemon.bookie.index import Batch, Index, MemoryIndex

from bkctl.codec.data_dir import CURRENT, decode_mark
from tests.unit.daemon.bookie.world import (
    HERE,
    OK,
    config_in,
    flushed,
    running,
    sim_disk,
    world_on,
)


class SlowIndex(MemoryIndex):
    """An index on a slow disk: while `gate` is closed, a commit waits in the checkpoint's thread."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def commit(self, batch: Batch, *, sync: bool = True) -> None:
        if not self.gate.is_set():
            self.waiting.set()
            self.gate.wait(60)
        super().commit(batch, sync=sync)


async def test_entries_added_while_a_flush_runs_survive_a_power_cut_after_it() -> None:
    disk, made = sim_disk(), list[SlowIndex]()

    def factory(directory: Path) -> Index:
        made.append(SlowIndex(disk.door(lambda: True), directory))
        return made[-1]

    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True)), factory, crash=True) as calls:
        assert await calls.add(5, range(10)) == [OK] * 10
        made[-1].gate.clear()
        flush = asyncio.create_task(calls.bookie.flush())
        await asyncio.to_thread(made[-1].waiting.wait, 60)
        assert await calls.add(5, range(10, 20)) == [OK] * 10
        made[-1].gate.set()
        await flush
    disk.lose_power()
    async with running(config, world_on(disk.door(lambda: True)), factory) as calls:
        assert await calls.has(5, range(20))


async def test_a_failed_checkpoint_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.checkpoint.RETRY_S", 0.01)
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        await calls.add(5, range(10))
        mark = Path(config.ledger_dirs[0]) / CURRENT / "lastMark"
        disk.error_chance = 1.0
        with pytest.raises(OSError, match="error"):
            await calls.bookie.flush()
        disk.error_chance = 0.0
        assert "storage" in calls.bookie.admission.reasons
        assert not disk.door(lambda: True).exists(mark), "the mark waits for the data"
        assert await calls.has(5, range(10)), "unflushed entries are read from memory"
        await flushed(calls)
        assert not calls.bookie.read_only
        assert decode_mark(disk.door(lambda: True).read(mark), source="mark") == calls.bookie.journals[0].mark
        assert await calls.has(5, range(10))


async def test_retries_of_a_checkpoint_do_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.checkpoint.RETRY_S", 0.001)
    disk = sim_disk()
    config = config_in(HERE, log_size_limit=50_000)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        await calls.add(5, range(10), payload=bytes(20_000))
        await calls.bookie.flush()
        await calls.add(5, range(10, 30), payload=bytes(20_000))
        used = disk.used()
        disk.capacity = used + 100_000
        for _ in range(5):
            with pytest.raises(OSError, match="space"):
                await calls.bookie.flush()
            assert disk.used() <= used + 50_000
        assert await calls.has(5, range(30), payload=bytes(20_000))
        disk.capacity = 1 << 40
        await flushed(calls)
        assert await calls.has(5, range(30), payload=bytes(20_000))
        assert await calls.add(5, [30]) == [OK]
