"""The end of a topic: what clients are sent, in which order."""

from __future__ import annotations

import asyncio

from bkctl.codec.pulsar import Command
from tests.broker.raw import Stage, on_stage
from tests.unit.daemon.broker.test_in_between import TOPIC, Held, served
from tests.unit.log.logs import until


def test_terminating_a_topic_closes_its_producers_before_pending_sends_fail() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        topic = served(stage)
        held = Held(stage.broker.ledgers.store, "/t")
        terminating = asyncio.ensure_future(topic.terminate())
        await until(lambda: held.waiting)
        for number in range(2):
            client.publish(number)
        await until(lambda: topic.ledger.waiting == 2)
        held.let_go()
        await terminating
        await until(lambda: len(client.said) == 3)
        kinds = [said.kind for said in client.said]
        assert kinds == [Command.CLOSE_PRODUCER, Command.SEND_ERROR, Command.SEND_ERROR]

    on_stage(scenario)
