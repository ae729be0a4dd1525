"""What a cursor goes past without an acknowledgement, too old or skipped, is held by no consumer any more."""

from __future__ import annotations

from typing import cast

import pytest
from bkdaemon.broker.dispatch.key_shared import KeyShared

from bkctl.codec.pulsar import Command
from tests.broker.admin import Admin, administering
from tests.broker.raw import PORT, RawClient

TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
SHARED, KEY_SHARED = 1, 3
HOST = "client"


async def connected(admin: Admin) -> RawClient:
    """A client of the broker behind an interface, whose port is opened for it."""
    await admin.service.server.start(HOST, PORT)
    _, protocol = await admin.service.world.network.connect(HOST, PORT, RawClient)
    client = cast("RawClient", protocol)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    return client


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("way", ["skip/8", "skip_all", "expireMessages/1"])
def test_a_consumer_that_held_too_much_goes_on(kind: int, way: str) -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        client = await connected(admin)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind)
        client.flow(100)
        for i in range(8):
            client.publish(i, partition_key=f"k{i}")
        await client.messages(8)
        subscription = topic.subscriptions["s"]
        (consumer,) = subscription.consumers
        assert consumer.blocked
        await admin.ok("POST", f"{PATH}/subscription/s/{way}")
        assert (consumer.pending, consumer.unacked, consumer.blocked) == ({}, 0, False)
        if isinstance(subscription.dispatcher, KeyShared):
            assert subscription.dispatcher._slots == {}
        client.publish(8, partition_key="k0")
        (said,) = await client.messages(1)
        assert list(consumer.pending) == [(said.message.message_id.ledgerId, said.message.message_id.entryId)]

    administering(scenario, unacked_per_consumer=4)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_lies_behind_is_held_on(kind: int) -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        client = await connected(admin)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind)
        client.flow(100)
        for i in range(8):
            client.publish(i, partition_key="k")
        await client.messages(8)
        await admin.ok("POST", f"{PATH}/subscription/s/skip/5")
        (consumer,) = topic.subscriptions["s"].consumers
        assert [position.entry_id for position in consumer.pending] == [5, 6, 7]
        assert consumer.unacked == 3
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0)
        again = await client.messages(3)
        assert [(s.message.message_id.entryId, s.message.redelivery_count) for s in again] == [(5, 1), (6, 1), (7, 1)]

    administering(scenario)
