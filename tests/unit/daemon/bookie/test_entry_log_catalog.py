"""Closed entry logs: what is in them, and when they are removed."""

from __future__ import annotations

import pytest
from bkdaemon.bookie.entry_log_catalog import Contents

from tests.unit.daemon.bookie.compacting import ALIVE, BODY, DEAD, FAST, LEVEL, Tools, half_dead
from tests.unit.daemon.bookie.world import HERE, config_in, running, sim_disk, world_on


async def test_a_log_that_is_read_by_rows_is_removed_after_the_readers_are_done() -> None:
    async with running(config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            before = tools.names()
            with tools.logs.held():
                assert await tools.compactor.run(LEVEL) == 0
                assert tools.names() >= before
                assert await tools.compactor.run(LEVEL) == 0, "they are not compacted again"
            dead = [log for log in await tools.logs.scan() if tools.logs.dead(log)]
            assert len(dead) >= 3
            assert None not in [await tools.logs.remove(log) for log in dead]
        assert await calls.has(ALIVE, range(30), payload=BODY)


def test_the_bytes_of_existing_ledgers_are_weighed_against_all_bytes() -> None:
    contents = Contents({5: 100, 6: 30, 2**62: 7})
    assert contents.living({6, 2**62, 9}) == [6, 2**62]
    assert contents.weigh({6, 2**62, 9}) == (37, 137)
    assert Contents({}).weigh({5}) == (0, 0)


async def test_a_corrupt_log_is_kept_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))) as calls:
        await half_dead(calls)
        async with Tools(calls) as tools:
            disk, current = calls.bookie.world.disk, HERE / "ledgers/current"
            disk.replace(current / "0.log", b"BKLX" + bytes(2000))
            found = await tools.logs.scan()
            assert 0 not in {log.log_id for log in found}
            assert (tools.logs.count, tools.logs.bytes) == (len(found), sum(sum(log.contents.sizes) for log in found))
            await tools.logs.scan()
            assert sum("cannot read an entry log; keeping it" in r.getMessage() for r in caplog.records) == 1
            assert disk.exists(current / "0.log")


async def test_a_removed_log_is_not_removed_again() -> None:
    async with running(config_in(HERE, **FAST), world_on(sim_disk().door(lambda: True))) as calls:
        await calls.add(DEAD, range(60), payload=BODY)
        await calls.bookie.flush()
        await calls.bookie.delete([DEAD])
        async with Tools(calls) as tools:
            log, *others = await tools.logs.scan()
            assert tools.logs.dead(log)
            size = await tools.logs.remove(log)
            assert size is not None
            assert size >= sum(log.contents.sizes)
            assert tools.logs.count == len(others)
            assert await tools.logs.remove(log) is None
