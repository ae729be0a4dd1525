"""Requests about producers: names, initial subscriptions, refused sends, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from tests.broker.raw import Stage, batch_of, entry_of, on_stage
from tests.broker.scenarios import NON_PERSISTENT_TOPIC, TOPIC, open_topic

LIMITS = ServerLimits()


def broken(entry: bytes) -> bytes:
    return entry[:-1] + bytes((entry[-1] ^ 1,))


def test_a_repeated_request_returns_the_same_producer_and_its_name_is_taken() -> None:
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


@pytest.mark.parametrize("topic", [TOPIC, NON_PERSISTENT_TOPIC])
def test_the_name_of_a_producer_whose_client_is_silent_is_released(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.produce(topic, producer_name="p")
        assert (await other.produce(topic, producer_name="p")).error == ErrorCode.PRODUCER_BUSY
        held.answers_pings = False
        since = stage.server.now_ms()
        assert not hasattr(await other.produce(topic, producer_name="p"), "error")
        assert stage.server.now_ms() - since >= 1000 * LIMITS.liveness_s
        await held.end()
        other.publish(0)
        assert (await other.next(Command.SEND_RECEIPT, Command.SEND_ERROR)).kind == Command.SEND_RECEIPT

    on_stage(scenario)


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (TopicRules(encryption_required=True), ErrorCode.METADATA),
        (TopicRules(backlog_exceeded="producer_exception"), ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION),
    ],
)
def test_a_refused_producer_stores_no_schema(rules: TopicRules, code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = api.Schema(name="s", schema_data=b"", type=1)
        assert (await client.produce(TOPIC, schema=schema)).error == code
        asked = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC)
        assert asked.error_code == ErrorCode.TOPIC_NOT_FOUND

    on_stage(scenario, rules=rules)


def test_the_initial_subscription_is_created_where_the_rules_allow_it() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert not hasattr(await client.produce(TOPIC, initial_subscription_name=""), "error")
        assert open_topic(stage).subscriptions == {}
        await client.produce(TOPIC, 1, initial_subscription_name="first")
        assert list(open_topic(stage).subscriptions) == ["first"]
        stage.backend.rules_now = TopicRules(auto_create_subscription=False)
        await stage.server.topics.unload(open_topic(stage).name)
        assert not hasattr(await client.produce(TOPIC, 2, initial_subscription_name="first"), "error")
        refused = await client.produce(TOPIC, 3, initial_subscription_name="second")
        assert refused.error == ErrorCode.NOT_ALLOWED

    on_stage(scenario)


@pytest.mark.parametrize("topic", [TOPIC, NON_PERSISTENT_TOPIC])
def test_a_send_error_names_a_batch_by_its_highest_sequence_id(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(topic, producer_name="p")
        body = broken(batch_of(5, [b"a", b"b", b"c"]))
        client.send(Command.SEND, body, producer_id=0, sequence_id=5, highest_sequence_id=7, num_messages=3)
        client.send(Command.SEND, broken(entry_of(8)), producer_id=0, sequence_id=8)
        for number in (7, 8):
            told = (await client.next(Command.SEND_ERROR)).message
            assert (told.sequence_id, told.error) == (number, ErrorCode.CHECKSUM)

    on_stage(scenario)


def test_sends_with_a_message_id_or_a_transaction_are_refused_in_their_order() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC, producer_name="p")
        place = api.MessageIdData(ledgerId=1, entryId=1)
        more: list[dict[str, Any]] = [{}, {"message_id": place}, {}, {"txnid_most_bits": 1, "txnid_least_bits": 2}, {}]
        frames = [
            encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i, **fields)
            for i, fields in enumerate(more)
        ]
        client.write(b"".join(frames))
        told = [(await client.next(Command.SEND_RECEIPT, Command.SEND_ERROR)) for _ in more]
        assert [t.message.sequence_id for t in told] == [0, 1, 2, 3, 4]
        refused = {t.message.sequence_id: t.message for t in told if t.kind == Command.SEND_ERROR}
        assert {k: m.error for k, m in refused.items()} == {1: ErrorCode.NOT_ALLOWED, 3: ErrorCode.NOT_ALLOWED}
        assert refused[1].message == "Only shadow topic supports sending messages with messageId"
        assert open_topic(stage).ledger.last_confirmed.entry_id == 2
        client.send(Command.SEND, entry_of(9), producer_id=7, sequence_id=9, message_id=place)
        await client.end()

    on_stage(scenario)
