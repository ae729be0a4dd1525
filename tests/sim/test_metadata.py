"""The metadata store in virtual time: order, lost and late requests, sessions that end, callbacks in their process."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from bkctl.errors import Conflict, Unavailable
from bkctl.meta.store import SessionEvent, Version, WatchEvent
from tests.sim.loop import PROCESS, SimLoop, run
from tests.sim.machine import Machine, SimClock
from tests.sim.metadata import HOST, SESSION_TIMEOUT_S, MetadataService, SimStore
from tests.sim.network import Fabric
from tests.sim.trace import Trace


class Two:
    """A metadata service, and two machines with a session each."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        random, trace = Random(seed), Trace(loop.time)
        self.loop = loop
        self.fabric = Fabric(loop, random, trace)
        self.service = MetadataService(loop, self.fabric, random, trace, SimClock(loop, 0))
        self.machines = [Machine(loop, self.fabric, trace, random, name) for name in "ab"]
        self.stores = [self.new_session(machine) for machine in self.machines]

    def new_session(self, machine: Machine) -> SimStore:
        process, _ = machine.start()
        return self.service.session(machine.name, process)

    async def on(self, number: int, work: Any) -> Any:
        """Awaits work in the process of a session."""
        return await self.stores[number].process.spawn(work)


def simulate(scenario: Any, seed: int = 1) -> Any:
    return run(lambda loop: scenario(Two(loop, seed)))


def test_requests_of_a_session_keep_their_order() -> None:
    async def main(two: Two) -> None:
        two.fabric.spike_chance = 0.3
        store = two.stores[0]

        async def many() -> list[str]:
            calls = [store.create("/n", b"", sequence=True) for _ in range(30)]
            return await asyncio.gather(*calls)

        assert await two.on(0, many()) == [f"/n{i:010d}" for i in range(30)]

    simulate(main)


def test_a_lost_answer_leaves_open_whether_it_was_done() -> None:
    outcomes = set()

    async def main(two: Two) -> None:
        await two.on(0, two.stores[0].create("/x", b"0"))
        two.service.lose_chance = 1.0
        with pytest.raises(Unavailable):
            await two.on(0, two.stores[0].set("/x", b"1", Version(0)))
        two.service.lose_chance = 0.0
        at_once = (await two.on(1, two.stores[1].get("/x"))).data
        await asyncio.sleep(10)
        later = (await two.on(1, two.stores[1].get("/x"))).data
        outcomes.add((at_once, later))

    for seed in range(40):
        simulate(main, seed)
    assert outcomes == {(b"0", b"0"), (b"1", b"1"), (b"0", b"1")}, "not done, done, done later"


def test_a_partition_makes_it_unavailable_and_ends_the_session_in_time() -> None:
    async def main(two: Two) -> None:
        events: list[SessionEvent] = []
        store = two.stores[0]
        await two.on(0, store.create("/mine", b"", ephemeral=True))
        store.process.call(lambda: store.on_session(events.append))
        first = store.session_id
        two.fabric.part("a", HOST)
        with pytest.raises(Unavailable):
            await two.on(0, store.get("/mine"))
        assert await two.on(1, two.stores[1].exists("/mine")) is not None
        await asyncio.sleep(SESSION_TIMEOUT_S)
        assert await two.on(1, two.stores[1].exists("/mine")) is None
        assert events == [SessionEvent.SUSPENDED]
        two.fabric.heal()
        await asyncio.sleep(2)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert store.session_id != first

    simulate(main)


def test_a_dead_process_keeps_its_session_for_a_while_and_hears_nothing() -> None:
    async def main(two: Two) -> None:
        await two.on(0, two.stores[0].create("/mine", b"", ephemeral=True))
        heard: list[WatchEvent] = []
        await two.on(0, two.stores[0].watch_data("/other", heard.append))
        two.machines[0].kill()
        await two.on(1, two.stores[1].create("/other", b""))
        assert await two.on(1, two.stores[1].exists("/mine")) is not None
        await asyncio.sleep(SESSION_TIMEOUT_S + 2)
        assert await two.on(1, two.stores[1].exists("/mine")) is None
        assert heard == []
        assert two.stores[0].over

    simulate(main)


def test_watches_fire_in_the_process_that_set_them() -> None:
    async def main(two: Two) -> None:
        heard: list[object] = []
        await two.on(0, two.stores[0].watch_data("/x", lambda _: heard.append(PROCESS.get())))
        await two.on(1, two.stores[1].create("/x", b""))
        await asyncio.sleep(1)
        assert heard == [two.stores[0].process]

    simulate(main)


def test_conflicts_are_conflicts() -> None:
    async def main(two: Two) -> None:
        changed: list[str] = []
        two.service.on_change = changed.append
        await two.on(0, two.stores[0].create("/x", b"0"))
        await two.on(1, two.stores[1].set("/x", b"1", Version(0)))
        with pytest.raises(Conflict):
            await two.on(0, two.stores[0].set("/x", b"2", Version(0)))
        assert changed == ["/x", "/x"]

    simulate(main)
