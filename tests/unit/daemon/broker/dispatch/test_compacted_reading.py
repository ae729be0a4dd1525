"""Reading what was compacted, the first time after a topic was opened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.compacting import LIVE, NAME, RULES, compact, fill, key_values, topic_of
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import TOPIC


def test_the_first_read_of_a_compacted_topic_succeeds_with_a_store_that_has_timeouts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await fill(client, 30)
        await compact(await topic_of(stage))
        await stage.server.topics.unload(NAME)
        topic = await topic_of(stage)
        store = stage.broker.context.bookkeeper.ledgers.store
        get = store.get

        async def get_within_time(path: str) -> Any:  # as a ZooKeeper session does
            async with asyncio.timeout(5):
                return await get(path)

        store.get = get_within_time  # type: ignore[method-assign]
        began_ms = topic.now_ms()
        await client.subscribe(TOPIC, consumer_id=3, read_compacted=True)
        client.flow(100, 3)
        assert dict(key_values(await client.messages(3))) == LIVE
        assert topic.now_ms() - began_ms < 1000
        assert "dispatch failed" not in caplog.text

    on_stage(scenario, rules=RULES)
