"""Topics in the REST interface: lists, statistics of topics that Java's broker wrote, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.recorded import NS, shape
from tests.unit.daemon.broker.rest.test_guards import N


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
