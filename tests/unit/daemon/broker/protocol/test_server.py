"""The broker's port: shutdown, and commands that close a connection, are ignored or answered, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.topic.backend import Lookup

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.model.topic import TopicName
from tests.broker.raw import RawClient, Stage, entry_of, on_stage
from tests.broker.scenarios import (
    TOPIC,
    producing,
)
from tests.unit.log.logs import until

# -- connections -------------------------------------------------------------------------------------------------------


# -- lookups -----------------------------------------------------------------------------------------------------------


# -- producers ---------------------------------------------------------------------------------------------------------


# -- consumers ---------------------------------------------------------------------------------------------------------


PLACE = api.MessageIdData(ledgerId=1, entryId=1)


ENDS = {
    "CONSUMER_STATS of nobody": encode_command(Command.CONSUMER_STATS, request_id=1, consumer_id=77),
    "FLOW of nothing": encode_command(Command.FLOW, consumer_id=0, messagePermits=0),
    "FLOW of less than nothing": encode_command(Command.FLOW, consumer_id=0, messagePermits=2**32 - 5),
    "SUBSCRIBE of no type": encode_command(
        Command.SUBSCRIBE, topic=TOPIC, subscription="x", subType=9, consumer_id=9, request_id=1
    ),
    "SUBSCRIBE with no mode of Key_Shared": encode_command(
        Command.SUBSCRIBE,
        topic=TOPIC,
        subscription="x",
        subType=3,
        consumer_id=9,
        request_id=1,
        keySharedMeta=api.KeySharedMeta(keySharedMode=2),
    ),
    "PRODUCER with a schema of no type": encode_command(
        Command.PRODUCER, topic=TOPIC, producer_id=9, request_id=1, schema=api.Schema(name="", schema_data=b"", type=22)
    ),
    "ACK of no type": encode_command(Command.ACK, consumer_id=77, ack_type=2, message_id=[PLACE]),
    "SEND by nobody": encode_command(Command.SEND, entry_of(0), producer_id=77, sequence_id=0),
    "SEND of nothing": encode_command(Command.SEND, b"", producer_id=0, sequence_id=0),
    "CONNECT again": encode_command(Command.CONNECT, client_version="again"),
    "a type that is none": bytes.fromhex("00000006000000020863"),
    "a frame that is none": b"\xff" * 20,
}


async def beside(stage: Stage) -> RawClient:
    client = await producing(stage)
    await client.subscribe(TOPIC)
    return client


IGNORED = {
    "FLOW of nobody": encode_command(Command.FLOW, consumer_id=77, messagePermits=5),
    "FLOW of nothing of nobody": encode_command(Command.FLOW, consumer_id=77, messagePermits=0),
    "ACK of nobody": encode_command(Command.ACK, consumer_id=77, ack_type=0, message_id=[PLACE]),
    "ACK of nobody, with a receipt wanted": encode_command(
        Command.ACK, consumer_id=77, ack_type=0, message_id=[PLACE], request_id=5
    ),
    "REDELIVER of nobody": encode_command(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=77),
}


ANSWERED: dict[str, tuple[Command, dict[str, Any], Command, ErrorCode | None, str]] = {
    "NEW_TXN": (Command.NEW_TXN, {}, Command.ERROR, ErrorCode.NOT_ALLOWED, "Transactions are not enabled."),
    "TC_CLIENT_CONNECT_REQUEST": (
        Command.TC_CLIENT_CONNECT_REQUEST,
        {"tc_id": 0},
        Command.ERROR,
        ErrorCode.NOT_ALLOWED,
        "Transactions are not enabled.",
    ),
    "SEEK of nobody": (
        Command.SEEK,
        {"consumer_id": 77, "message_publish_time": 5},
        Command.ERROR,
        ErrorCode.METADATA,
        "Consumer not found",
    ),
    "SEEK to nowhere": (
        Command.SEEK,
        {"consumer_id": 0},
        Command.ERROR,
        ErrorCode.METADATA,
        "Message id and message publish time were not present",
    ),
    "GET_LAST_MESSAGE_ID of nobody": (
        Command.GET_LAST_MESSAGE_ID,
        {"consumer_id": 77},
        Command.ERROR,
        ErrorCode.METADATA,
        "Consumer not found",
    ),
    "UNSUBSCRIBE of nobody": (
        Command.UNSUBSCRIBE,
        {"consumer_id": 77},
        Command.ERROR,
        ErrorCode.METADATA,
        "Consumer not found",
    ),
    "CLOSE_CONSUMER of nobody": (Command.CLOSE_CONSUMER, {"consumer_id": 77}, Command.SUCCESS, None, ""),
    "CLOSE_PRODUCER of nobody": (Command.CLOSE_PRODUCER, {"producer_id": 77}, Command.SUCCESS, None, ""),
}


def test_lookups_are_answered_before_the_broker_stops() -> None:
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


@pytest.mark.parametrize("raw", ENDS.values(), ids=list(ENDS))
def test_invalid_commands_close_the_connection(raw: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        client, other = await beside(stage), await stage.client()
        client.write(raw)
        await client.end()
        assert client.said == []
        assert (await other.produce(TOPIC)).producer_ready

    on_stage(scenario)


@pytest.mark.parametrize("raw", IGNORED.values(), ids=list(IGNORED))
def test_commands_of_unknown_consumers_are_ignored(raw: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        client = await beside(stage)
        client.write(raw)
        client.publish(0)
        assert (await client.next()).kind == Command.SEND_RECEIPT
        await asyncio.sleep(1)
        assert client.said == []
        assert not client.ended

    on_stage(scenario)


@pytest.mark.parametrize("case", ANSWERED.values(), ids=list(ANSWERED))
def test_requests_with_unknown_ids_are_answered(
    case: tuple[Command, dict[str, Any], Command, ErrorCode | None, str],
) -> None:
    kind, fields, wanted, error, text = case

    async def scenario(stage: Stage) -> None:
        client = await beside(stage)
        answer = await client.ask(kind, wanted, **fields)
        if error is not None:
            assert (answer.error, answer.message) == (error, text)
        assert client.said == []
        assert not client.ended

    on_stage(scenario)
