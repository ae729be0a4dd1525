"""Fixtures of a bookie without sockets: a world with a simulated disk, and both kinds of index."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import IndexFactory, memory_index, rocks_index

from bkctl.world import World, real_world
from tests.unit.daemon.bookie.world import (
    HERE,
    config_in,
    sim_disk,
    world_on,
)


@pytest.fixture
def world() -> World:
    return world_on(sim_disk().door(lambda: True))


@pytest.fixture(params=["memory", "rocksdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[BookieConfig, World, IndexFactory]:
    """Both indexes: a simulated disk with the one in memory, real files with RocksDB."""
    if request.param == "memory":
        config, world = config_in(HERE), world_on(sim_disk().door(lambda: True))
        return config, world, memory_index(world.disk)
    config, world = config_in(tmp_path), real_world(1)
    return config, world, rocks_index(config)
