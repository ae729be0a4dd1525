"""Checkpoints: what the stored mark covers is in storage, whatever arrives while a flush runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from bkdaemon.bookie.index import Batch, Index, MemoryIndex

from tests.unit.daemon.bookie.world import OK, config_in, running, sim_disk, world_on

HERE = Path("/bookie")


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
