"""The loop in virtual time, and processes that are killed and stopped in it."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.loop import Deadlock, Livelock, Process, SimLoop, run


def test_time_jumps_and_timers_keep_their_order() -> None:
    async def main(loop: SimLoop) -> list[tuple[float, str]]:
        seen: list[tuple[float, str]] = []
        for name in "abc":
            loop.call_at(5.0, lambda name=name: seen.append((loop.time(), name)))
        loop.call_at(4.0, lambda: seen.append((loop.time(), "first")))
        await asyncio.sleep(86_400 * 365)
        return [*seen, (loop.time(), "end")]

    assert run(main) == [(4.0, "first"), (5.0, "a"), (5.0, "b"), (5.0, "c"), (86_400.0 * 365, "end")]


def test_a_deadlock_is_an_error_and_so_is_a_spin() -> None:
    async def waits(loop: SimLoop) -> None:
        await loop.create_future()

    async def spins(_loop: SimLoop) -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(Deadlock):
        run(waits)
    with pytest.raises(Livelock):
        run(spins)


def test_threads_are_refused() -> None:
    async def main(_loop: SimLoop) -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="outside of the simulation"):
        run(main)


def test_a_killed_process_does_nothing_more_not_even_finally() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []

        async def child() -> None:
            await asyncio.sleep(2)
            seen.append("child of a dead process")

        async def work() -> None:
            asyncio.get_running_loop().call_later(2, seen.append, "timer")
            task = asyncio.create_task(child())
            try:
                seen.append("began")
                await asyncio.sleep(2)
                seen.append("went on")
            finally:
                if process.alive:
                    seen.append("finally")
                task.cancel()

        process = Process(loop, "p")
        process.spawn(work())
        await asyncio.sleep(1)
        process.kill()
        await process.ended
        await asyncio.sleep(5)
        return seen

    assert run(main) == ["began"]


def test_a_stopped_process_finds_everything_when_it_goes_on_and_cancelled_timers_stay_cancelled() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []

        async def work() -> None:
            timer = loop.call_later(2, seen.append, "cancelled")
            loop.call_later(1.5, timer.cancel)
            await asyncio.sleep(3)
            seen.append(f"woke at {loop.time():.1f}")

        process = Process(loop, "p")
        process.spawn(work())
        await asyncio.sleep(1)
        process.stop()
        await asyncio.sleep(10)
        assert seen == []
        process.go_on()
        await asyncio.sleep(1)
        return seen

    assert run(main) == ["woke at 11.0"]


def test_sets_of_tasks_are_walked_in_order_of_creation_numbers() -> None:
    async def main(loop: SimLoop) -> list[int]:
        tasks = [loop.create_task(asyncio.sleep(0)) for _ in range(50)]
        order = [tasks.index(t) for t in set(tasks)]
        await asyncio.gather(*tasks)
        return order

    assert run(main) == run(main)


def test_what_escapes_from_callbacks_is_kept() -> None:
    async def main(loop: SimLoop) -> list[str]:
        def fails() -> None:
            raise ValueError("lost")

        loop.call_soon(fails)
        await asyncio.sleep(1)
        return loop.failures

    assert "lost" in run(main)[0]
