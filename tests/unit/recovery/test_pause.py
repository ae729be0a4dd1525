"""Pauses of auto recovery end when their time is over."""

from __future__ import annotations

import asyncio

from bkctl.client.client import BookKeeper
from bkctl.meta.memory import MemoryStore
from bkctl.meta.recovery_switch import RecoverySwitch
from tests.unit.client.cluster import ROOT, SimCluster, simulate
from tests.unit.recovery.recovering import (
    QUIET,
    bookies_of,
    gone_from,
    holds,
    marked,
    queue_of,
    recovering,
    until,
    write,
)


def test_an_expired_pause_is_ended_and_the_work_resumes() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        clock = bookkeeper.context.world.clock
        switch = RecoverySwitch(MemoryStore(cluster.tree), ROOT, clock)
        async with recovering(bookkeeper, "ar", QUIET):
            await until(lambda: holds(True))
            await queue_of(cluster).ensure()
            await switch.turn_off("me", "restarts", clock.now_ms() + 200_000)
            cluster.kill(gone)
            await asyncio.sleep(190)
            assert await marked(cluster) == []
            await switch.turn_off("me", "a little longer", clock.now_ms() + 200_000)
            await asyncio.sleep(190)
            assert await marked(cluster) == []
            await until(lambda: gone_from(bookkeeper, gone))
        log = (await switch.state()).log.changes
        assert [(c.enabled, c.who) for c in log] == [(True, "ar"), (False, "me"), (False, "me")]

    simulate(scenario, version=2)
