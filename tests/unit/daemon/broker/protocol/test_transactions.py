"""Requests about transactions, which this broker refuses, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import TOPIC


def test_requests_to_a_transaction_coordinator_are_refused() -> None:
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
def test_the_end_of_a_transaction_is_refused_by_existing_topics_and_subscriptions(topic: str) -> None:
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
