"""The view that dispatchers have of their subscription and its topic: they use nothing else of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.dispatch.subscription import DispatchedSubscription, DispatchedTopic
from bkdaemon.broker.rules import Rate, TopicRules

from bkctl.codec.pulsar import Command, SubscriptionType
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    TOPIC,
    open_topic,
    payload_number,
    producing,
    publish,
    redeliver,
)


def members(protocol: type) -> frozenset[str]:
    """Returns the attributes and methods that a Protocol declares."""
    return frozenset(name for name in (*protocol.__annotations__, *vars(protocol)) if not name.startswith("_"))


class Declared:
    """A view of an object that has the members of a Protocol alone; parts of it may be views themselves."""

    def __init__(self, real: object, protocol: type, **parts: Declared) -> None:
        vars(self).update(_real=real, _members=members(protocol), _parts=parts, used=set())

    def __getattr__(self, name: str) -> Any:
        if name not in self._members:
            raise AttributeError(f"a dispatcher must not use {name!r}")
        self.used.add(name)
        return self._parts.get(name) or getattr(self._real, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a dispatcher must not set {name!r}")


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_dispatchers_use_only_the_declared_members(kind: SubscriptionType, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC, kind=kind)
        topic = open_topic(stage)
        dispatcher: Any = topic.subscriptions["s"].dispatcher
        view = Declared(topic.subscriptions["s"], DispatchedSubscription, topic=Declared(topic, DispatchedTopic))
        dispatcher.subscription = view
        if hasattr(dispatcher, "_delays"):
            dispatcher._delays._subscription = view
        client.flow(20)
        await publish(client, 0, 6, keys=2)
        said = await client.messages(6)
        if kind in (SHARED, KEY_SHARED):
            redeliver(client, *said[4:])
            assert [payload_number(s) for s in await client.messages(2)] == [4, 5]
            await publish(client, 6, 1, deliver_at_time=stage.world.clock.now_ms() + 20_000)
        else:
            client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0)
            assert [payload_number(s) for s in await client.messages(6)] == list(range(6))
            await publish(client, 6, 1)
        assert payload_number((await client.messages(1))[0]) == 6
        client.ack(*said)
        await client.subscribe(TOPIC, kind=kind, consumer_id=1)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        await topic.terminate()
        await asyncio.sleep(2)
        assert {"cursor", "rules"} <= view.used
        assert not [record for record in caplog.records if "must not" in record.getMessage()]

    on_stage(scenario, rules=TopicRules(dispatch_rate=Rate(10_000), pause_on_ack_state=True))


def test_a_member_that_is_not_declared_is_not_in_the_view() -> None:
    view = Declared(asyncio.Event(), DispatchedSubscription)
    with pytest.raises(AttributeError, match="must not use 'wait'"):
        view.wait()
    with pytest.raises(AttributeError, match="must not set 'paused'"):
        view.paused = True
