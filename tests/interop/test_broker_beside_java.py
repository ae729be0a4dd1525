"""Java's broker and ours in one cluster: what one owns the other leaves alone; topics change hands with cursors."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.broker_cluster import BrokerProcess, wait_for
from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, running

pytestmark = [pytest.mark.java, pytest.mark.slow]

pulsar: Any = pytest.importorskip("pulsar", reason="needs pulsar-client")
schema: Any = pytest.importorskip("pulsar.schema")

WAIT_S = 120
WAIT_MS = WAIT_S * 1000
QUIET_MS = 1000
NAMESPACE = "persistent://public/default"
ENTRIES_MAX = 20
KEYS = {
    "managedLedgerMaxEntriesPerLedger": ENTRIES_MAX,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeleteInactiveTopicsEnabled": "false",
}
Earliest, Shared = pulsar.InitialPosition.Earliest, pulsar.ConsumerType.Shared


class Row(schema.Record):  # type: ignore[misc]
    a = schema.String()


class Wrong(schema.Record):  # type: ignore[misc]
    a = schema.Integer(required=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(2)


@pytest.fixture(scope="module")
def java(cluster: JavaCluster) -> Iterator[JavaBroker]:
    broker = JavaBroker(cluster)
    broker.up(**KEYS)
    try:
        yield broker
    finally:
        broker.down(kill=True)


@pytest.fixture
def ours(cluster: JavaCluster, tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    """Starts a broker of ours, which is stopped whatever happens."""
    started: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        started.append(BrokerProcess(cluster.uri, tmp_path / "broker.log", {"clusterName": "lab", **KEYS}))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


def connect(url: str) -> Any:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(url, operation_timeout_seconds=WAIT_S, logger=logger)


def owner(web_url: str, topic: str, query: str = "") -> str:
    """Who serves a topic, by a broker's word; it is taken where nobody does."""
    path = topic.replace("://", "/")
    with urllib.request.urlopen(f"{web_url}/lookup/v2/topic/{path}{query}", timeout=WAIT_S) as answer:
        return str(json.load(answer)["nativeUrl"])


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, end)]


def take(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def data(messages: list[Any]) -> list[bytes]:
    return [message.data() for message in messages]


def subscribe(client: Any, topic: str, name: str) -> Any:
    return client.subscribe(topic, name, Shared, initial_position=Earliest, batch_index_ack_enabled=True)


def fill(client: Any, topic: str, first: int, end: int) -> None:
    """One message an entry; each ledger has ENTRIES_MAX."""
    producer = client.create_producer(topic)
    for text in numbers(first, end):
        producer.send(text)


def send_batch(client: Any, topic: str) -> None:
    """Ten messages in one entry."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    for text in numbers(0, 10):
        producer.send_async(text, lambda *_: None)
    producer.flush()


def nothing(consumer: Any) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)


def backlogs(cluster: JavaCluster, topic: str) -> dict[str, int]:
    return {row["subscription"]: row["backlog"] for row in cluster.bkctl_json("subscription", "list", topic)["items"]}


def acknowledge(consumer: Any, messages: list[Any], cluster: JavaCluster, topic: str, left: int) -> None:
    """Acknowledges messages and waits until that is stored."""
    for message in messages:
        consumer.acknowledge(message)
    name = consumer.subscription_name()
    wait_for(lambda: backlogs(cluster, topic)[name] == left, f"{name} has {left} left", WAIT_S)


def test_a_topic_changes_hands_with_ledgers_holes_batches_and_schemas(
    cluster: JavaCluster, java: JavaBroker, ours: Callable[[], BrokerProcess]
) -> None:
    topic, batches, rows = (f"{NAMESPACE}/{name}" for name in ("handed", "batches", "rows"))
    client = connect(java.url)
    fill(client, topic, 0, 50)
    consumer = subscribe(client, topic, "holes")
    acknowledge(consumer, [m for m in take(consumer, 50) if int(m.data()) % 3], cluster, topic, 17)
    parts = subscribe(client, batches, "parts")
    send_batch(client, batches)
    untouched = subscribe(client, batches, "untouched")
    for each in (parts, untouched):
        for message in take(each, 10)[::2]:
            each.acknowledge(message)
    client.create_producer(rows, schema=schema.JsonSchema(Row)).send(Row(a="java"))
    subscribe(client, rows, "s").close()
    client.close()
    java.down()

    broker = ours()
    client = connect(broker.url)
    consumer = subscribe(client, topic, "holes")
    assert sorted(data(take(consumer, 17)), key=int) == numbers(0, 50)[::3]
    nothing(consumer)
    parts = subscribe(client, batches, "parts")
    found = take(parts, 5)
    assert data(found) == numbers(0, 10)[1::2], "what Java acknowledged of a batch stays so, though Java forgets it"
    nothing(parts)
    parts.acknowledge(found[1])
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert data([reader.read_next(WAIT_MS) for _ in range(50)]) == numbers(0, 50)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(rows, schema=schema.JsonSchema(Wrong))
    client.create_producer(rows, schema=schema.JsonSchema(Row)).send(Row(a="ours"))
    fill(client, topic, 50, 95)
    messages = take(consumer, 45)
    acknowledge(consumer, [m for m in messages if int(m.data()) % 2], cluster, topic, 17 + 23)
    client.close()
    broker.stop()
    kinds = [row["kind"] for row in cluster.bkctl_json("topic", "ledgers", topic)["items"]]
    assert kinds.count("data") >= 5
    assert kinds.count("cursor") == 0, "a clean end keeps the cursor in its node"
    kinds = [row["kind"] for row in cluster.bkctl_json("topic", "ledgers", batches)["items"]]
    assert kinds.count("cursor") == 2, "but parts of batches where Java reads them"

    java.up(**KEYS)
    client = connect(java.url)
    parts, untouched = subscribe(client, batches, "parts"), subscribe(client, batches, "untouched")
    assert data(take(parts, 4)) == [b"1", b"5", b"7", b"9"], "what both acknowledged of a batch stays acknowledged"
    assert data(take(untouched, 5)) == numbers(0, 10)[1::2]
    nothing(parts)
    nothing(untouched)
    consumer = subscribe(client, topic, "holes")
    left = {*numbers(0, 50)[::3], *numbers(50, 95)[::2]}
    assert sorted(data(take(consumer, len(left))), key=int) == sorted(left, key=int)
    nothing(consumer)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert data([reader.read_next(WAIT_MS) for _ in range(95)]) == numbers(0, 95)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(rows, schema=schema.JsonSchema(Wrong))
    reader = client.create_reader(rows, pulsar.MessageId.earliest, schema=schema.JsonSchema(Row))
    assert [reader.read_next(WAIT_MS).value().a for _ in range(2)] == ["java", "ours"]
    client.close()


def test_what_java_owns_is_left_to_it_and_the_reverse(
    cluster: JavaCluster, java: JavaBroker, ours: Callable[[], BrokerProcess]
) -> None:
    theirs, own = f"{NAMESPACE}/theirs", "persistent://public/ours/own"
    client = connect(java.url)
    fill(client, theirs, 0, 3)
    client.close()
    cluster.bkctl_json("namespace", "create", "public/ours", "--bundles", 1, "--yes")
    broker = ours()
    try:
        assert owner(broker.web_url, theirs) == java.url, "ours leads to Java's broker"
        client = connect(broker.url)
        fill(client, theirs, 3, 6)
        reader = client.create_reader(theirs, pulsar.MessageId.earliest)
        assert data([reader.read_next(WAIT_MS) for _ in range(6)]) == numbers(0, 6)
        (place,) = cluster.bkctl_json("topic", "where", theirs)["items"]
        assert (place["owner"], place["loaded"]) == (java.url, True)
        client.close()
        assert owner(broker.web_url, own, "?authoritative=true") == broker.url
        assert owner(java.web_url, own) == broker.url, "Java's leads to ours"
        client = connect(java.url)
        fill(client, own, 0, 5)
        assert cluster.bkctl_json("topic", "where", own)["items"][0]["owner"] == broker.url
        assert {row["broker"] for row in cluster.bkctl_json("broker", "list")["items"]} == {
            f"127.0.0.1:{java.web_port}",
            f"127.0.0.1:{broker.web_port}",
        }
        client.close()
        stats = cluster.bkctl_json("topic", "stats", theirs)["items"][0]  # asked of Java's broker
        assert stats["served_by"] == f"127.0.0.1:{java.web_port}"
        moved = cluster.bkctl_json("subscription", "create", theirs, "late", "--at", "earliest", "--yes")["items"]
        assert moved[0]["by"] == f"127.0.0.1:{java.web_port}"
        assert backlogs(cluster, theirs) == {"late": 6}
        assert cluster.bkctl_json("topic", "unload", theirs, "--yes")["items"][0]["unloaded"]
    finally:
        broker.stop()
    client = connect(java.url)
    reader = client.create_reader(own, pulsar.MessageId.earliest)
    assert data([reader.read_next(WAIT_MS) for _ in range(5)]) == numbers(0, 5)
    client.close()
