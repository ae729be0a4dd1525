"""Topics in the REST interface: lists, statistics of topics that Java's broker wrote, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT, PERSISTENT, TOPIC
from tests.unit.daemon.broker.rest.recorded import NS, shape

NON_PERSISTENT = "/admin/v2/non-persistent/public/default"
INT = "a whole number from -2147483648 to 2147483647"


def pick(value: Any, *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names}


@pytest.mark.parametrize(("name", "topic"), [("stats-roll", "roll"), ("stats", "excl"), ("stats-batchidx", "batchidx")])
def test_statistics_of_topics_of_java_equal_those_of_java(name: str, topic: str) -> None:
    java = golden.rest(name)["response"]["body"]

    async def scenario(admin: Admin) -> None:
        ours = await admin.ok("GET", f"{NS}/{topic}/stats")
        for told in (java, ours):
            for one in told["subscriptions"].values():
                one["consumers"] = []
        assert shape(java) == shape(ours)
        sure = ("storageSize", "backlogSize", "deduplicationStatus", "nonContiguousDeletedMessagesRanges")
        sure += ("oldestBacklogMessageSubscriptionName",)
        assert pick(ours, *sure) == pick(java, *sure)
        sure = ("msgBacklog", "backlogSize", "isDurable", "nonContiguousDeletedMessagesRanges", "durable")
        assert set(ours["subscriptions"]) == set(java["subscriptions"])
        for subscription, told in java["subscriptions"].items():
            assert pick(ours["subscriptions"][subscription], *sure) == pick(told, *sure), subscription

    administering(scenario, java=True)


@pytest.mark.parametrize(
    ("name", "topic"),
    [("internal-stats-roll", "roll"), ("internal-stats", "excl"), ("internal-stats-batchidx", "batchidx")],
)
def test_internal_statistics_of_topics_of_java_equal_those_of_java(name: str, topic: str) -> None:
    java = golden.rest(name)["response"]["body"]

    async def scenario(admin: Admin) -> None:
        ours = await admin.ok("GET", f"{NS}/{topic}/internalStats")
        assert shape(ours) == shape(java)
        sure = ("numberOfEntries", "totalSize", "state", "lastConfirmedEntry")
        assert pick(ours, *sure) == pick(java, *sure)
        closed = [ledger for ledger in java["ledgers"] if ledger["entries"]]
        assert [ledger for ledger in ours["ledgers"] if ledger in closed] == closed
        sure = (
            "markDeletePosition",
            "individuallyDeletedMessages",
            "totalNonContiguousDeletedMessagesRange",
            "properties",
        )
        for cursor, told in java["cursors"].items():
            assert pick(ours["cursors"][cursor], *sure) == pick(told, *sure), cursor

    administering(scenario, java=True)


def test_statistics_of_a_partitioned_topic_of_java_equal_those_of_java() -> None:
    recorded = golden.rest("partitioned-stats")

    async def scenario(admin: Admin) -> None:
        ours, java = await admin.ok("GET", recorded["request"]["path"]), recorded["response"]["body"]
        for told in (ours, java):
            told["partitions"] = {
                name: {**one, "subscriptions": {}, "publishers": []} for name, one in told["partitions"].items()
            }
            for one in told["subscriptions"].values():
                one["consumers"] = []
            for one in told["partitions"].values():
                one.pop("oldestBacklogMessageSubscriptionName", None)
            told.pop("oldestBacklogMessageSubscriptionName", None)
        assert shape(ours) == shape(java)
        assert pick(ours, "storageSize", "metadata") == pick(java, "storageSize", "metadata")
        backlogs = [{name: s["msgBacklog"] for name, s in told["subscriptions"].items()} for told in (ours, java)]
        assert backlogs[0] == backlogs[1]

    administering(scenario, java=True)


def test_topics_are_listed_without_system_topics_and_unknown_ones_are_404() -> None:
    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{DEFAULT}"
        for name in ("a", "__mine", "__change_events"):
            await admin.topic(f"persistent://{DEFAULT}/{name}")
        mine = [f"persistent://{DEFAULT}/{name}" for name in ("__mine", "a")]
        assert sorted(await admin.ok("GET", path)) == mine, "those of the system only are left out"
        bundles = await admin.service.backend.ownership.bundles(DEFAULT)
        for bundle in bundles.all():
            within = [name for name in mine if bundles.of(name) == bundle]
            assert sorted(await admin.ok("GET", f"{path}?bundle={bundle.range}")) == within
        for method, target, words in (
            ("POST", f"{path}/a/createMissedPartitions", f"Topic persistent://{DEFAULT}/a does not exist"),
            ("GET", "/admin/v2/brokers/lab/b/ownedNamespaces", "Broker id 'b' not found in available brokers."),
        ):
            answer = await admin.ask(method, target)
            assert (answer.status, answer.body) == (404, {"reason": words})

    administering(scenario)


def test_a_name_of_a_partition_is_a_plain_topic_without_a_partitioned_topic() -> None:
    async def scenario(admin: Admin) -> None:
        path, asked = f"{PERSISTENT}/q-partition-1/partitions", "?checkAllowAutoCreation=true"
        assert (await admin.ask("GET", path)).status == 404
        assert (await admin.ok("GET", path + asked))["partitions"] == 0
        await admin.topic("persistent://public/default/q-partition-1")
        assert (await admin.ok("GET", path))["partitions"] == 0
        await admin.ok("PUT", f"{PERSISTENT}/g/partitions", 2)
        assert (await admin.ok("GET", f"{PERSISTENT}/g-partition-1/partitions{asked}"))["partitions"] == 0
        assert (await admin.ask("GET", f"{PERSISTENT}/g-partition-2/partitions{asked}")).status == 404

    administering(scenario)


def test_a_topic_without_storage_has_subscriptions_and_empty_internal_statistics() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"{NON_PERSISTENT}/t", {})
        assert await admin.ok("GET", f"{NON_PERSISTENT}/t/subscriptions") == []
        told = await admin.ok("GET", f"{NON_PERSISTENT}/t/internalStats")
        assert (told["entriesAddedCounter"], told["numberOfEntries"], told["cursors"]) == (0, 0, {})
        assert (await admin.ask("GET", f"{NON_PERSISTENT}/none/internalStats")).status == 404

    administering(scenario)


def test_invalid_creations_are_refused_with_the_reason_of_java() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        clusters = {"allowedClusters": ["lab"]}
        for method, path, body, status, why in (
            ("PUT", "/admin/v2/tenants/bad%20name", clusters, 412, "Tenant name is not valid"),
            ("PUT", "/admin/v2/namespaces/public/bad%20name", {}, 412, "Namespace name is not valid"),
            ("PUT", "/admin/v2/namespaces/nosuch/n", {}, 404, "Tenant does not exist"),
            ("PUT", f"{PERSISTENT}/z/partitions", 0, 406, "Number of partitions should be more than 0"),
            ("PUT", f"{PERSISTENT}/z/partitions", -1, 406, "Number of partitions should be more than 0"),
            ("PUT", f"{PERSISTENT}/z/partitions", "x", 400, f"partitions must be {INT}, not 'x'"),
            ("POST", f"{PERSISTENT}/t/partitions", 3, 409, f"Topic {TOPIC} is not the partitioned topic."),
            ("POST", f"{PERSISTENT}/n/partitions", 3, 409, f"Topic {TOPIC[:-1]}n is not the partitioned topic."),
            ("DELETE", f"{PERSISTENT}/n/partitions", None, 404, f"Topic {TOPIC[:-1]}n not found."),
        ):
            answer = await admin.ask(method, path, body)
            assert (answer.status, answer.body) == (status, {"reason": why}), path
        answer = await admin.ask("DELETE", f"{PERSISTENT}/t/partitions")
        assert (answer.status, "please call delete" in answer.body["reason"]) == (409, True)
        answer = await admin.ask("PUT", f"{PERSISTENT}/a-partition-0", {})
        assert (answer.status, "isn't a partitioned topic a created" in answer.body["reason"]) == (412, True)

    administering(scenario)


def test_the_last_message_id_of_an_empty_topic_has_entry_minus_one() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        told = await admin.ok("GET", f"{PERSISTENT}/t/lastMessageId")
        assert (told["ledgerId"], told["entryId"]) == (topic.ledger.ledgers.ids[-1], -1)

    administering(scenario)
