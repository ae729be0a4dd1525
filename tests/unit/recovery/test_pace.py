"""Pauses, rates and budgets, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkrecovery.pace import BURST_S, REMEMBERED_MAX, ByteBudget, ByteRate, FailurePauses
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.loop import run


def test_pauses_grow_to_the_period() -> None:
    pauses = FailurePauses(300.0)
    assert [pauses.next_s(7) for _ in range(8)] == [9.375, 18.75, 37.5, 75.0, 150.0, 300.0, 300.0, 300.0]
    assert pauses.next_s(8) == 9.375


def test_the_oldest_failure_is_forgotten() -> None:
    pauses = FailurePauses(32.0)
    for ledger_id in range(REMEMBERED_MAX + 1):
        pauses.next_s(ledger_id)
    assert pauses.next_s(0) == 1.0
    assert pauses.next_s(REMEMBERED_MAX) == 2.0


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 10_000)), max_size=50))
def test_a_rate_is_kept_over_any_time(calls: list[tuple[float, int]]) -> None:
    rate, now, passed = ByteRate(1000.0), 100.0, []
    for pause_s, size in calls:
        now += pause_s
        passed.append((now + rate.reserve(now, size), size))
    for start, (begin, _) in enumerate(passed):
        for end, (finish, _) in list(enumerate(passed))[start:]:
            sent = sum(size for _, size in passed[start + 1 : end + 1])
            assert sent <= 1000.0 * (finish - begin + BURST_S) + 1e-6


def test_no_rate_no_wait() -> None:
    assert ByteRate(-1).reserve(0.0, 10**9) == 0.0
    assert ByteRate(0).piece(2**20) == 2**20


@pytest.mark.parametrize(("changes", "ends_s"), [([], 100), ([(10, 1000)], 19), ([(50, 50)], 150), ([(5, 0)], 5)])
def test_a_rate_changes_for_those_who_wait(changes: list[tuple[float, float]], ends_s: float) -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> float:
        rate = ByteRate(100.0)
        start = loop.time()
        rate.reserve(start, int(100 * BURST_S))  # what may go at once
        for at_s, bytes_per_s in changes:
            loop.call_later(at_s, lambda r=bytes_per_s: rate.change(loop.time(), r))
        halves = [asyncio.create_task(rate.take(5_000)) for _ in range(2)]
        await asyncio.gather(*halves)
        return loop.time() - start

    assert run(scenario) == pytest.approx(ends_s, abs=0.6)


@pytest.mark.parametrize(("rate", "expected"), [(1_000, 16_384), (400_000, 100_000), (10**9, 2**20)])
def test_a_slow_rate_takes_small_pieces(rate: int, expected: int) -> None:
    assert ByteRate(rate).piece(2**20) == expected


def test_a_budget_is_first_come_first_served_and_survives_cancellation() -> None:
    async def scenario() -> list[str]:
        budget, order = ByteBudget(10), []

        async def use(name: str, size: int) -> None:
            taken = await budget.take(size)
            order.append(name)
            await asyncio.sleep(0)
            budget.give_back(taken)

        first = await budget.take(8)
        cancelled = asyncio.create_task(use("cancelled", 9))
        large = asyncio.create_task(use("larger than all", 50))
        small = asyncio.create_task(use("small", 1))
        await asyncio.sleep(0)
        assert order == []  # small would fit, but others were there before
        cancelled.cancel()
        budget.give_back(first)
        await asyncio.gather(large, small)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await budget.take(10) == 10  # nothing leaked
        return order

    assert asyncio.run(scenario()) == ["larger than all", "small"]


def test_cancelled_at_the_moment_of_the_grant() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10)
        taken = await budget.take(10)
        waiting = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0)
        budget.give_back(taken)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(1):
            assert await budget.take(10) == 10

    asyncio.run(scenario())
