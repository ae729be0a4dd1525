"""A subscription and its cursor: acknowledgements, seeks, skipped entries, its end, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon.broker.dispatch.key_shared import KeyShared
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.model.topic import EARLIEST
from tests.broker.admin import Admin, administering
from tests.broker.raw import Stage, batch_of, on_stage
from tests.broker.scenarios import (
    FIRST_ID,
    KEY_SHARED,
    SHARED,
    TOPIC,
    connected,
    entry_ids,
    open_topic,
    producing,
    publish,
)
from tests.unit.log.logs import until
from tests.unit.log.store_faults import HeldWrites

FLAG = 2**64 - 1
PATH = "/admin/v2/persistent/public/default/t"


def test_messages_of_a_batch_are_acknowledged_one_by_one_with_a_receipt() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 0)
        client.send(Command.SEND, batch_of(0, [b"x"] * 70), producer_id=0, sequence_id=0, num_messages=70)
        await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC, kind=1)
        client.flow(100)
        (message,) = await client.messages(1)
        place = message.message.message_id
        place.ack_set.extend([5, 1])
        client.send(Command.ACK, consumer_id=0, ack_type=0, message_id=[place], request_id=7)
        receipt = (await client.next(Command.ACK_RESPONSE)).message
        assert (receipt.request_id, receipt.HasField("error")) == (7, False)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        await client.subscribe(TOPIC, kind=1)
        client.flow(1)
        (again,) = await client.messages(1)
        assert [w & FLAG for w in again.message.ack_set] == [5, 1]
        del place.ack_set[:]
        place.ack_set.extend([0, 0])
        client.send(Command.ACK, consumer_id=0, ack_type=0, message_id=[place])
        client.publish(70)
        client.flow(10)
        assert entry_ids(await client.messages(1)) == [1]

    on_stage(scenario)


def test_a_cumulative_ack_within_a_batch_acknowledges_the_ledger_before() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        await stage.server.topics.unload(open_topic(stage).name)  # the next entry is the first of another ledger
        await client.produce(TOPIC, 1, producer_name="p")
        await client.subscribe(TOPIC)
        body = batch_of(1, [b"a", b"b"])
        client.send(Command.SEND, body, producer_id=1, sequence_id=1, num_messages=2)
        place = (await client.next(Command.SEND_RECEIPT)).message.message_id
        assert place.entryId == 0
        place.ack_set.append(0b10)
        client.send(Command.ACK, consumer_id=0, ack_type=1, message_id=[place], request_id=9)
        await client.next(Command.ACK_RESPONSE)
        assert open_topic(stage).subscriptions["s"].cursor.backlog() == 1

    on_stage(scenario, rules=TopicRules(batch_index_acks=False))


def test_a_seek_into_a_batch_delivers_its_remaining_messages() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.send(Command.SEND, batch_of(0, [b"a", b"b", b"c"]), producer_id=0, sequence_id=0, num_messages=3)
        place = (await client.next(Command.SEND_RECEIPT)).message.message_id
        place.ack_set.append(0b110)
        await client.ask(Command.SEEK, consumer_id=0, message_id=place)
        await client.next(Command.CLOSE_CONSUMER)
        await client.subscribe(TOPIC)
        client.flow(10)
        (one,) = await client.messages(1)
        assert list(one.message.ack_set) == [0b110]

    on_stage(scenario)


def test_a_consumer_that_subscribes_during_a_seek_waits_for_its_end() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        for i in range(3):
            client.publish(i)
            await client.next(Command.SEND_RECEIPT)
        client.send(Command.SEEK, consumer_id=0, request_id=50, message_id=FIRST_ID)
        await client.next(Command.CLOSE_CONSUMER)
        assert open_topic(stage).subscriptions["s"].fenced
        assert not hasattr(await client.subscribe(TOPIC), "error")
        assert (await client.next(Command.SUCCESS)).message.request_id == 50

    on_stage(scenario)


def test_a_consumer_is_refused_when_the_topic_closes_during_a_seek() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        await publish(client, 0, 3)
        topic = open_topic(stage)
        held = HeldWrites(stage.broker.ledgers.store, "/s")
        client.send(Command.SEEK, consumer_id=0, request_id=50, message_id=FIRST_ID)
        await until(lambda: held.waiting)
        asked = asyncio.ensure_future(client.subscribe(TOPIC))
        await asyncio.sleep(0.1)
        closing = asyncio.ensure_future(topic.close())
        await asyncio.sleep(0.1)
        held.release()
        answer = await asked
        await closing
        assert answer.error == ErrorCode.SERVICE_NOT_READY
        assert topic.subscriptions["s"].consumers == []

    on_stage(scenario)


def test_a_consumer_is_refused_when_the_subscription_is_deleted_during_a_seek() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await publish(client, 0, 9)
        await client.subscribe(TOPIC)
        topic, store = open_topic(stage), stage.broker.ledgers.store
        subscription = topic.subscriptions["s"]
        moving, deleting = HeldWrites(store, "/s"), None
        moved = asyncio.ensure_future(subscription.seek(EARLIEST))
        await until(lambda: moving.waiting)
        deleting = HeldWrites(store, "/s")
        deleted = asyncio.ensure_future(topic.delete_subscription(subscription))
        await asyncio.sleep(0)
        moving.release()
        await moved
        await until(lambda: deleting.waiting)
        told = await client.subscribe(TOPIC, consumer_id=7)
        assert (told.error, subscription.consumers) == (ErrorCode.SERVICE_NOT_READY, [])
        deleting.release()
        await deleted
        assert topic.subscriptions == {}

    on_stage(scenario)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("way", ["skip/8", "skip_all", "expireMessages/1"])
def test_a_blocked_consumer_resumes_when_its_entries_are_skipped_or_expire(kind: int, way: str) -> None:
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
def test_entries_after_the_skipped_ones_stay_pending(kind: int) -> None:
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


def test_a_closed_reader_leaves_no_subscription_and_no_cursor() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, 5)
        start = api.MessageIdData(ledgerId=-1, entryId=-1)
        await client.subscribe(TOPIC, "reader-1", durable=False, start_message_id=start)
        client.flow(10)
        said = await client.messages(5)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        (topic,) = stage.server.topics.open.values()
        assert topic.subscriptions == {}
        assert topic.ledger.cursors == {}
        await client.subscribe(TOPIC, "reader-2", durable=False, start_message_id=said[3].message.message_id)
        client.flow(10)
        assert entry_ids(await client.messages(2)) == [3, 4]

    on_stage(scenario)


def test_a_reader_whose_client_disconnects_leaves_no_subscription_and_no_cursor() -> None:
    async def scenario(stage: Stage) -> None:
        client, gone = await producing(stage, 3), await stage.client()
        await gone.subscribe(TOPIC, "reader-1", durable=False)
        gone.send(Command.SEEK, consumer_id=0, request_id=50, message_publish_time=0)
        await gone.next(Command.SUCCESS)
        gone.send(
            Command.SUBSCRIBE, topic=TOPIC, subscription="r2", subType=0, consumer_id=5, request_id=9, durable=False
        )
        gone.cut()
        await asyncio.sleep(120)
        (topic,) = stage.server.topics.open.values()
        assert topic.subscriptions == {}
        assert topic.ledger.cursors == {}
        assert not client.ended

    on_stage(scenario)


@pytest.mark.parametrize(("version", "told"), [(8, False), (9, True)])
def test_the_end_of_a_topic_is_sent_to_clients_of_version_9_or_later(version: int, told: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(protocol_version=version)
        await client.subscribe(TOPIC)
        client.flow(1)
        await open_topic(stage).terminate()
        await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
        assert any(s.kind == Command.REACHED_END_OF_TOPIC for s in client.said) is told

    on_stage(scenario)
