"""Entries with a delivery time."""

from __future__ import annotations

import asyncio

from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import SHARED, TOPIC, payload_number, producing, publish, take_messages


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
