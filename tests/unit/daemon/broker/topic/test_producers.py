"""Access modes of producers and the epoch of a topic, in virtual time."""

from __future__ import annotations

import pytest

from bkctl.codec.pulsar import AccessMode, Command, ErrorCode
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import NON_PERSISTENT_TOPIC, TOPIC


def test_exclusive_producers_raise_the_epoch_and_fence_others() -> None:
    async def scenario(stage: Stage) -> None:
        first, second = await stage.client(), await stage.client()
        granted = await first.produce(TOPIC, producer_access_mode=1)
        assert granted.topic_epoch == 0
        waiting = await second.produce(TOPIC, producer_id=5, producer_access_mode=2)
        assert not waiting.producer_ready
        await first.ask(Command.CLOSE_PRODUCER, producer_id=0)
        ready = (await second.next(Command.PRODUCER_SUCCESS)).message
        assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (waiting.request_id, True, 1)
        third = await first.produce(TOPIC, producer_id=1, producer_access_mode=3)
        assert third.topic_epoch == 2
        assert second.said == [], "the fenced one is told nothing"
        second.publish(0, producer_id=5)
        await second.end()
        stale = await first.produce(TOPIC, producer_id=2, producer_access_mode=1, topic_epoch=1)
        assert stale.error == ErrorCode.PRODUCER_FENCED
        log = stage.server.topics.open
        assert [t.ledger.properties["pulsar.topic.epoch"] for t in log.values() if t.persistent] == ["2"]

    on_stage(scenario)


def test_the_access_mode_is_checked_before_the_name() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.produce(TOPIC, 0, producer_name="a")).HasField("topic_epoch")
        refused = await client.produce(TOPIC, 1, producer_name="a", producer_access_mode=AccessMode.EXCLUSIVE)
        assert (refused.error, refused.message) == (ErrorCode.PRODUCER_FENCED, "Topic has existing shared producers")
        waiting = await client.produce(TOPIC, 2, producer_name="a", producer_access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not waiting.producer_ready
        refused = await client.produce(TOPIC, 3, producer_name="d")
        assert refused.error == ErrorCode.PRODUCER_BUSY
        await client.ask(Command.CLOSE_PRODUCER, producer_id=0)
        ready = (await client.next(Command.PRODUCER_SUCCESS)).message
        assert (ready.request_id, ready.topic_epoch, ready.producer_ready) == (waiting.request_id, 0, True)
        await client.ask(Command.CLOSE_PRODUCER, producer_id=2)
        shared = await client.produce(TOPIC, 4, producer_name="e")
        assert shared.HasField("topic_epoch")
        assert shared.topic_epoch == 0

    on_stage(scenario)


def test_a_waiting_producer_is_refused_when_another_fences_the_topic() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, 0, producer_name="a", producer_access_mode=AccessMode.EXCLUSIVE)
        waiting = await client.produce(TOPIC, 1, producer_name="b", producer_access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not waiting.producer_ready
        taker = await stage.client()
        fencing = AccessMode.EXCLUSIVE_WITH_FENCING
        assert (await taker.produce(TOPIC, producer_name="c", producer_access_mode=fencing)).topic_epoch == 1
        told = (await client.next(Command.ERROR)).message
        assert (told.request_id, told.error) == (waiting.request_id, ErrorCode.PRODUCER_FENCED)

    on_stage(scenario)


@pytest.mark.parametrize("topic", [TOPIC, NON_PERSISTENT_TOPIC])
def test_a_waiting_producer_is_refused_when_its_topic_closes(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(topic)
        waits = await client.produce(topic, 1, producer_access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not waits.producer_ready
        (served_now,) = stage.server.topics.open.values()
        await served_now.close()
        told = await client.next(Command.ERROR)
        assert told.message.request_id == waits.request_id
        assert told.message.error == ErrorCode.SERVICE_NOT_READY
        (connection,) = stage.server.connections
        assert connection.producers == {}

    on_stage(scenario)
