"""What Java's broker refuses to do with a partitioned topic as a whole, or with one that stores nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT

ELSE = "please try do it on specific topic partition"
POSITION = {"ledgerId": 1, "entryId": 0}
OF_ONE_PARTITION: list[tuple[str, str, Any, str]] = [
    ("POST", "subscription/s/skip/1", None, "Skip messages on a partitioned topic is not allowed"),
    ("POST", "subscription/s/resetcursor", POSITION, "Reset-cursor at position is not allowed for partitioned-topic"),
    (
        "POST",
        "subscription/s/expireMessages",
        POSITION,
        "Expire message at position is not supported for partitioned-topic",
    ),
    (
        "POST",
        "subscription/s/analyzeBacklog",
        None,
        f"Analyze backlog on a partitioned topic is not allowed, {ELSE}",
    ),
    ("GET", "subscription/s/position/1", None, "Peek messages on a partitioned topic is not allowed"),
    ("GET", "ledger/1/entry/0", None, "GetMessageById is not allowed on partitioned-topic"),
    (
        "GET",
        "examinemessage",
        None,
        "Examine messages on a partitioned topic is not allowed, "
        "please try examine message on specific topic partition",
    ),
    ("GET", "messageid/1", None, f"Get message ID by timestamp on a partitioned topic is not allowed, {ELSE}"),
    ("PUT", "backlogSize", POSITION, "calculate backlog size is not allowed for partitioned-topic"),
]
"""Method, what follows the topic, a body, and the words."""
OF_STORED: list[tuple[str, str, str]] = [
    ("POST", "terminate", "Termination of a non-persistent topic is not allowed"),
    ("POST", "trim", "Trim on a non-persistent topic is not allowed"),
    ("GET", "lastMessageId", "GetLastMessageId on a non-persistent topic is not allowed"),
    ("GET", "subscription/s/position/1", "Peek messages on a non-persistent topic is not allowed"),
    ("GET", "examinemessage", "Examine messages on a non-persistent topic is not allowed"),
    ("GET", "messageid/1", "Get message ID by timestamp on a non-persistent topic is not allowed"),
    ("POST", "subscription/s/expireMessages/1", "Expire messages on a non-persistent topic is not allowed"),
]


@pytest.mark.parametrize(("method", "tail", "body", "words"), OF_ONE_PARTITION)
def test_a_partitioned_topic_is_refused_what_a_partition_is_not(method: str, tail: str, body: Any, words: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"/admin/v2/persistent/{DEFAULT}/p/partitions", 2)
        answer = await admin.ask(method, f"/admin/v2/persistent/{DEFAULT}/p/{tail}", body)
        assert (answer.status, answer.body) == (405, {"reason": words})
        one = await admin.ask(method, f"/admin/v2/persistent/{DEFAULT}/p-partition-0/{tail}", body)
        assert one.status != 405
        refused = await admin.ask("GET", f"/admin/v2/persistent/{DEFAULT}/p-partition-0/retention")
        told = {"reason": "Not allowed to set/get topic policy for a partition"}
        assert (refused.status, refused.body) == (412, told)

    administering(scenario)


@pytest.mark.parametrize(("method", "tail", "words"), OF_STORED)
def test_a_topic_without_storage_is_refused_requests_of_stored_messages(method: str, tail: str, words: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"/admin/v2/non-persistent/{DEFAULT}/n")
        answer = await admin.ask(method, f"/admin/v2/non-persistent/{DEFAULT}/n/{tail}")
        assert (answer.status, answer.body) == (405, {"reason": words})

    administering(scenario)
