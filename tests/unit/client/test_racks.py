"""Racks of bookies: from Pulsar's znode and from a topology script."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkctl.client.racks import DEFAULT_RACK, Racks, parse_pulsar_groups, parse_pulsar_racks, run_script
from bkctl.errors import Corrupt, Unavailable
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId

PULSAR = b'{"default":{"b1:3181":{"rack":"/rack1","hostname":"b1"},"b2:3181":{"rack":"rack2"},"b3:3181":{"rack":null}}}'


def test_racks_and_defaults_are_read_from_the_znode_of_pulsar() -> None:
    assert parse_pulsar_racks(PULSAR, source="/bookies") == {
        "b1:3181": "/rack1",
        "b2:3181": "/rack2",
        "b3:3181": DEFAULT_RACK,
    }
    assert parse_pulsar_racks(b"", source="/bookies") == {}
    for wrong in (b"{", b"[]", b'{"a": 1}', b'{"a": {"b": 1}}', b"\xff"):
        with pytest.raises(Corrupt):
            parse_pulsar_racks(wrong, source="/bookies")


async def load_pulsar_racks() -> None:
    store = MemoryStore(MemoryTree())
    racks, known = Racks(store, None), BookieId("b1:3181")
    await racks.load([known], str)
    assert racks.of(known) == DEFAULT_RACK
    await store.create("/bookies", PULSAR)
    await asyncio.sleep(0)  # the watch fires
    await racks.load([known], str)
    assert racks.of(known) == "/rack1"
    assert racks.groups() == parse_pulsar_groups(PULSAR, source="/bookies")
    assert BookieId("b1:3181") in racks.groups()["default"]
    await store.overwrite("/bookies", b"{")
    await asyncio.sleep(0)
    await racks.load([known], str)
    assert racks.of(known) == "/rack1"  # the last that could be read


def test_the_last_known_racks_stay_when_the_znode_is_corrupt() -> None:

    asyncio.run(load_pulsar_racks())


def test_a_topology_script_must_print_a_rack_for_each_host(tmp_path: Path) -> None:

    script = tmp_path / "topology.sh"
    script.write_text('#!/bin/sh\nfor host in "$@"; do echo /rack-$host; done\n')
    script.chmod(0o755)
    assert asyncio.run(run_script(str(script), ["h1", "h2"])) == {"h1": "/rack-h1", "h2": "/rack-h2"}
    script.write_text("#!/bin/sh\necho /one\n")
    with pytest.raises(Unavailable):
        asyncio.run(run_script(str(script), ["h1", "h2"]))
    with pytest.raises(Unavailable):
        asyncio.run(run_script(str(tmp_path / "missing"), ["h1"]))
