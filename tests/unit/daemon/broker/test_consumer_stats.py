"""CONSUMER_STATS, which the Python client has no words for, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkctl.codec.pulsar import Command
from tests.broker.raw import RawClient, Stage, batch_of, on_stage

TOPIC = "persistent://public/default/t"
SHARED = 1


async def stats(client: RawClient, consumer_id: int = 0) -> Any:
    return await client.ask(Command.CONSUMER_STATS, Command.CONSUMER_STATS_RESPONSE, consumer_id=consumer_id)


@pytest.mark.parametrize(("kind", "name"), [(0, "Exclusive"), (1, "Shared"), (2, "Failover"), (3, "Key_Shared")])
def test_what_a_consumer_is_told_of_itself(kind: int, name: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind, consumer_name="me")
        client.flow(100)
        client.send(Command.SEND, batch_of(0, [b"a", b"b", b"c"]), producer_id=0, sequence_id=0, num_messages=3)
        client.publish(1)
        said = await client.messages(2)
        await asyncio.sleep(10)
        told = await stats(client)
        assert (told.type, told.consumerName, told.availablePermits) == (name, "me", 96)
        assert (told.msgBacklog, told.blockedConsumerOnUnackedMsgs) == (2, False)
        assert told.msgRateOut > 0
        assert told.msgThroughputOut > told.msgRateOut
        assert told.address.startswith("/")
        assert told.connectedSince.endswith("Z")
        assert not told.HasField("error_code")
        if kind == SHARED:
            assert told.unackedMessages == 4
        client.ack(*said)
        await asyncio.sleep(10)
        told = await stats(client)
        assert (told.msgBacklog, told.unackedMessages) == (0, 0)

    on_stage(scenario)
