"""Pulsar's own proxy in front of two of our brokers, which it finds in ZooKeeper; and a partition's other broker."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.local.cluster import free_ports

from tests.interop.broker_cluster import BrokerProcess, bookies, wait_for
from tests.interop.java_broker import FETCH_TIMEOUT_S, LIBRARY, PULSARREF
from tests.interop.java_cluster import require_java

pytestmark = [pytest.mark.java, pytest.mark.zookeeper, pytest.mark.slow]

PROXY_POM = PULSARREF.parent / "proxy-pom.xml"
PROXY_JARS = LIBRARY / "pulsar-proxy-4.0.8"
PROXY_CLASS = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
NS = "public/default"
RECEIVE_MS = 20_000


def ask(method: str, web_url: str, path: str, body: object = None) -> tuple[int, Any]:
    """One request to an admin interface: status and JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{web_url}{path}", method=method, data=data)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    return status, json.loads(text) if text else None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[BrokerProcess]]]:
    """The metadata URI, and two brokers."""
    require_java()
    home = tmp_path_factory.mktemp("brokers")
    with bookies(home) as uri, contextlib.ExitStack() as stack:
        brokers = []
        for name in ("first", "second"):
            brokers.append(BrokerProcess(uri, home / f"{name}.log"))
            stack.callback(brokers[-1].kill)
        yield uri, brokers


def class_path() -> str:
    """The proxy's jars, fetched once a machine, before those of a broker."""
    LIBRARY.mkdir(parents=True, exist_ok=True)
    with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetch = [sys.executable, str(PULSARREF), "--home", str(LIBRARY), "fetch"]
        subprocess.run(fetch, check=True, timeout=FETCH_TIMEOUT_S, stdin=subprocess.DEVNULL)
        if not list(PROXY_JARS.glob("pulsar-proxy-*.jar")):
            copy = ["mvn", "-q", "-B", "-f", str(PROXY_POM), "dependency:copy-dependencies"]
            subprocess.run([*copy, f"-DoutputDirectory={PROXY_JARS}"], check=True, timeout=FETCH_TIMEOUT_S)
    return f"{PROXY_JARS}/*:{LIBRARY}/pulsar-4.0.7/*"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def proxy(cluster: tuple[str, list[BrokerProcess]], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A proxy that is told of ZooKeeper only: where clients and where pulsar-admin connect."""
    uri, _ = cluster
    zookeeper = f"zk:{re.sub(r'^[^/]*//|/.*', '', uri)}"
    port, web_port = free_ports(2)
    settings = {
        "metadataStoreUrl": zookeeper, "configurationMetadataStoreUrl": zookeeper, "clusterName": "test",
        "servicePort": port, "webServicePort": web_port, "bindAddress": "127.0.0.1", "proxyLogLevel": 2,
        "advertisedAddress": "127.0.0.1", "brokerProxyAllowedTargetPorts": "*", "numAcceptorThreads": 1,
    }  # fmt: skip
    conf, log = tmp_path / "proxy.conf", tmp_path / "proxy.log"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dio.netty.tryReflectionSetAccessible=true"]
    java += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED"]
    with log.open("wb") as out:
        process = subprocess.Popen([*java, "-cp", class_path(), PROXY_CLASS, "-c", str(conf)], stdout=out, stderr=out)
    try:
        wait_for(lambda: process.poll() is not None or (listens(port) and listens(web_port)), "the proxy listens")
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        yield f"pulsar://127.0.0.1:{port}", f"http://127.0.0.1:{web_port}"
    finally:
        process.kill()
        process.wait(60)


def test_clients_and_admin_work_through_pulsars_proxy(proxy: tuple[str, str]) -> None:
    pulsar = pytest.importorskip("pulsar")
    url, web_url = proxy
    assert ask("PUT", web_url, f"/admin/v2/persistent/{NS}/parts/partitions", 3)[0] == 204
    client = pulsar.Client(url, operation_timeout_seconds=30)
    try:
        pattern = client.subscribe(re.compile(f"persistent://{NS}/par.*"), "pattern")
        shared = client.subscribe(f"persistent://{NS}/parts", "s", pulsar.ConsumerType.Shared)
        way = pulsar.PartitionsRoutingMode.RoundRobinDistribution
        producer = client.create_producer(
            f"persistent://{NS}/parts", message_routing_mode=way, batching_enabled=False, chunking_enabled=True
        )
        long = b"x" * 6_000_000  # longer than a frame
        sent = [*(b"%d" % i for i in range(9)), long]
        for content in sent:
            producer.send(content)
        for consumer in (pattern, shared):
            got = [consumer.receive(RECEIVE_MS) for _ in sent]
            assert sorted(message.data() for message in got) == sorted(sent)
            assert len({message.topic_name() for message in got}) == 3
            for message in got:
                consumer.acknowledge(message)
        reader = client.create_reader(f"persistent://{NS}/parts-partition-0", pulsar.MessageId.earliest)
        assert reader.has_message_available()
        _, told = ask("GET", web_url, f"/admin/v2/persistent/{NS}/parts/partitioned-stats")
        assert (told["metadata"]["partitions"], told["msgInCounter"]) == (3, 11)
        assert set(told["subscriptions"]) >= {"pattern", "s"}
    finally:
        client.close()


def test_a_subscription_is_made_on_partitions_of_another_broker(cluster: tuple[str, list[BrokerProcess]]) -> None:
    """Whoever is asked: it said that all of them were there already."""
    _, brokers = cluster
    assert ask("PUT", brokers[0].web_url, f"/admin/v2/persistent/{NS}/one/partitions", 1)[0] == 204
    found = ask("GET", brokers[0].web_url, f"/lookup/v2/topic/persistent/{NS}/one-partition-0")[1]["brokerUrl"]
    other = next(broker.web_url for broker in brokers if broker.url != found)
    path, earliest = f"/admin/v2/persistent/{NS}/one/subscription/s", {"ledgerId": -1, "entryId": -1}
    assert ask("PUT", other, path, earliest) == (204, None)
    assert ask("PUT", other, path, earliest)[0] == 409
