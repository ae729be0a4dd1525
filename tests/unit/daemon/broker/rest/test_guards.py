"""What Java's broker refuses to do with a partitioned topic as a whole, or with one that stores nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkctl.model.topic import EARLIEST
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.test_upkeep import publish

N = "public/default"
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
def test_a_partitioned_topic_is_asked_partition_by_partition(method: str, tail: str, body: Any, words: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"/admin/v2/persistent/{N}/p/partitions", 2)
        answer = await admin.ask(method, f"/admin/v2/persistent/{N}/p/{tail}", body)
        assert (answer.status, answer.body) == (405, {"reason": words})
        one = await admin.ask(method, f"/admin/v2/persistent/{N}/p-partition-0/{tail}", body)
        assert one.status != 405
        refused = await admin.ask("GET", f"/admin/v2/persistent/{N}/p-partition-0/retention")
        told = {"reason": "Not allowed to set/get topic policy for a partition"}
        assert (refused.status, refused.body) == (412, told)

    administering(scenario)


@pytest.mark.parametrize(("method", "tail", "words"), OF_STORED)
def test_what_is_not_stored_cannot_be_asked_for(method: str, tail: str, words: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"/admin/v2/non-persistent/{N}/n")
        answer = await admin.ask(method, f"/admin/v2/non-persistent/{N}/n/{tail}")
        assert (answer.status, answer.body) == (405, {"reason": words})

    administering(scenario)


def test_roles_of_tenants_and_racks_of_bookies_are_looked_at() -> None:
    async def scenario(admin: Admin) -> None:
        tenant = {"adminRoles": ["a", " b"], "allowedClusters": ["lab"]}
        for method, name in (("PUT", "new"), ("POST", "public")):
            answer = await admin.ask(method, f"/admin/v2/tenants/{name}", tenant)
            told = {"reason": "AdminRoles contains whitespace in the beginning or end."}
            assert (answer.status, answer.body) == (412, told)
        await admin.ok("PUT", "/admin/v2/tenants/new", tenant | {"adminRoles": ["a", "b"]})
        rack = "/admin/v2/bookies/racks-info/b:3181?group=g"
        answer = await admin.ask("POST", rack, {"rack": "/east/r1"})
        assert (answer.status, answer.body["reason"][:35]) == (412, "Bookie 'rack' parameter is invalid,")
        await admin.ok("POST", rack, {"rack": "/east/"})

    administering(scenario)


def test_what_has_no_backlog_has_nothing_to_expire() -> None:
    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{N}/t"
        topic = await admin.topic(f"{N}/t")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        for expire in ("subscription/s/expireMessages/1", "all_subscription/expireMessages/1"):
            answer = await admin.ask("POST", f"{path}/{expire}")
            assert (answer.status, answer.body["reason"][:38]) == (409, "Expire message by timestamp not issued")
        await publish(topic, 3)
        await asyncio.sleep(5)
        await admin.ok("POST", f"{path}/subscription/s/expireMessages/60")
        assert subscription.cursor.backlog() == 3
        await admin.ok("POST", f"{path}/subscription/s/expireMessages/1")
        assert subscription.cursor.backlog() == 0

    administering(scenario)


def test_what_is_asked_from_a_message_on() -> None:
    """As a Java broker answered: the bytes behind a message, a backlog from a message on."""

    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{N}/t"
        topic = await admin.topic(f"{N}/t")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        await publish(topic, 10)
        (ledger_id,), size = topic.ledger.ledgers.ids, topic.ledger.ledgers.size_total
        for entry_id, left in ((0, 9), (9, 0)):
            body = {"ledgerId": ledger_id, "entryId": entry_id}
            assert await admin.ok("PUT", f"{path}/backlogSize", body) == left * size // 10
        assert await admin.ok("PUT", f"{path}/backlogSize", {"ledgerId": -1, "entryId": -1}) == size
        subscription.cursor.ack_cumulative(topic.ledger.ledgers.at(1))
        for entry_id, first in ((5, 5), (0, 2)):
            body = {"ledgerId": ledger_id, "entryId": entry_id}
            told = await admin.ok("POST", f"{path}/subscription/s/analyzeBacklog", body)
            assert (told["entries"], told["firstMessageId"]) == (10 - first, f"{ledger_id}:{first}")

    administering(scenario)


def test_what_is_listed_and_what_is_not_there() -> None:
    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{N}"
        for name in ("a", "__mine", "__change_events"):
            await admin.topic(f"persistent://{N}/{name}")
        mine = [f"persistent://{N}/{name}" for name in ("__mine", "a")]
        assert sorted(await admin.ok("GET", path)) == mine, "those of the system only are left out"
        bundles = await admin.service.backend.ownership.bundles(N)
        for bundle in bundles.all():
            within = [name for name in mine if bundles.of(name) == bundle]
            assert sorted(await admin.ok("GET", f"{path}?bundle={bundle.range}")) == within
        for method, target, words in (
            ("POST", f"{path}/a/createMissedPartitions", f"Topic persistent://{N}/a does not exist"),
            ("GET", "/admin/v2/brokers/lab/b/ownedNamespaces", "Broker id 'b' not found in available brokers."),
        ):
            answer = await admin.ask(method, target)
            assert (answer.status, answer.body) == (404, {"reason": words})

    administering(scenario)


def test_a_cursor_goes_behind_a_message_or_stays_where_it_is() -> None:
    """`pulsar-admin reset-cursor -e` says `excluded`; a message that is none yet expires nothing."""

    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{N}/t/subscription/s"
        topic = await admin.topic(f"{N}/t")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        await publish(topic, 10)
        (ledger_id,) = topic.ledger.ledgers.ids
        at = {"ledgerId": ledger_id, "entryId": 4}
        for excluded, left in ((True, 5), (False, 6)):
            await admin.ok("POST", f"{path}/resetcursor", at | {"excluded": excluded})
            assert subscription.cursor.backlog() == left
        for behind in (at | {"entryId": 10}, {"ledgerId": ledger_id + 1000, "entryId": 0}):
            answer = await admin.ask("POST", f"{path}/expireMessages", behind)
            assert (answer.status, answer.body["reason"][:37]) == (409, "Expire message by position not issued")
            assert subscription.cursor.backlog() == 6
        await admin.ok("POST", f"{path}/expireMessages", at | {"entryId": 9})
        assert subscription.cursor.backlog() == 0

    administering(scenario)
