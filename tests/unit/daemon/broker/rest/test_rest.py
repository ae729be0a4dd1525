"""Recorded requests to a Java broker's REST interface, sent to ours: status, fields, types, and certain values.

They are answered from the very nodes and ledgers that Java left (`golden/pulsar`).
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests import pulsar_golden as golden
from tests.broker.admin import Admin, Answer, administering
from tests.unit.log.logs import until

CALLS = Path(__file__).resolve().parents[4] / "data/pulsar_rest/calls.json"
NS = "/admin/v2/persistent/golden/ns1"


def shape(value: Any) -> Any:
    """Fields and types of JSON; of a list, those of its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def pick(value: Any, *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names}


def certain(answer: dict[str, Any], ours: Answer) -> None:
    assert ours.status == answer["status"], ours.body


@pytest.mark.parametrize(("name", "topic"), [("stats-roll", "roll"), ("stats", "excl"), ("stats-batchidx", "batchidx")])
def test_statistics_of_javas_topics(name: str, topic: str) -> None:
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
def test_ledgers_and_cursors_of_javas_topics(name: str, topic: str) -> None:
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


def test_what_is_stored_is_told_as_java_tells_it() -> None:
    """Requests that change nothing; answers that must be equal, but for dates and versions of nodes."""

    async def scenario(admin: Admin) -> None:
        for name in (
            *("tenant", "tenant-absent", "retention", "ttl", "namespace-bundles", "namespace-absent", "schema"),
            *("schema-absent", "partitioned-metadata", "topics-list-partitioned", "lookup-bundle", "clusters"),
            *("bookies-racks", "brokers-version", "stats-absent", "brokers-health", "brokers-ready"),
        ):
            recorded = golden.rest(name)
            ours = await admin.ask("GET", recorded["request"]["path"])
            java = recorded["response"]
            certain(java, ours)
            wanted = java["body"]
            if isinstance(wanted, dict) and "base64" in wanted:
                text = base64.b64decode(wanted["base64"]).decode()
                assert ours.data.decode().startswith(text) or "4.0.7" in ours.data.decode(), name
            else:
                assert ours.body == wanted, name
        for name in ("tenants-list", "namespaces-list", "subscriptions"):
            recorded = golden.rest(name)
            assert sorted(await admin.ok("GET", recorded["request"]["path"])) == sorted(recorded["response"]["body"])
        for name in ("cluster", "lookup", "brokers-leader", "brokers-list", "bookies-all", "broker-stats-load-report"):
            recorded = golden.rest(name)
            path = recorded["request"]["path"]
            ours = await admin.ask("GET", path)
            if name == "brokers-leader":
                await until(lambda: admin.service.backend.ownership.leading)
                ours = await admin.ask("GET", path)
            certain(recorded["response"], ours)
            wanted, got = recorded["response"]["body"], ours.body
            for told in (wanted, got) if name == "broker-stats-load-report" else ():
                for key in ("lastStats", "bundles"):
                    told[key] = type(told[key])()
            assert shape(got) == shape(wanted), name
        policies = golden.rest("namespace-policies")["response"]["body"]
        ours = await admin.ok("GET", "/admin/v2/namespaces/golden/ns1")
        assert {key: value for key, value in policies.items() if key != "clusterThatCanDeleteNamespace"} == ours

    administering(scenario, java=True)


def test_messages_of_javas_topics() -> None:
    recorded = golden.rest("message-at-position-1")

    async def scenario(admin: Admin) -> None:
        ours = await admin.ask("GET", recorded["request"]["path"])
        certain(recorded["response"], ours)
        for key, text in recorded["response"]["headers"].items():
            if key.startswith("X-"):
                assert ours.headers[key.lower()] == text, key
        for codec in ("lz4", "snappy", "zlib", "zstd"):  # a payload that is no such block answers 500
            await admin.ok("PUT", f"{NS}/comp-{codec}/subscription/look", {"ledgerId": -1, "entryId": -1})
            answer = await admin.ask("GET", f"{NS}/comp-{codec}/subscription/look/position/1")
            assert answer.status == 200, codec
        topics = await admin.ok("GET", "/admin/v2/persistent/golden/ns1")
        assert topics == golden.rest("topics-list")["response"]["body"]

    administering(scenario, java=True)


def test_a_partitioned_topic_of_javas() -> None:
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


def test_every_call_that_pulsar_admin_makes() -> None:
    """The whole recording of pulsar-admin 4.0.8, command by command, with Java's topics below."""
    calls = golden.rest("pulsar-admin-calls")

    async def scenario(admin: Admin) -> None:
        await until(lambda: admin.service.backend.ownership.leading)
        for call in calls:
            body = json.loads(call["request_body"]) if call["request_body"] else None
            ours = await admin.ask(call["method"], call["path"], body)
            what = f"{call['command']}: {call['method']} {call['path']}"
            assert ours.status == call["status"], f"{what}: {ours.body}"
            try:
                wanted = json.loads(call["body"]) if call["body"] else None
            except ValueError:
                continue  # a text, or too long to be kept
            if isinstance(wanted, list):
                if "127.0.0.1" not in str(wanted):
                    assert set(wanted) - {"non-persistent://golden/ns1/np"} <= set(ours.body), what
            elif call["status"] >= 400 or "stats" not in call["path"].lower():
                if "127.0.0.1" in str(wanted) or "lastMessageId" in call["path"]:
                    assert shape(ours.body) == shape(wanted), what
                else:
                    assert ours.body == wanted, what
            for name, text in call["headers"].items():
                if name.startswith("X-"):
                    assert ours.headers.get(name.lower()) == text, f"{what}: {name}"

    administering(scenario, java=True)
    assert len(calls) > 40
