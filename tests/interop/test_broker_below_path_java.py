"""Pulsar's metadata below a path of ZooKeeper: a topic of Java's broker is served by ours, and commands find it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.broker_cluster import BrokerProcess
from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, running

pytestmark = [pytest.mark.java, pytest.mark.slow]

pulsar: Any = pytest.importorskip("pulsar", reason="needs pulsar-client")

WAIT_S = 120
WAIT_MS = WAIT_S * 1000
TOPIC = "persistent://public/default/moved"
KEYS = {
    "brokerDeleteInactiveTopicsEnabled": "false",
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(0)


def store_of(cluster: JavaCluster, path: str) -> str:
    return f"zk:127.0.0.1:{cluster.zookeeper_port}{path}"


def make_metadata(java: JavaBroker, store: str) -> None:
    """What Java makes of an empty path, BookKeeper's ledgers too."""
    words = ["--cluster", "lab", "--metadata-store", store, "--configuration-metadata-store", store]
    words += ["--web-service-url", java.web_url, "--broker-service-url", java.url]
    java._run("java", "org.apache.pulsar.PulsarClusterMetadataSetup", *words, timeout=WAIT_S)
    (java.cluster.home / "conf" / "pulsar-lab.initialised").write_text("")


def talk(url: str, first: int, sent: int, got: int) -> None:
    """Sends numbers from `first` on; then takes so many of the subscription, which begins with 0."""
    client = pulsar.Client(
        url, operation_timeout_seconds=WAIT_S, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    )
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(TOPIC)
    for number in range(first, first + sent):
        producer.send(b"%d" % number)
    for number in range(first + sent - got, first + sent):
        message = consumer.receive(WAIT_MS)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    client.close()


def listed(cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch, path: str | None) -> list[str]:
    """The topics as bkctl finds them, without the system's own."""
    if path is not None:
        monkeypatch.setenv("BKCTL_PULSAR_PATH", path)
    rows = cluster.bkctl_json("topic", "list", "public/default")["items"]
    return [row["topic"] for row in rows if "/__" not in row["topic"]]


def test_our_broker_takes_over_from_javas(
    cluster: JavaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, store = JavaBroker(cluster), store_of(cluster, "/pulsar")
    make_metadata(java, store)
    cluster.uri = f"zk+hierarchical://127.0.0.1:{cluster.zookeeper_port}/pulsar/ledgers"
    cluster.start_ours(0)
    java.up(metadataStoreUrl=store, configurationMetadataStoreUrl=store, bookkeeperMetadataServiceUri="", **KEYS)
    try:
        talk(java.url, 0, 5, 0)
    finally:
        java.down()
    keys = {"clusterName": "lab", "metadataStoreUrl": store, "configurationMetadataStoreUrl": store, **KEYS}
    ours = BrokerProcess("", tmp_path / "broker.log", keys)
    try:
        talk(ours.url, 5, 5, 10)
        assert [row["broker"] for row in cluster.bkctl_json("broker", "list")["items"]] == [ours.web_url[7:]]
    finally:
        ours.stop()
    assert listed(cluster, monkeypatch, None) == [TOPIC]

    # ours alone, on a path where nothing is, with the ledgers of the cluster before
    keys["metadataStoreUrl"] = keys["configurationMetadataStoreUrl"] = store_of(cluster, "/own")
    ours = BrokerProcess(cluster.uri, tmp_path / "own.log", keys)
    try:
        talk(ours.url, 0, 3, 3)
    finally:
        ours.stop()
    assert listed(cluster, monkeypatch, "/own") == [TOPIC]
    assert listed(cluster, monkeypatch, "/pulsar") == [TOPIC]
    nodes = {row["path"].strip("/") for row in cluster.bkctl_json("meta", "ls", "/")["items"]}
    assert nodes - {"ledgers"} == {"own", "pulsar", "zookeeper"}  # the cluster's own are made before
