"""Storage: what it logs of entries that it cannot read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.unit.daemon.bookie.world import IO_ERROR, config_in, running, sim_disk, world_on

HERE = Path("/bookie")


async def test_a_missing_entry_log_is_logged_once_a_file(caplog: pytest.LogCaptureFixture) -> None:
    world, config = world_on(sim_disk().door(lambda: True)), config_in(HERE, log_size_limit=20_000)
    async with running(config, world) as calls:
        for ledger_id in (5, 6):
            await calls.add(ledger_id, range(30), payload=bytes(1000))
    current = HERE / "ledgers/current"
    logs = [name for name in world.disk.names(current) if name.endswith(".log")]
    for name in logs:
        world.disk.remove(current / name)
    caplog.set_level(logging.INFO)
    async with running(config, world) as calls:
        for _ in range(2):
            for ledger_id in (5, 6):
                for first in (0, 10, 20):
                    read = await calls.read(ledger_id, *range(first, first + 10))
                    assert [status for status, _ in read] == [IO_ERROR] * 10
            calls.bookie.last_confirmed(5)
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == len(logs) > 2
    assert all(sum(f"/{name} is missing" in text for text in errors) == 1 for name in logs)
