"""A machine's worker, clock, and what a power cut does to both."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.sim.loop import SimLoop, run
from tests.sim.machine import EPOCH_MS, Machine
from tests.sim.network import Fabric
from tests.sim.trace import Trace


def new_machine(loop: SimLoop, seed: int = 1) -> Machine:
    random, trace = Random(seed), Trace(loop.time)
    return Machine(loop, Fabric(loop, random, trace), trace, random, "m")


def test_work_is_done_in_order_and_takes_time_when_it_syncs() -> None:
    async def main(loop: SimLoop) -> None:
        machine = new_machine(loop)
        process, world = machine.start()
        world.disk.make_dirs(Path("/d"))
        file = world.disk.open(Path("/d/f"), create=True)
        seen: list[object] = []

        def piece(i: int) -> int:
            file.pwrite(bytes([i]), i)
            file.sync()
            return i

        def fails() -> int:
            raise ValueError("bad work")

        def submit() -> None:
            worker = world.worker("w")
            for i in range(20):
                worker.submit(lambda i=i: piece(i), lambda result, error: seen.append(result))
            worker.submit(fails, lambda result, error: seen.append(repr(error)))

        process.call(submit)
        await asyncio.sleep(1)
        assert seen == [*range(20), "ValueError('bad work')"]
        assert world.clock.now_ms() == EPOCH_MS + 1000

    run(main)


def test_a_closed_worker_has_done_its_work() -> None:
    async def main(loop: SimLoop) -> None:
        process, world = new_machine(loop).start()
        done: list[int] = []
        seen: list[object] = []

        def use() -> None:
            worker = world.worker("w")
            for i in range(5):
                worker.submit(lambda i=i: done.append(i), lambda result, error: seen.append(error))
            worker.close()
            assert done == [0, 1, 2, 3, 4]

        process.call(use)
        await asyncio.sleep(1)
        assert seen == [None] * 5
        assert loop.failures == []

    run(main)


def test_a_power_cut_in_the_middle_of_work_leaves_a_torn_disk_and_no_answer() -> None:
    contents = set()

    async def main(loop: SimLoop, seed: int) -> None:
        machine = new_machine(loop, seed)
        process, world = machine.start()
        world.disk.make_dirs(Path("/d"))
        file = world.disk.open(Path("/d/f"), create=True)
        seen: list[object] = []

        def work() -> None:
            file.pwrite(b"a", 0)
            file.pwrite(b"b", 1)
            file.sync()

        machine.cut_power_in(3)
        process.call(lambda: world.worker("w").submit(work, lambda result, error: seen.append(result)))
        await asyncio.sleep(1)
        assert not machine.running
        assert seen == []
        _, world = machine.start()
        contents.add(world.disk.read(Path("/d/f")))

    for seed in range(40):
        run(lambda loop, seed=seed: main(loop, seed))
    assert {b"", b"a", b"ab"} <= contents
