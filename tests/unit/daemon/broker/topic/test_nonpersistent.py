"""Topics without storage: receipts and the consumers that get a message, in virtual time."""

from __future__ import annotations

import itertools

from bkdaemon.broker.topic.rates import subscriptions_of

from bkctl.codec.pulsar import Command, ErrorCode
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import (
    KEY_SHARED,
    NON_PERSISTENT_TOPIC,
    SHARED,
    entry_ids,
    key_of,
    payload_number,
    producing,
    publish,
)


def test_receipts_have_ledger_and_entry_0() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=NON_PERSISTENT_TOPIC)
        client.publish(0)
        receipt = (await client.next(Command.SEND_RECEIPT)).message
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)

    on_stage(scenario)


def test_the_consumer_that_replaces_a_silent_one_gets_new_messages() -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.subscribe(NON_PERSISTENT_TOPIC)
        held.answers_pings = False
        assert not hasattr(await other.subscribe(NON_PERSISTENT_TOPIC), "error")
        await other.produce(NON_PERSISTENT_TOPIC)
        other.flow(1)
        other.publish(0)
        await other.messages(1)

    on_stage(scenario)


def test_messages_for_consumers_without_permits_are_dropped_and_counted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=NON_PERSISTENT_TOPIC)
        await client.subscribe(NON_PERSISTENT_TOPIC)
        client.flow(2)
        await publish(client, 0, 5)
        said = await client.messages(2)
        assert [payload_number(one) for one in said] == [0, 1]
        assert entry_ids(said) == [0, 0]
        client.flow(10)
        await publish(client, 5, 1)
        assert payload_number((await client.messages(1))[0]) == 5
        (topic,) = stage.server.topics.open.values()
        (subscription,) = subscriptions_of(topic)
        assert (topic.messages_in, getattr(subscription, "dropped", None)) == (6, 3)

    on_stage(scenario)


def test_shared_consumers_get_messages_in_turn_and_those_without_permits_are_left_out() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=NON_PERSISTENT_TOPIC)
        for consumer_id, permits in enumerate((100, 2, 100)):
            await client.subscribe(NON_PERSISTENT_TOPIC, kind=SHARED, consumer_id=consumer_id)
            client.flow(permits, consumer_id)
        await publish(client, 0, 10)
        takers = [one.message.consumer_id for one in await client.messages(10)]
        assert [takers.count(consumer_id) for consumer_id in range(3)] == [4, 2, 4]
        assert all(one != other for one, other in itertools.pairwise(takers))

    on_stage(scenario)


def test_a_key_goes_to_one_key_shared_consumer() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=NON_PERSISTENT_TOPIC)
        for consumer_id in range(3):
            await client.subscribe(NON_PERSISTENT_TOPIC, kind=KEY_SHARED, consumer_id=consumer_id)
            client.flow(100, consumer_id)
        await publish(client, 0, 60, keys=20)
        owners: dict[str, set[int]] = {}
        for said in await client.messages(60):
            owners.setdefault(key_of(said), set()).add(said.message.consumer_id)
        assert {len(found) for found in owners.values()} == {1}
        assert {owner for found in owners.values() for owner in found} == {0, 1, 2}

    on_stage(scenario)


def test_a_subscription_ends_with_its_last_consumer() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=NON_PERSISTENT_TOPIC)
        await client.subscribe(NON_PERSISTENT_TOPIC, kind=SHARED)
        await client.subscribe(NON_PERSISTENT_TOPIC, kind=SHARED, consumer_id=1)
        refused = await client.subscribe(NON_PERSISTENT_TOPIC, kind=KEY_SHARED, consumer_id=2)
        assert refused.error == ErrorCode.CONSUMER_BUSY
        (topic,) = stage.server.topics.open.values()
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        assert list(topic.subscriptions) == ["s"]
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=1)
        assert topic.subscriptions == {}

    on_stage(scenario)


def test_the_last_message_id_is_not_supported() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(NON_PERSISTENT_TOPIC)
        reply = await client.ask(
            Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, Command.ERROR, consumer_id=0
        )
        assert reply.error == ErrorCode.UNKNOWN
        assert reply.message == "getLastMessageId is not supported on a non-persistent topic"

    on_stage(scenario)
