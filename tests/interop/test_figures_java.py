"""The figures of a topic after the same work, told by Java's broker and by ours."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.broker_cluster import BrokerProcess, wait_for
from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, running

pytestmark = [pytest.mark.java, pytest.mark.slow]

pulsar: Any = pytest.importorskip("pulsar", reason="needs pulsar-client")

WAIT_S = 120
WAIT_MS = WAIT_S * 1000
INTERVAL_S = 3
KEYS = {
    "statsUpdateFrequencyInSecs": INTERVAL_S,
    "statsUpdateInitialDelayInSecs": INTERVAL_S,
    "brokerDeleteInactiveTopicsEnabled": "false",
}
Exclusive, Shared = pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared
TIMES = (
    "lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp", "lastMarkDeleteAdvancedTimestamp",
    "earliestMsgPublishTimeInBacklog",
)  # fmt: skip
SUBSCRIPTION = (
    "type", "msgBacklog", "msgOutCounter", "unackedMessages", "nonContiguousDeletedMessagesRanges",
    "nonContiguousDeletedMessagesRangesSerializedSize", "msgDelayed", "msgInReplay", "allowOutOfOrderDelivery",
)  # fmt: skip
CONSUMER = ("avgMessagesPerEntry", "msgOutCounter", "unackedMessages", "availablePermits")
TOPIC = ("msgInCounter", "msgOutCounter", "systemTopicBytesInCounter", "bytesOutInternalCounter", "msgChunkPublished")
CURSOR = (
    "waitingReadOp", "pendingReadOps", "messagesConsumedCounter", "active", "numberOfEntriesSinceFirstNotAckedMessage",
    "totalNonContiguousDeletedMessagesRange", "subscriptionHavePendingRead", "subscriptionHavePendingReplayRead",
    "state",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(2)


def asked(web_url: str, name: str, what: str) -> dict[str, Any]:
    url = f"{web_url}/admin/v2/persistent/public/default/{name}/{what}"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def picked(told: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: told[key] for key in keys}


def worked(url: str, web_url: str, name: str) -> dict[str, Any]:
    """Does the work on a topic and tells its figures, times as whether there is one."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(url, operation_timeout_seconds=WAIT_S, logger=logger)
    topic = f"persistent://public/default/{name}"
    try:
        kinds = {"exclusive": Exclusive, "shared": Shared, "caught-up": Exclusive, "nobody": Exclusive}
        consumers = {
            one: client.subscribe(topic, one, kind, receiver_queue_size=100, consumer_name=one)
            for one, kind in kinds.items()
        }
        consumers.pop("nobody").close()
        producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
        for batch in range(4):
            for i in range(5):
                producer.send_async(b"%d" % (5 * batch + i), lambda *_: None)
            producer.flush()
        for one, consumer in consumers.items():
            messages = [consumer.receive(WAIT_MS) for _ in range(20)]
            for message in messages if one == "caught-up" else messages[:5] + messages[10:15]:
                consumer.acknowledge(message)
        wait_for(lambda: acked(web_url, name), "rates of acknowledgements", WAIT_S)
        stats = asked(web_url, name, "stats?getEarliestTimeInBacklog=true")
        wait_for(lambda: asked(web_url, name, "internalStats")["waitingCursorsCount"] == 3, "waiting cursors", WAIT_S)
        internal = asked(web_url, name, "internalStats")
        lean = asked(web_url, name, "stats?subscriptionBacklogSize=false&excludePublishers=true&excludeConsumers=true")
        subscriptions = lean["subscriptions"].values()
        return {
            "topic": picked(stats, TOPIC) | {"earliest": stats["earliestMsgPublishTimeInBacklogs"] > 0},
            "lean": [lean["publishers"], *((one["backlogSize"], one["consumers"]) for one in subscriptions)],
            "log": picked(internal, ("entriesAddedCounter", "pendingAddEntriesCount", "waitingCursorsCount")),
            "cursors": {one: picked(told, CURSOR) for one, told in sorted(internal["cursors"].items())},
            **{
                one: picked(told, SUBSCRIPTION)
                | {key: (told[key] > 0) - (told[key] < 0) for key in TIMES}
                | {"consumers": [picked(each, CONSUMER) for each in told["consumers"]]}
                for one, told in stats["subscriptions"].items()
            },
        }
    finally:
        client.close()


def acked(web_url: str, name: str) -> bool:
    told = asked(web_url, name, "stats")["subscriptions"]
    return all(told[one]["messageAckRate"] > 0 for one in ("exclusive", "shared", "caught-up"))


def test_figures_after_the_same_work(cluster: JavaCluster, tmp_path: Path) -> None:
    java = JavaBroker(cluster)
    java.up(**KEYS)
    try:
        theirs = worked(java.url, java.web_url, "theirs")
    finally:
        java.down()
    broker = BrokerProcess(cluster.uri, tmp_path / "broker.log", {"clusterName": "lab", **KEYS})
    try:
        ours = worked(broker.url, broker.web_url, "ours")
    finally:
        broker.stop()
    for what, told in theirs.items():
        assert (what, ours[what]) == (what, told)
