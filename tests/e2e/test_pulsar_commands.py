"""Topics, subscriptions, cursors, namespaces and tenants by command: with a broker that owns them, and with none."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.local import Local, end
from tests.interop.auto_recovery import wait_for

pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

WAIT_S = 90
WAIT_MS = 60_000
RULED = "persistent://public/default/ruled"
TOPIC, PATH = "persistent://shop/orders/a", "shop/orders/persistent/a"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    home = tmp_path_factory.mktemp("commands")
    found = Local(home)
    found.json("dev", "up", "--bookies", 2, "--brokers", 1, "--dir", home / "cluster")
    try:
        yield found
    finally:
        found.run("dev", "down", "--yes")


def connect(local: Local) -> Any:
    (broker,) = local.json("broker", "list")
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(broker["service_url"], logger=logger)


def one(rows: Any) -> Any:
    (row,) = rows
    return row


def take(consumer: Any, count: int) -> list[int]:
    """So many messages, acknowledged with a receipt from the broker's queue."""
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found


def test_tenants_namespaces_and_policies(local: Local) -> None:
    made = local.json("tenant", "create", "shop", "--role", "boss", "--yes")
    assert made == {"tenant": "shop", "admin_roles": ["boss"], "allowed_clusters": ["local"], "created": True}
    assert local.error("tenant", "create", "shop", "--yes", code=5)["kind"] == "already_exists"
    assert local.error("tenant", "create", "other", "--cluster", "none", "--yes", code=4)
    assert local.json("namespace", "create", "shop/orders", "--bundles", 1, "--yes")["replication_clusters"] == [
        "local"
    ]
    assert local.error("namespace", "create", "none/orders", "--yes", code=4)
    assert local.error("namespace", "create", "orders", "--yes", code=2)
    assert local.error("namespace", "create", "shop/other", code=3)["kind"] == "refused"
    value = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    local.run("namespace", "policy", "set", "shop/orders", "retention", json.dumps(value), "--yes")
    shown = {row["policy"]: row["value"] for row in local.json("namespace", "policy", "get", "shop/orders")}
    assert (shown["retention"], shown["ttl"]) == (value, None)
    local.run("namespace", "policy", "set", "shop/orders", "ttl", 3600, "--yes")
    assert local.json("namespace", "policy", "unset", "shop/orders", "ttl", "--yes")["before"] == 3600
    assert local.json("namespace", "show", "shop/orders")["policies"]["retention_policies"] == value
    assert local.error("tenant", "delete", "shop", "--yes", code=3)["message"].count("shop/orders")
    assert local.json("tenant", "show", "shop")["namespaces"] == ["shop/orders"]


def test_a_topic_that_a_broker_owns(local: Local) -> None:
    assert one(local.json("topic", "create", TOPIC, "--yes"))["created"]
    assert local.error("topic", "create", TOPIC, "--yes", code=5)
    assert one(local.json("subscription", "create", TOPIC, "s", "--at", "earliest", "--yes"))["by"] == "metadata"
    assert one(local.json("topic", "stats", TOPIC))["served_by"] is None
    several = local.json("topic", "show", TOPIC, "shop/orders/none", code=1)
    assert [item["subscriptions"] for item in several] == [1]
    client = connect(local)
    producer = client.create_producer(TOPIC)
    ids = [producer.send(b"%d" % i) for i in range(20)]
    consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
    assert take(consumer, 5) == list(range(5))
    consumer.close()
    listed = one(local.json("topic", "list", "shop/orders"))
    assert (listed["entries"], listed["closed_entries"]) == (20, 0), "the open ledger is counted"
    broker = one(local.json("broker", "list"))["broker"]
    wait_for(lambda: one(local.json("topic", "stats", TOPIC))["backlog"] == 15, WAIT_S, "acknowledgements")
    stats = one(local.json("topic", "stats", TOPIC))
    assert (stats["served_by"], stats["producers"], stats["consumers"]) == (broker, 1, 0)
    assert stats["subscriptions"]["s"]["msg_backlog"] == 15
    where = one(local.json("topic", "where", TOPIC))
    assert (where["loaded"], where["open_ledger"]) == (True, ids[0].ledger_id())
    assert len(where["bookies"]) == 2
    assert local.error("cursor", "set", TOPIC, "s", "--mark-delete", f"{ids[0].ledger_id()}:9", "--yes", code=3)
    assert one(local.json("subscription", "skip", TOPIC, "s", 5, "--yes"))["by"] == broker
    assert one(local.json("topic", "stats", TOPIC))["backlog"] == 10
    assert one(local.json("subscription", "clear", TOPIC, "s", "--yes"))["backlog"] == 0
    moved = one(local.json("subscription", "reset", TOPIC, "s", "--to", "earliest", "--yes"))
    assert (moved["backlog_before"], moved["backlog"], moved["by"]) == (0, 20, broker)
    consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
    assert take(consumer, 10) == list(range(10))
    client.close()
    row, history = one(local.json("cursor", "list", TOPIC)), local.json("cursor", "history", TOPIC, "s")
    assert row["kind"] == "subscription"
    assert {f"ledger {state['ledger_id']}" for state in history} == {row["stored_in"]}
    assert [state["entry_id"] for state in history] == list(range(len(history)))
    rows = local.json("topic", "ledgers", TOPIC)
    assert {row["kind"]: (row["component"], row["owner"]) for row in rows} == {
        "data": ("managed-ledger", {"managed-ledger": PATH}),
        "cursor": ("managed-ledger", {"managed-ledger": PATH, "cursor": "s"}),
    }
    sizes = ("--ensemble-size", 1, "--write-quorum-size", 1, "--ack-quorum-size", 1)
    stray = local.json("ledger", "create", *sizes, "--custom-metadata", f"pulsar/managed-ledger={PATH}", "--yes")
    added = [row for row in local.json("topic", "ledgers", TOPIC, "--scan") if row["kind"] == "unnamed"]
    assert [row["ledger_id"] for row in added] == [stray["ledger_id"]]
    assert TOPIC in local.error("ledger", "delete", stray["ledger_id"], "--yes", code=3)["message"]
    local.run("ledger", "delete", stray["ledger_id"], "--owned", "--yes")
    assert one(local.json("topic", "trim", TOPIC, "--yes")) == {"topic": TOPIC, "ledgers": [], "size": 0, "by": broker}
    assert one(local.json("topic", "unload", TOPIC, "--yes"))["unloaded"]
    assert not one(local.json("topic", "where", TOPIC))["loaded"]
    assert not one(local.json("topic", "unload", TOPIC, "--yes"))["unloaded"]
    assert one(local.json("topic", "stats", TOPIC))["served_by"] is None


def test_a_cursor_set_by_hand_and_taken_back(local: Local) -> None:
    ledger = local.json("topic", "ledgers", TOPIC)[0]["ledger_id"]
    before = local.json("cursor", "show", TOPIC, "s")
    made = local.json("cursor", "set", TOPIC, "s", "--mark-delete", f"{ledger}:14", "--yes")
    assert (made["backlog"], made["mark_delete"]) == (5, f"{ledger}:14")
    assert local.error("cursor", "set", TOPIC, "s", "--mark-delete", f"{ledger}:99", "--yes", code=2)
    assert local.error("cursor", "set", TOPIC, "none", "--mark-delete", f"{ledger}:9", "--yes", code=4)
    back = local.json("cursor", "set", TOPIC, "s", "--restore", made["backup"], "--yes")
    assert back["backlog"] == made["backlog_before"]
    after = local.json("cursor", "show", TOPIC, "s")
    assert (after["mark_delete"], after["ranges"]) == (before["mark_delete"], before["ranges"])
    local.run("cursor", "set", TOPIC, "s", "--restore", back["backup"], "--yes")
    client = connect(local)
    assert take(client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared), 5) == list(range(15, 20))
    client.close()
    other = Path(made["backup"]).with_suffix(".other")
    other.write_text("{}")
    local.run("topic", "unload", TOPIC, "--yes")
    assert local.error("cursor", "set", TOPIC, "s", "--restore", other, "--yes", code=8)


def payload(line: bytes) -> bytes:
    return base64.b64decode(json.loads(line)["payload"])


def test_a_topic_is_followed_past_its_broker_to_its_end(local: Local) -> None:
    topic = "shop/orders/ends"
    local.run("topic", "create", topic, "--yes")
    client = connect(local)
    producer = client.create_producer(f"persistent://{topic}")
    for i in range(3):
        producer.send(b"%d" % i)
    tails = [local.start("topic", "tail", topic, "--lines", 1, "-o", "jsonl") for _ in range(2)]
    for tail in tails:
        assert tail.stdout is not None
        assert payload(tail.stdout.readline()) == b"2", "the last one so far"
    code, rest, words = end(tails.pop())
    assert (code, rest, b"Traceback" in words) == (130, b"", False)
    producer.send(b"3")
    (tail,) = tails
    assert tail.stdout is not None
    assert payload(tail.stdout.readline()) == b"3"
    client.close()
    assert one(local.json("topic", "terminate", topic, "--yes"))["by"]
    _, words = tail.communicate(timeout=WAIT_S)
    assert (tail.returncode, b"is terminated" in words) == (0, True)
    assert local.json("topic", "why-unloadable", topic) == []
    local.run("topic", "delete", topic, "--yes")


def test_a_namespace_is_given_up(local: Local) -> None:
    broker = one(local.json("broker", "list"))["broker"]
    mine = [row for row in local.json("broker", "namespaces", broker) if row["namespace"] == "shop/orders"]
    assert [row["broker"] for row in mine] == [broker]
    unloaded = one(local.json("namespace", "unload", "shop/orders", "--yes"))
    assert (unloaded["bundle"], unloaded["unloaded"], unloaded["by"]) == (mine[0]["bundle"], True, broker)


def test_brokers(local: Local) -> None:
    broker = one(local.json("broker", "list"))["broker"]
    assert local.json("broker", "leader")["broker"] == broker
    health = one(local.json("broker", "health"))
    assert (health["broker"], health["healthy"]) == (broker, True)
    assert one(local.json("broker", "config", "--key", "clusterName"))["value"] == "local"
    assert local.json("broker", "config", "--diff") == []
    assert local.error("broker", "health", "10.0.0.1:1", code=4)


def test_without_any_broker(local: Local) -> None:
    local.run("dev", "stop", "broker")
    wait_for(lambda: local.json("broker", "list") == [], WAIT_S, "the broker's leases")
    assert one(local.json("topic", "where", TOPIC))["owner"] is None
    assert local.error("broker", "leader", code=4)
    assert local.error("topic", "terminate", TOPIC, "--yes", code=6)["kind"] == "unavailable"
    skipped = one(local.json("subscription", "reset", TOPIC, "s", "--to", "earliest", "--yes"))
    assert (skipped["backlog"], skipped["by"]) == (20, "metadata")
    assert one(local.json("subscription", "skip", TOPIC, "s", 3, "--yes"))["backlog"] == 17
    assert (
        one(local.json("subscription", "reset", TOPIC, "s", "--to", "2020-01-01T00:00:00Z", "--yes"))["backlog"] == 20
    )
    assert one(local.json("subscription", "clear", TOPIC, "s", "--yes"))["backlog"] == 0
    local.run("subscription", "create", TOPIC, "late", "--yes")
    assert one(local.json("subscription", "delete", TOPIC, "late", "--yes"))["deleted"]
    used = one(local.json("topic", "du", TOPIC))
    assert (used["entries"], used["stored"], used["backlog_size"]) == (20, 2 * used["size"], 0)
    assert one(local.json("topic", "trim", TOPIC, "--yes"))["ledgers"] == []  # kept for ever
    assert one(local.json("topic", "truncate", TOPIC, "--yes"))["entries"] == 20
    assert one(local.json("topic", "list", "shop/orders"))["entries"] == 0
    local.run("topic", "create", "shop/orders/parts", "--partitions", 2, "--yes")
    assert len(local.json("topic", "where", "shop/orders/parts")) == 2
    local.run("topic", "delete", "shop/orders/parts", TOPIC, "--yes")
    assert local.json("topic", "list", "shop/orders") == []
    assert local.json("ledger", "list") == []
    assert local.json("namespace", "delete", "shop/orders", "--yes")["by"] == "metadata"
    assert local.json("tenant", "delete", "shop", "--yes")["deleted"]


def test_policies_of_a_topic(local: Local) -> None:
    if not local.json("broker", "list"):  # another test has stopped it
        local.run("dev", "start", "broker")
    local.run("topic", "create", RULED, "--yes")

    def value(policy: str) -> Any:
        return one(local.json("topic", "policy", "get", RULED, policy))["value"]

    made = local.json("topic", "policy", "set", RULED, "ttl", 60, "--yes")
    assert (made["before"], made["value"], made["topic"]) == (None, 60, RULED)
    quota = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    local.run("topic", "policy", "set", RULED, "backlog-quota", json.dumps({"destination_storage": quota}), "--yes")
    assert value("ttl") == 60
    assert value("backlog-quota")["destination_storage"]["limitSize"] == 1000
    assert local.json("topic", "policy", "unset", RULED, "ttl", "--yes")["before"] == 60
    local.run("topic", "policy", "unset", RULED, "backlog-quota", "--yes")
    assert (value("ttl"), value("backlog-quota") or None) == (None, None)
    assert local.error("topic", "policy", "set", RULED, "topics-max", 1, "--yes", code=2)
    assert local.error("topic", "policy", "get", "none", code=4)
