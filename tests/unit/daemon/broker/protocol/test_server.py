"""The broker's port against a client that says what it is told, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.backend import Lookup

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import NO_REQUEST, Command, ErrorCode, encode_command
from bkctl.model.topic import TopicName
from tests.broker.raw import RawClient, Stage, batch_of, entry_of, on_stage
from tests.unit.log.logs import until

TOPIC = "persistent://public/default/t"
FLAG = 2**64 - 1


def places(said: list[Any]) -> list[tuple[int, int]]:
    return [(s.message.message_id.ledgerId, s.message.message_id.entryId) for s in said]


def entries(said: list[Any]) -> list[int]:
    return [s.message.message_id.entryId for s in said]


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 20,
        b"GET / HTTP/1.1\r\n\r\n",
        encode_command(Command.CONNECT, client_version="again"),
        encode_command(Command.SEND, b"", producer_id=0, sequence_id=0),
        encode_command(Command.SEND, entry_of(0), producer_id=77, sequence_id=0),
        encode_command(Command.CONSUMER_STATS, request_id=1, consumer_id=77),
        encode_command(Command.SUBSCRIBE, topic="t", subscription="s", subType=9, consumer_id=1, request_id=1),
        encode_command(Command.LOOKUP, topic="t", request_id=1).replace(b"\x0a\x01t", b"\x0a\x01\xff"),
        bytes.fromhex("00000006000000020863"),
    ],
)
def test_garbage_ends_its_own_connection_only(raw: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        good, bad = await stage.client(), await stage.client()
        await good.produce(TOPIC)
        bad.write(raw)
        await bad.end()
        good.publish(0)
        receipt = await good.next()
        assert receipt.kind == Command.SEND_RECEIPT

    on_stage(scenario)


def test_nothing_is_answered_before_connect() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(connect=False)
        client.send(Command.LOOKUP, topic=TOPIC, request_id=1)
        await client.end()
        assert client.said == []

    on_stage(scenario)


def test_a_silent_client_is_let_go_and_one_that_answers_is_not() -> None:
    async def scenario(stage: Stage) -> None:
        silent, lively = await stage.client(), await stage.client()
        silent.answers_pings = False
        await asyncio.sleep(100)
        assert silent.ended
        assert not lively.ended

    on_stage(scenario)


def test_transactions_are_refused_cleanly() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for kind, fields in ((Command.NEW_TXN, {}), (Command.TC_CLIENT_CONNECT_REQUEST, {"tc_id": 0})):
            answer = await client.ask(kind, **fields)
            assert (answer.error, answer.message) == (ErrorCode.NOT_ALLOWED, "Transactions are not enabled.")
        assert (await client.ask(Command.END_TXN, txn_action=1)).error == ErrorCode.NOT_ALLOWED
        client.send(Command.END_TXN, request_id=9)
        await client.end()

    on_stage(scenario)


@pytest.mark.parametrize("topic", [TOPIC, TOPIC.replace("persistent", "non-persistent")])
def test_a_coordinator_is_told_by_topic_that_there_are_no_transactions(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        kept = not topic.startswith("non")
        code = ErrorCode.NOT_ALLOWED if kept else ErrorCode.UNKNOWN

        async def on_partition() -> Any:
            kind, answer = Command.END_TXN_ON_PARTITION, Command.END_TXN_ON_PARTITION_RESPONSE
            return await client.ask(kind, answer, topic=topic, txn_action=0, txnid_least_bits=7)

        async def on_subscription(name: str) -> Any:
            kind, answer = Command.END_TXN_ON_SUBSCRIPTION, Command.END_TXN_ON_SUBSCRIPTION_RESPONSE
            return await client.ask(
                kind, answer, subscription=api.Subscription(topic=topic, subscription=name), txn_action=1
            )

        for told in (await on_partition(), await on_subscription("s")):  # nothing is there to be ended
            assert not told.HasField("error")
        await client.subscribe(topic)
        assert not (await on_subscription("other")).HasField("error")
        told = await on_partition()
        assert (told.error, told.txnid_least_bits, told.HasField("txnid_most_bits")) == (code, 7, True)
        assert (told.message == "Transaction buffer disable!") is kept
        told = await on_subscription("s")
        assert told.error == code
        assert (told.message == "Handle end txn on subscription failed: The transaction is disabled") is kept
        client.send(Command.END_TXN_ON_PARTITION, request_id=9, topic=topic, txn_action=2)
        await client.end()

    on_stage(scenario)


# -- lookups -----------------------------------------------------------------------------------------------------------


def test_who_asks_where_a_topic_is_now_is_told_before_the_broker_ends() -> None:
    async def scenario(stage: Stage) -> None:
        client, inner = await stage.client(), stage.backend.lookup
        await client.produce(TOPIC)

        async def slow(topic: TopicName, *, authoritative: bool) -> Lookup:
            await asyncio.sleep(0.5)
            return await inner(topic, authoritative=authoritative)

        def ask() -> asyncio.Future[Any]:
            return asyncio.ensure_future(
                client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=TOPIC, authoritative=False)
            )

        stage.backend.lookup = slow  # type: ignore[method-assign]
        before = ask()
        await until(lambda: stage.server.lookups == 1)
        stopping = asyncio.ensure_future(stage.server.stop())
        await client.next(Command.CLOSE_PRODUCER)
        for answer in (before, ask()):
            assert (await answer).brokerServiceUrl == stage.backend.url
        await client.end()
        await stopping

    on_stage(scenario)


def test_lookups_and_partitions_say_what_java_says() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()

        async def partitions(topic: str, **fields: Any) -> Any:
            return await client.ask(
                Command.PARTITIONED_METADATA, Command.PARTITIONED_METADATA_RESPONSE, topic=topic, **fields
            )

        async def lookup(topic: str) -> Any:
            return await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=topic)

        answer = await partitions(TOPIC)
        assert (answer.response, answer.partitions, answer.HasField("error")) == (0, 0, False)
        for topic, fields, error in (
            (TOPIC, {"metadata_auto_creation_enabled": False}, ErrorCode.TOPIC_NOT_FOUND),
            ("persistent://no/where/t", {}, ErrorCode.TOPIC_NOT_FOUND),
            ("persistent://public/t", {}, ErrorCode.INVALID_TOPIC_NAME),
        ):
            answer = await partitions(topic, **fields)
            assert (answer.response, answer.error, answer.HasField("partitions")) == (1, error, False), topic
        answer = await lookup(TOPIC)
        assert (answer.response, answer.authoritative, answer.proxy_through_service_url) == (1, True, False)
        assert not answer.HasField("brokerServiceUrlTls")
        assert ((await lookup("persistent://no/where/t")).error) == ErrorCode.TOPIC_NOT_FOUND
        assert ((await lookup("persistent://public/t")).error) == ErrorCode.INVALID_TOPIC_NAME

    on_stage(scenario)


def test_a_topic_that_may_not_be_made_is_not_found() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert (await client.produce(TOPIC)).error == ErrorCode.TOPIC_NOT_FOUND
        assert (await client.subscribe(TOPIC)).error == ErrorCode.TOPIC_NOT_FOUND
        stage.backend.owned = lambda topic: False
        assert (await client.produce(TOPIC)).error == ErrorCode.SERVICE_NOT_READY

    on_stage(scenario, rules=TopicRules(auto_create_topic=False))


def test_lists_and_watches_of_topics() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        answer = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE,
            Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            namespace="public/default",
            topics_pattern="persistent://public/default/t.*",
        )
        assert (list(answer.topics), answer.filtered, answer.changed) == ([TOPIC], True, True)
        again = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE,
            Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            namespace="public/default",
            topics_hash=answer.topics_hash,
        )
        assert (list(again.topics), again.changed) == ([], False)
        watch = await client.ask(
            Command.WATCH_TOPIC_LIST,
            Command.WATCH_TOPIC_LIST_SUCCESS,
            watcher_id=5,
            namespace="public/default",
            topics_pattern="persistent://public/default/.*",
        )
        assert list(watch.topic) == [TOPIC]
        await client.produce(f"{TOPIC}2", producer_id=1)
        update = (await client.next(Command.WATCH_TOPIC_UPDATE)).message
        assert (list(update.new_topics), list(update.deleted_topics)) == ([f"{TOPIC}2"], [])
        await client.ask(Command.WATCH_TOPIC_LIST_CLOSE, watcher_id=5)
        await client.produce(f"{TOPIC}3", producer_id=2)
        assert client.said == []

    on_stage(scenario)


# -- producers ---------------------------------------------------------------------------------------------------------


def test_receipts_come_in_order_with_errors_in_their_place() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        good, bad = entry_of(0), bytearray(entry_of(1))
        bad[-1] ^= 1
        frames = [
            encode_command(Command.SEND, bytes(bad) if i == 3 else good, producer_id=0, sequence_id=i) for i in range(6)
        ]
        client.write(b"".join(frames))
        client.send(Command.CLOSE_PRODUCER, producer_id=0, request_id=99)
        said = [await client.next() for _ in range(7)]
        kinds = [Command.SEND_RECEIPT] * 3 + [Command.SEND_ERROR] + [Command.SEND_RECEIPT] * 2 + [Command.SUCCESS]
        assert [s.kind for s in said] == kinds
        assert [s.message.sequence_id for s in said[:6]] == list(range(6))
        assert said[3].message.error == ErrorCode.CHECKSUM
        stored = [s.message.message_id.entryId for s in said[:6] if s.kind == Command.SEND_RECEIPT]
        assert stored == list(range(5))

    on_stage(scenario)


def test_a_producer_is_the_same_when_asked_again_and_its_name_is_taken() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        first = await client.produce(TOPIC)
        assert (first.last_sequence_id, first.schema_version, first.producer_ready) == (-1, b"", True)
        assert first.HasField("schema_version")
        assert not first.HasField("topic_epoch")
        assert (await client.produce(TOPIC)).producer_name == first.producer_name
        other = await client.produce(TOPIC, producer_id=1, producer_name=first.producer_name)
        assert other.error == ErrorCode.PRODUCER_BUSY
        await client.ask(Command.CLOSE_PRODUCER, producer_id=0)
        await client.ask(Command.CLOSE_PRODUCER, producer_id=0)
        assert (await client.produce(TOPIC, producer_id=2, producer_name=first.producer_name)).producer_ready

    on_stage(scenario)


def test_exclusive_producers_epochs_and_the_fenced_one() -> None:
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


def test_deduplication_survives_the_topic() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        for sequence_id in (0, 1, 1, 0, 5):
            client.publish(sequence_id)
            await client.next(Command.SEND_RECEIPT, Command.SEND_ERROR)
        (name,) = stage.server.topics.open
        for _ in range(2):
            await stage.server.topics.unload(name)
            await client.next(Command.CLOSE_PRODUCER)
            assert (await client.produce(TOPIC, producer_name="p")).last_sequence_id == 5
        client.publish(5)
        duplicate = (await client.next(Command.SEND_RECEIPT)).message
        assert (duplicate.message_id.ledgerId, duplicate.message_id.entryId) == (-1, -1)
        client.publish(6)
        stored = (await client.next(Command.SEND_RECEIPT)).message
        assert stored.message_id.entryId >= 0

    on_stage(scenario, rules=TopicRules(deduplication=True, deduplication_entries=2))


def test_thousands_of_duplicates_in_one_go() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        client.publish(5)
        await client.next(Command.SEND_RECEIPT)
        sends = [encode_command(Command.SEND, entry_of(i % 6), producer_id=0, sequence_id=i % 6) for i in range(3000)]
        client.write(b"".join(sends))
        client.publish(6)
        await client.until(lambda: len(client.said) == 3001)
        stored = [s.message.message_id.entryId for s in client.said]
        assert stored == [-1] * 3000 + [1]

    on_stage(scenario, rules=TopicRules(deduplication=True))


def test_a_reader_whose_client_vanishes_leaves_nothing_behind() -> None:
    async def scenario(stage: Stage) -> None:
        client, gone = await filled(stage, 3), await stage.client()
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


def test_a_topic_that_fails_closes_its_clients_and_says_nothing_of_what_was_sent() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        (topic,) = stage.server.topics.open.values()
        topic.ledger.failed(__import__("bkctl.errors").errors.Conflict("another owner"))
        client.publish(0)
        said = {(await client.next()).kind for _ in range(2)}
        assert said == {Command.CLOSE_PRODUCER, Command.CLOSE_CONSUMER}
        await asyncio.sleep(1)
        assert client.said == []
        assert not client.ended, "what it sent before it heard is ignored"
        assert not (await client.produce(TOPIC)).HasField("topic_epoch"), "it comes back"

    on_stage(scenario)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", ErrorCode.PRODUCER_BLOCKED_QUOTA_ERROR),
        ("producer_exception", ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION),
    ],
)
def test_producers_of_a_topic_over_its_quota_are_closed_and_told_why(policy: str, error: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        (topic,) = stage.server.topics.open.values()
        topic.rules = replace(topic.rules, backlog_exceeded=policy)
        assert (await client.next()).kind == Command.CLOSE_PRODUCER
        assert (await client.produce(TOPIC)).error == error
        topic.rules = replace(topic.rules, backlog_exceeded=None)
        assert (await client.produce(TOPIC)).producer_ready

    on_stage(scenario)


# -- consumers ---------------------------------------------------------------------------------------------------------


async def filled(stage: Stage, count: int, **metadata: Any) -> RawClient:
    client = await stage.client()
    await client.produce(TOPIC)
    for i in range(count):
        client.publish(i, b"%d" % i, **metadata)
    for _ in range(count):
        await client.next(Command.SEND_RECEIPT)
    return client


def test_nothing_is_sent_without_permits_and_no_more_than_them() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 10)
        await client.subscribe(TOPIC)
        await asyncio.sleep(1)
        assert client.said == []
        client.flow(3)
        assert entries(await client.messages(3)) == [0, 1, 2]
        await asyncio.sleep(1)
        assert client.said == []
        client.flow(2)
        assert entries(await client.messages(2)) == [3, 4]

    on_stage(scenario)


def test_permits_count_messages_and_a_batch_is_never_split() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 0)
        for i in range(4):
            client.send(Command.SEND, batch_of(i * 10, [b"x"] * 10), producer_id=0, sequence_id=i * 10, num_messages=10)
            await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC)
        client.flow(11)
        assert entries(await client.messages(2)) == [0, 1]
        await asyncio.sleep(1)
        client.flow(9)  # 20 were sent for 20
        await asyncio.sleep(1)
        assert client.said == []
        client.flow(1)
        assert entries(await client.messages(1)) == [2]

    on_stage(scenario)


def test_bits_of_a_batch_and_a_receipt() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 0)
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
        assert entries(await client.messages(1)) == [1]

    on_stage(scenario)


def test_seek_closes_consumers_then_answers() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 5)
        await client.subscribe(TOPIC)
        client.flow(10)
        said = await client.messages(5)
        client.ack(*said)
        assert (await client.ask(Command.SEEK, consumer_id=0)).error == ErrorCode.METADATA
        client.send(Command.SEEK, consumer_id=0, request_id=50, message_id=said[2].message.message_id)
        first, second = await client.next(), await client.next()
        assert (first.kind, first.message.request_id) == (Command.CLOSE_CONSUMER, NO_REQUEST)
        assert (second.kind, second.message.request_id) == (Command.SUCCESS, 50)
        await client.subscribe(TOPIC)
        client.flow(10)
        assert entries(await client.messages(3)) == [2, 3, 4]

    on_stage(scenario)


def test_the_last_message_of_nothing_of_a_message_and_of_a_batch() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 0)
        await client.subscribe(TOPIC)

        async def last() -> tuple[int, int]:
            answer = await client.ask(
                Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, Command.ERROR, consumer_id=0
            )
            assert answer.HasField("consumer_mark_delete_position")
            return answer.last_message_id.entryId, answer.last_message_id.batch_index

        assert await last() == (-1, -1)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        assert await last() == (0, -1)
        client.send(Command.SEND, batch_of(1, [b"a", b"b"]), producer_id=0, sequence_id=1, num_messages=2)
        await client.next(Command.SEND_RECEIPT)
        assert await last() == (1, 1)
        unknown = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.ERROR, consumer_id=9)
        assert (unknown.error, unknown.message) == (ErrorCode.METADATA, "Consumer not found")

    on_stage(scenario)


def test_unsubscribe_is_for_the_only_one_or_by_force() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 1)
        await client.subscribe(TOPIC, kind=1)
        await client.subscribe(TOPIC, kind=1, consumer_id=1)
        assert (await client.ask(Command.UNSUBSCRIBE, consumer_id=0)).error == ErrorCode.METADATA
        client.send(Command.UNSUBSCRIBE, consumer_id=0, request_id=90, force=True)
        first, second = await client.next(), await client.next()
        assert (first.kind, first.message.consumer_id) == (Command.CLOSE_CONSUMER, 1)
        assert (second.kind, second.message.request_id) == (Command.SUCCESS, 90)
        (topic,) = stage.server.topics.open.values()
        assert topic.subscriptions == {}

    on_stage(scenario)


def test_readers_leave_nothing_behind() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 5)
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
        assert entries(await client.messages(2)) == [3, 4]

    on_stage(scenario)


def test_failover_tells_who_is_active_as_java_does() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 4)
        await client.subscribe(TOPIC, kind=2, consumer_id=0, priority_level=0)
        assert client.said == []
        await client.subscribe(TOPIC, kind=2, consumer_id=1, priority_level=1)
        client.flow(10, 0)
        client.flow(10, 1)
        changes = [(await client.next()).message for _ in range(3)]
        assert [(c.consumer_id, c.is_active) for c in changes] == [(1, False), (0, True), (1, False)]
        said = await client.messages(4)
        assert {s.message.consumer_id for s in said} == {0}
        client.ack(*said[:2])
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        change = (await client.next()).message
        assert (change.consumer_id, change.is_active) == (1, True)
        again = await client.messages(2)
        assert [(s.message.consumer_id, s.message.message_id.entryId) for s in again] == [(1, 2), (1, 3)]

    on_stage(scenario)


def test_consumer_epochs_are_echoed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 2)
        await client.subscribe(TOPIC, consumer_epoch=0)
        client.flow(10)
        assert [s.message.consumer_epoch for s in await client.messages(2)] == [0, 0]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, consumer_epoch=3)
        assert [s.message.consumer_epoch for s in await client.messages(2)] == [3, 3]

    on_stage(scenario)


def test_unacknowledged_messages_have_a_limit() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 40)
        await client.subscribe(TOPIC, kind=1)
        client.flow(1000)
        said = await client.messages(40)
        client.ack(*said[:5])
        for i in range(40, 50):
            client.publish(i)
        await asyncio.sleep(5)
        assert [s for s in client.said if s.kind == Command.MESSAGE] == []
        client.ack(*said[5:])
        assert len(await client.messages(10)) == 10

    on_stage(scenario, rules=TopicRules(unacked_per_consumer_max=20))


def test_markers_are_never_delivered_and_count_as_read() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 1)
        client.publish(1, marker_type=10)
        client.publish(2)
        await client.subscribe(TOPIC)
        client.flow(10)
        said = await client.messages(2)
        assert entries(said) == [0, 2]
        client.ack(*said)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=0)
        (topic,) = stage.server.topics.open.values()
        assert topic.subscriptions["s"].cursor.backlog() == 0

    on_stage(scenario)


def test_old_clients_get_no_checksums() -> None:
    async def scenario(stage: Stage) -> None:
        await filled(stage, 1)
        old = await stage.client(protocol_version=5)
        await old.subscribe(TOPIC)
        old.flow(1)
        (message,) = await old.messages(1)
        assert message.entry == entry_of(0, b"0")[6:]

    on_stage(scenario)


def test_a_terminated_topic_takes_no_more_and_tells_its_end() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, 2)
        cpp = await stage.client(client_version="Pulsar-CPP-v4.2.0")
        await client.subscribe(TOPIC)
        await cpp.subscribe(TOPIC, "cpp")
        (topic,) = stage.server.topics.open.values()
        await topic.terminate()
        assert (await client.next()).kind == Command.CLOSE_PRODUCER
        assert (await client.produce(TOPIC, producer_id=9)).error == ErrorCode.TOPIC_TERMINATED
        for each in (client, cpp):
            each.flow(10)
            each.ack(*await each.messages(2))
        assert (await client.next()).kind == Command.REACHED_END_OF_TOPIC
        await asyncio.sleep(1)
        assert cpp.said == []

    on_stage(scenario)
