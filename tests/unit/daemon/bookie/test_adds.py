"""Adds: which are accepted, and which are rejected with which status."""

from __future__ import annotations

from bkdaemon.bookie.bookie import RECOVERY_ADD

from bkctl.codec.entry import encode_lac
from bkctl.world import World
from tests.unit.daemon.bookie.world import (
    BAD_REQUEST,
    DIGEST,
    HERE,
    KEY,
    OK,
    OTHER_KEY,
    UNAUTHORIZED,
    config_in,
    entry,
    running,
)


async def test_adds_are_rejected_for_a_bad_id_size_or_master_key(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        assert await calls.add(5, [0, 1]) == [OK, OK]
        mixed = [
            (5, 2, KEY, entry(5, 2), 0, None),
            (5, 3, OTHER_KEY, entry(5, 3), 0, None),
            (5, -0x1000, KEY, entry(5, 3), 0, None),
            (-1, 3, KEY, entry(5, 3), 0, None),
            (5, 4, KEY, bytes(23), 0, None),
            (5, 5, KEY, bytes(24), 0, None),
            (8, 0, OTHER_KEY, entry(8, 0), 0, None),
        ]
        assert await calls.add_raw(mixed) == [OK, UNAUTHORIZED, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST, OK, OK]
        assert await calls.fence(5, OTHER_KEY) == UNAUTHORIZED
        assert await calls.write_lac(5, encode_lac(5, 1, DIGEST), OTHER_KEY) == UNAUTHORIZED
        assert await calls.write_lac(5, b"short") == BAD_REQUEST
        assert await calls.add(8, [1]) == [UNAUTHORIZED], "the first key is the ledger's"
        assert await calls.fence(-3) == BAD_REQUEST


async def test_an_entry_that_is_written_again_replaces_the_old_one(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        await calls.add(5, range(10), payload=b"old")
        await calls.bookie.flush()
        assert await calls.has(5, range(10), payload=b"old")
        await calls.fence(5)
        await calls.add(5, [4], payload=b"new", flags=RECOVERY_ADD)
        assert await calls.has(5, [4], payload=b"new")
        await calls.bookie.flush()
        assert await calls.has(5, [4], payload=b"new"), "not what the read cache had"
        assert await calls.has(5, [3, 5], payload=b"old")
    async with running(config_in(HERE), world) as calls:
        await calls.read(5, 3, 4)
        await calls.add(5, [3], payload=b"newer", flags=RECOVERY_ADD)
        await calls.bookie.flush()
        assert await calls.has(5, [3], payload=b"newer")
