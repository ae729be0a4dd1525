"""The official client follows its topic to another cluster: TOPIC_MIGRATED as it reads it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.meta.connect import open_store
from bkctl.meta.documents import update_document
from tests.e2e.local import Local
from tests.interop.broker_cluster import wait_for

pulsar: Any = pytest.importorskip("pulsar", reason="no pulsar-client from PyPI")

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

WAIT_S = 120
WAIT_MS = WAIT_S * 1000
TOPIC = "persistent://public/default/moving"


class Cluster:
    """A local cluster with one broker."""

    def __init__(self, home: Path) -> None:
        self.local = Local(home)
        services = self.local.json("dev", "up", "--bookies", 1, "--brokers", 1, "--dir", home / "cluster")
        ports = {service["kind"]: service["port"] for service in services}
        self.url = f"pulsar://127.0.0.1:{ports['broker']}"
        self.metadata_uri = f"zk+hierarchical://127.0.0.1:{ports['zookeeper']}/ledgers"

    async def moves_to(self, url: str) -> None:
        """As `pulsar-admin clusters update-cluster-migration` says it."""
        store = await open_store(self.metadata_uri, timeout_s=WAIT_S)
        value = {"migrated": True, "migratedClusterUrl": {"brokerServiceUrl": url}}
        try:
            await update_document(store, "/admin/clusters/local", lambda old: old | value)
        finally:
            await store.close()


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    made: list[Cluster] = []
    try:
        for name in ("blue", "green"):
            (tmp_path / name).mkdir()
            made.append(Cluster(tmp_path / name))
        yield made[0], made[1]
    finally:
        for cluster in made:
            cluster.local.run("dev", "down", "--yes")


def test_producer_and_consumer_go_on_in_the_new_cluster(clusters: tuple[Cluster, Cluster]) -> None:
    blue, green = clusters
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(blue.url, operation_timeout_seconds=WAIT_S, logger=logger)
    producer = client.create_producer(TOPIC, send_timeout_millis=0)
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)

    def roundtrip(number: int) -> None:
        producer.send(b"%d" % number)
        message = consumer.receive(WAIT_MS)
        consumer.acknowledge(message)
        assert message.data() == b"%d" % number

    roundtrip(1)
    asyncio.run(blue.moves_to(green.url))
    wait_for(lambda: TOPIC in _topics(green), "the clients are in the new cluster", WAIT_S)
    roundtrip(2)
    assert blue.local.json("topic", "show", TOPIC)["entries"] == 1
    assert green.local.json("topic", "show", TOPIC)["entries"] == 1
    client.close()


def _topics(cluster: Cluster) -> list[str]:
    return [row["topic"] for row in cluster.local.json("topic", "list", "public/default")]
