"""Entries with a delivery time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from bkdaemon.broker.dispatch.delays import Delays
from bkdaemon.broker.rules import TopicRules

from bkctl.model.topic import Position
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import SHARED, TOPIC, open_topic, payload_number, producing, publish, take_messages


def test_delayed_entries_are_delivered_at_their_time_and_delay_no_others() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(100)
        now_ms = stage.world.clock.now_ms()
        await publish(client, 0, 1, deliver_at_time=now_ms + 60_000)
        await publish(client, 1, 1, deliver_at_time=now_ms + 30_000)
        await publish(client, 2, 1)
        assert [payload_number(s) for s in await client.messages(1)] == [2]
        await asyncio.sleep(29)
        assert take_messages(client) == []
        assert [payload_number(s) for s in await client.messages(2)] == [1, 0]
        assert stage.world.clock.now_ms() >= now_ms + 60_000

    on_stage(scenario)


class Waiting:
    """Delays of a subscription, and how often they reported entries whose time has come."""

    def __init__(self, stage: Stage) -> None:
        self.topic = open_topic(stage)
        self.reports: list[list[int]] = []
        self.delays = Delays(self.topic.subscriptions["s"], lambda: self.reports.append(self.take()))

    def hold(self, delay_ms: int, entry_id: int) -> bool:
        return self.delays.hold(self.topic.now_ms() + delay_ms, Position(1, entry_id))

    def take(self) -> list[int]:
        return [position.entry_id for position in self.delays.take_due()]


def with_delays(scenario: Callable[[Waiting], Awaitable[None]], **rules: Any) -> None:
    async def run(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=SHARED)
        waiting = Waiting(stage)
        await scenario(waiting)
        waiting.delays.close()

    on_stage(run, rules=TopicRules(**rules))


@pytest.mark.parametrize(("strict", "held"), [(False, [False, False, True]), (True, [False, True, True])])
def test_an_entry_is_due_up_to_a_tick_before_its_time_unless_delivery_is_strict(strict: bool, held: list[bool]) -> None:
    async def scenario(waiting: Waiting) -> None:
        assert [waiting.hold(delay_ms, i) for i, delay_ms in enumerate((0, 1000, 1001))] == held
        assert len(waiting.delays) == held.count(True)

    with_delays(scenario, delayed_strict=strict)


def test_due_entries_are_reported_once_in_the_order_of_their_times() -> None:
    async def scenario(waiting: Waiting) -> None:
        for i, delay_ms in enumerate((30_000, 10_000, 10_200, 20_000)):
            assert waiting.hold(delay_ms, i)
        assert waiting.take() == []
        await asyncio.sleep(60)
        assert [entry_id for report in waiting.reports for entry_id in report] == [1, 2, 3, 0]
        assert len(waiting.reports) == 3, "times within a tick are reported together"
        assert len(waiting.delays) == 0

    with_delays(scenario)


def test_closed_delays_report_nothing() -> None:
    async def scenario(waiting: Waiting) -> None:
        assert waiting.hold(5000, 0)
        waiting.delays.clear()
        await asyncio.sleep(60)
        assert (waiting.reports, len(waiting.delays)) == ([], 0)
        assert waiting.hold(5000, 1), "they can be used again"
        await asyncio.sleep(60)
        assert waiting.reports == [[1]]

    with_delays(scenario)


@pytest.mark.parametrize(
    ("delays_ms", "full"),
    [
        ((10_000, 20_000), False),
        ((10_000, 20_000, 30_000), True),
        ((10_000, 20_000, 19_500), True),
        ((10_000, 20_000, 15_000), False),
        ((10_000, 20_000, 500, 30_000), False),
    ],
    ids=["fewer", "in order", "in order but for a tick", "one is sooner", "one was due"],
)
def test_delays_are_full_while_enough_entries_wait_in_the_order_of_their_times(
    delays_ms: tuple[int, ...], full: bool
) -> None:
    async def scenario(waiting: Waiting) -> None:
        for i, delay_ms in enumerate(delays_ms):
            waiting.hold(delay_ms, i)
        assert waiting.delays.full is full
        await asyncio.sleep(9)
        assert not waiting.delays.full, "the first is due"

    with_delays(scenario, fixed_delay_entries=3)
