"""Refuses the commands of transactions with the errors of a Java broker that has them disabled.

Commands that a coordinator sends to the owner of a topic get their own response, as the coordinator retries until then.
Source: ServerCnx.java (handleEndTxn and its neighbours), TransactionBufferDisable.java, PendingAckHandleDisabled.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.errors import NotFound, UsageError
from bkctl.model.topic import TopicName
from bkdaemon.broker.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from bkdaemon.broker.protocol.connection import Connection
    from bkdaemon.broker.protocol.requests import Handler
    from bkdaemon.broker.topic.topics import AnyTopic

ACTIONS: Final = (0, 1)
"""Commit and abort; any other closes the connection, as in Java."""


def refused(connection: Connection, message: Any) -> None:
    """Refuses a request to a transaction coordinator."""
    connection.error_for(message.request_id)(ErrorCode.NOT_ALLOWED, "Transactions are not enabled.")


def end(connection: Connection, message: Any) -> None:
    """Refuses END_TXN."""
    if message.txn_action not in ACTIONS or not message.HasField("txn_action"):
        connection.end("END_TXN without an action")
        return
    refused(connection, message)


def end_on_partition(connection: Connection, message: Any) -> None:
    """Handles END_TXN_ON_PARTITION: refused if the topic exists; a missing topic has no transaction to end."""

    def refuse(topic: AnyTopic) -> None:
        if not topic.persistent:
            raise Refusal(ErrorCode.UNKNOWN, "Unsupported operation endTxn in non-persistent topic.")
        raise Refusal(ErrorCode.NOT_ALLOWED, "Transaction buffer disable!")

    _end_on(connection, message, message.topic, refuse)


def end_on_subscription(connection: Connection, message: Any) -> None:
    """Handles END_TXN_ON_SUBSCRIPTION: refused if the subscription exists."""
    what = "Handle end txn on subscription failed: "

    def refuse(topic: AnyTopic) -> None:
        if message.subscription.subscription not in topic.subscriptions:
            return
        if not topic.persistent:
            raise Refusal(ErrorCode.UNKNOWN, f"{what}Unsupported operation end txn for NonPersistentSubscription")
        raise Refusal(ErrorCode.NOT_ALLOWED, f"{what}The transaction is disabled")

    _end_on(connection, message, message.subscription.topic, refuse)


def _end_on(connection: Connection, message: Any, text: str, refuse: Callable[[AnyTopic], None]) -> None:
    on_partition = message.DESCRIPTOR.name == "CommandEndTxnOnPartition"
    answer = Command.END_TXN_ON_PARTITION_RESPONSE if on_partition else Command.END_TXN_ON_SUBSCRIPTION_RESPONSE
    try:
        name = TopicName.parse(text)
    except UsageError as error:
        connection.end(f"{answer.name}: {error.message}")
        return
    if message.txn_action not in ACTIONS or not message.HasField("txn_action"):
        connection.end(f"{answer.name}: unknown action {message.txn_action}")
        return
    topics = connection.server.topics

    def reply(error: ErrorCode | None = None, why: str | None = None) -> None:
        connection.send_command(
            answer,
            request_id=message.request_id,
            txnid_least_bits=message.txnid_least_bits,
            txnid_most_bits=message.txnid_most_bits,
            error=error,
            message=why,
        )

    async def work() -> None:
        try:
            if name.persistent or name in topics.open:
                refuse(await topics.get(name, create=False))
        except NotFound:
            pass
        reply()

    connection.later(work(), reply)


HANDLERS: Final[dict[int, Handler]] = {
    Command.NEW_TXN: refused,
    Command.ADD_PARTITION_TO_TXN: refused,
    Command.ADD_SUBSCRIPTION_TO_TXN: refused,
    Command.END_TXN: end,
    Command.END_TXN_ON_PARTITION: end_on_partition,
    Command.END_TXN_ON_SUBSCRIPTION: end_on_subscription,
    Command.TC_CLIENT_CONNECT_REQUEST: refused,
}
