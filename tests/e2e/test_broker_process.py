"""`bkctl broker start` as processes: the REST interface in Java's shapes, two brokers, one that dies."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import pulsar_golden as golden
from tests.broker.process_log import dispatchers_woken
from tests.e2e.local import Local, end
from tests.interop.auto_recovery import wait_for

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")

WAIT_S = 90
CLIENT_MS = 60_000


class Brokers:
    """Brokers on a local cluster; each has its web address as its name."""

    def __init__(self, home: Path) -> None:
        self.local = Local(home)
        services = self.local.json("dev", "up", "--bookies", 2, "--dir", home / "cluster")
        self.zookeeper = next(s["port"] for s in services if s["kind"] == "zookeeper")
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._home = home

    def start(self) -> str:
        conf = self._home / f"broker{len(self.running)}.conf"
        conf.write_text(
            f"clusterName=lab\nmetadataStoreUrl=zk:127.0.0.1:{self.zookeeper}\nadvertisedAddress=127.0.0.1\n"
            "bindAddress=127.0.0.1\nbrokerServicePort=0\nwebServicePort=0\nmetadataStoreSessionTimeoutMillis=5000\n"
            "managedLedgerMinLedgerRolloverTimeMinutes=0\nmanagedLedgerMaxEntriesPerLedger=50\n"
        )
        log = conf.with_suffix(".log").open("wb")
        process = subprocess.Popen(
            self.local.command("broker", "start", "-c", conf),
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(self.local.environ),
        )
        assert process.stdout is not None
        word, _, web = process.stdout.readline().decode().strip().partition(" ")
        assert word == "ready", conf.with_suffix(".log").read_text()
        self.running[web] = process
        return web

    def down(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()
        self.local.run("dev", "down", "--yes")
        assert [line for log in self._home.glob("broker*.log") for line in dispatchers_woken(log)] == []


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    cluster = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.down()


def ask(web: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """(status, JSON or text) of a request; redirects are followed as curl -L does."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{web}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as e:
        if e.code == 307:
            where = e.headers["Location"].partition("://")[2]
            return ask(where.partition("/")[0], method, "/" + where.partition("/")[2], body)
        status, text = e.code, e.read()
    try:
        return status, json.loads(text) if text else None
    except ValueError:
        return status, text.decode()


def keys(value: Any, path: str = "") -> set[str]:
    """The names of all fields, with their places; lists count by their first element."""
    if isinstance(value, list):
        return keys(value[0], path + "[]") if value else set()
    if not isinstance(value, dict):
        return set()
    return {f"{path}.{key}" for key in value}.union(*(keys(inner, f"{path}.{key}") for key, inner in value.items()))


RECORDED: dict[str, Any] = next(
    call["response"]["body"]
    for call in json.loads((Path(__file__).parents[1] / "data/pulsar_rest/calls.json").read_text())
    if call["request"]["path"].endswith("/a/stats")
)
"""Statistics of a topic of Java's with a producer and a consumer."""


def consumers_of(web: str, path: str, subscription: str) -> list[Any]:
    return list(ask(web, "GET", path)[1]["subscriptions"][subscription]["consumers"])


def java(name: str) -> Any:
    return golden.rest(name)["response"]


def test_answers_have_javas_status_and_fields(brokers: Brokers) -> None:
    (web,) = brokers.running
    admin = "/admin/v2"
    assert ask(web, "GET", f"{admin}/clusters") == (200, ["lab"])
    assert ask(web, "PUT", f"{admin}/tenants/golden", {"adminRoles": ["admin"], "allowedClusters": ["lab"]})[0] == 204
    assert ask(web, "GET", f"{admin}/tenants/golden") == (200, java("tenant")["body"])
    assert ask(web, "PUT", f"{admin}/tenants/golden")[0] == 409
    assert ask(web, "PUT", f"{admin}/namespaces/golden/ns1") == (204, None)
    status, policies = ask(web, "GET", f"{admin}/namespaces/golden/ns1")
    wanted = java("namespace-policies")["body"]
    assert status == 200
    assert keys(wanted) - keys(policies) <= {
        *(".message_ttl_in_seconds", ".retention_policies", ".retention_policies.retentionTimeInMinutes"),
        ".retention_policies.retentionSizeInMB",
    }
    for name in ("tenant-absent", "namespace-absent", "stats-absent", "schema-absent"):
        request, answer = golden.rest(name)["request"], java(name)
        status, body = ask(web, request["method"], request["path"])
        assert status == answer["status"], name
        assert set(body) == set(answer["body"]), name
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}
    assert ask(web, "POST", f"{admin}/namespaces/golden/ns1/retention", retention)[0] == 204
    assert ask(web, "GET", f"{admin}/namespaces/golden/ns1/retention") == (200, java("retention")["body"])
    assert ask(web, "POST", f"{admin}/namespaces/golden/ns1/messageTTL", 7200)[0] == 204
    assert ask(web, "GET", f"{admin}/namespaces/golden/ns1/messageTTL") == (200, java("ttl")["body"])
    assert ask(web, "GET", f"{admin}/brokers/health") == (200, "ok")
    assert ask(web, "GET", f"{admin}/brokers/lab") == (200, [web])
    wait_for(lambda: ask(web, "GET", f"{admin}/brokers/leaderBroker")[0] == 200, WAIT_S, "a leader")
    assert keys(ask(web, "GET", f"{admin}/brokers/leaderBroker")[1]) == keys(java("brokers-leader")["body"])
    status, found = ask(web, "GET", "/lookup/v2/topic/persistent/golden/ns1/plain")
    assert keys(java("lookup")["body"]) <= keys(found)
    assert ask(web, "GET", "/lookup/v2/topic/persistent/golden/ns1/plain/bundle") == (200, "0x80000000_0xc0000000")
    assert "# TYPE pulsar_broker_topics_count gauge\n" in ask(web, "GET", "/metrics")[1]


def test_the_life_of_a_topic(brokers: Brokers) -> None:
    (web,) = brokers.running
    topics = "/admin/v2/persistent/public/default"
    assert ask(web, "PUT", f"{topics}/sp%C3%A9cial%20name") == (204, None)
    assert ask(web, "PUT", f"{topics}/sp%C3%A9cial%20name") == (409, java("create-topic-again")["body"])
    assert "persistent://public/default/spécial name" in ask(web, "GET", topics)[1]
    assert ask(web, "PUT", f"{topics}/roll") == (204, None)
    assert ask(web, "PUT", f"{topics}/roll/subscription/behind", {"ledgerId": -1, "entryId": -1})[0] == 204
    assert ask(web, "GET", f"{topics}/roll/subscriptions") == (200, ["behind"])
    url = ask(web, "GET", "/lookup/v2/topic/persistent/public/default/roll")[1]["brokerUrl"]
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("roll", batching_enabled=False)
    for i in range(120):
        producer.send(b"m%d" % i)
    status, stats = ask(web, "GET", f"{topics}/roll/stats")
    assert status == 200
    assert stats["subscriptions"]["behind"]["msgBacklog"] == 120
    assert stats.pop("oldestBacklogMessageSubscriptionName") == "behind"  # Java's recorded topic has one ledger yet
    (publisher,), (theirs,) = stats.pop("publishers"), RECORDED.pop("publishers")
    assert set(publisher) == set(theirs)
    assert keys(stats) - keys(RECORDED) == {key for key in keys(stats) if ".behind" in key}
    consumer = client.subscribe("roll", "behind")
    wait_for(lambda: len(consumers_of(web, f"{topics}/roll/stats", "behind")) == 1, WAIT_S, "a consumer")
    (told,) = consumers_of(web, f"{topics}/roll/stats", "behind")
    assert set(told) == set(RECORDED["subscriptions"]["s"]["consumers"][0])
    consumer.close()
    status, internal = ask(web, "GET", f"{topics}/roll/internalStats")
    assert (internal["numberOfEntries"], len(internal["ledgers"]), internal["state"]) == (120, 3, "LedgerOpened")
    golden_internal = java("internal-stats-roll")["body"]
    assert keys(internal["ledgers"]) == keys(golden_internal["ledgers"])
    assert set(internal["cursors"]["behind"]) == set(golden_internal["cursors"]["behind"])
    info = ask(web, "GET", f"{topics}/roll/internal-info")[1]
    assert set(info) == set(java("internal-info")["body"])
    assert ask(web, "DELETE", f"{topics}/roll")[0] == 412
    status, payload = ask(web, "GET", f"{topics}/roll/subscription/behind/position/3")
    assert (status, payload) == (200, "m2")
    assert ask(web, "POST", f"{topics}/roll/subscription/behind/skip/20")[0] == 204
    assert ask(web, "PUT", f"{topics}/roll/unload") == (204, None)
    after = ask(web, "GET", f"{topics}/roll/stats")[1]["subscriptions"]["behind"]
    assert after["msgBacklog"] == 100
    assert ask(web, "POST", f"{topics}/roll/subscription/behind/skip_all")[0] == 204
    assert ask(web, "GET", f"{topics}/roll/stats")[1]["subscriptions"]["behind"]["msgBacklog"] == 0
    client.close()
    status, last = ask(web, "POST", f"{topics}/roll/terminate")
    assert (status, set(last)) == (200, set(java("terminate")["body"]))
    assert ask(web, "DELETE", f"{topics}/roll?force=true") == (204, None)
    assert ask(web, "GET", f"{topics}/roll/stats")[0] == 404
    assert ask(web, "PUT", f"{topics}/parts/partitions", 3) == (204, None)
    assert ask(web, "GET", f"{topics}/parts/partitions")[1]["partitions"] == 3
    assert ask(web, "POST", f"{topics}/parts/partitions", 4)[0] == 204
    assert ask(web, "DELETE", f"{topics}/parts/partitions")[0] == 204


def test_a_broker_dies_and_another_takes_over(brokers: Brokers) -> None:
    (first,) = brokers.running
    second = brokers.start()
    kept = {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}
    assert ask(first, "PUT", "/admin/v2/namespaces/public/kept", kept) == (204, None)
    topic, path = "persistent://public/kept/survives", "/lookup/v2/topic/persistent/public/kept/survives"
    owner = ask(first, "GET", path)[1]["httpUrl"].partition("://")[2]
    other = second if owner == first else first
    native = [ask(web, "GET", path)[1]["brokerUrl"] for web in (first, second)]
    assert native[0] == native[1]  # each tells the same
    load = ask(other, "GET", "/admin/v2/broker-stats/load-report")[1]["pulsarServiceUrl"]
    client = pulsar.Client(load, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic, send_timeout_millis=0)
    for i in range(60):
        producer.send(b"%d" % i)
    for i in range(30):
        message = consumer.receive(CLIENT_MS)
        assert message.data() == b"%d" % i
        consumer.acknowledge(message)
    brokers.running[owner].kill()
    brokers.running.pop(owner).communicate()
    for i in range(60, 100):
        producer.send(b"%d" % i)
    seen = set()
    while len(seen) < 70:
        message = consumer.receive(CLIENT_MS)
        consumer.acknowledge(message)
        if int(message.data()) >= 30:
            seen.add(int(message.data()))
    assert seen == set(range(30, 100))
    client.close()
    rows = brokers.local.json("topic", "show", topic)
    assert rows["entries"] == 100
    (row,) = brokers.local.json("broker", "list")
    assert row["broker"] == other
    code, _, _ = end(brokers.running.pop(other), signal.SIGTERM)
    assert code == 0
    assert brokers.local.json("broker", "list") == []
    assert brokers.local.json("subscription", "list", topic)[0]["backlog"] == 0


def test_a_broker_that_is_stopped_hands_its_bundles_over(brokers: Brokers) -> None:
    while len(brokers.running) < 2:
        brokers.start()
    webs = list(brokers.running)
    path = "/lookup/v2/topic/persistent/public/default/handed"
    found = ask(webs[0], "GET", path)[1]
    owner = found["httpUrl"].partition("://")[2]
    other = next(web for web in webs if web != owner)
    urls = [ask(web, "GET", "/admin/v2/broker-stats/load-report")[1]["pulsarServiceUrl"] for web in webs]
    hosts = ",".join(url.removeprefix("pulsar://") for url in urls)
    client = pulsar.Client(f"pulsar://{hosts}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("handed", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("handed", send_timeout_millis=0)
    for i in range(20):
        producer.send(b"%d" % i)
    parts = "/admin/v2/persistent/public/spread/t"  # its partitions are at both brokers
    assert ask(other, "PUT", "/admin/v2/namespaces/public/spread", {"bundles": {"numBundles": 8}})[0] == 204
    assert ask(other, "PUT", f"{parts}/partitions", 6)[0] == 204
    assert ask(owner, "PUT", f"{parts}/subscription/s", {"ledgerId": -1, "entryId": -1})[0] == 204
    status, told = ask(other, "GET", f"{parts}/partitioned-stats?perPartition=true")
    assert (status, len(told["partitions"]), list(told["subscriptions"])) == (200, 6, ["s"])
    assert {one["ownerBroker"] for one in told["partitions"].values()} == set(webs)
    assert ask(owner, "POST", f"{parts}/subscription/s/skip_all")[0] == 204
    assert ask(owner, "PUT", "/admin/v2/namespaces/public/spread/unload")[0] == 204
    for web in webs:
        bundles = ask(web, "GET", f"/admin/v2/brokers/lab/{web}/ownedNamespaces")[1]
        assert [bundle for bundle in bundles if "public/spread" in bundle] == []
    assert ask(owner, "DELETE", f"{parts}/partitions")[0] == 204
    assert ask(other, "GET", f"{parts}/partitioned-stats")[0] == 404
    for number in range(6):
        assert ask(owner, "PUT", f"/admin/v2/persistent/public/spread/t{number}")[0] == 204
    places = [f"/lookup/v2/topic/persistent/public/spread/t{number}" for number in range(6)]
    assert len({ask(other, "GET", place)[1]["httpUrl"] for place in places}) == 2
    assert ask(owner, "POST", "/admin/v2/brokers/configuration/forceDeleteNamespaceAllowed/true")[0] == 200
    deletion = urllib.request.Request(f"http://{owner}/admin/v2/namespaces/public/spread?force=true", method="DELETE")
    with urllib.request.urlopen(deletion, timeout=WAIT_S) as answer:  # nobody is sent from broker to broker
        assert answer.status == 204
    code, _, _ = end(brokers.running.pop(owner), signal.SIGTERM)
    assert code == 0
    for i in range(20, 40):
        producer.send(b"%d" % i)
    seen = set()
    while len(seen) < 40:
        message = consumer.receive(CLIENT_MS)
        consumer.acknowledge(message)
        seen.add(int(message.data()))
    assert ask(other, "GET", path)[1]["httpUrl"].endswith(other)
    client.close()
    assert [row["broker"] for row in brokers.local.json("broker", "list")] == [other]
    assert end(brokers.running.pop(other), signal.SIGTERM)[0] == 0


def test_who_is_told_to_end_while_it_starts_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and is no ZooKeeper
        silent.settimeout(WAIT_S)
        conf = tmp_path / "broker.conf"
        conf.write_text(f"clusterName=lab\nmetadataStoreUrl=zk:127.0.0.1:{silent.getsockname()[1]}\n")
        broker = Local(tmp_path).start("broker", "start", "-c", conf)
        silent.accept()[0].close()
        code, out, err = end(broker, signal.SIGTERM)
    assert (code, out) == (0, b""), err.decode()


def test_dev_up_with_a_broker(tmp_path: Path) -> None:
    local = Local(tmp_path)
    services = local.json("dev", "up", "--bookies", 1, "--brokers", 1, "--dir", tmp_path / "cluster")
    try:
        assert [(s["service"], s["state"]) for s in services if s["kind"] == "broker"] == [("broker 1", "running")]
        port = next(s["port"] for s in services if s["kind"] == "broker")
        client = pulsar.Client(f"pulsar://127.0.0.1:{port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.create_producer("hello").send(b"world")
        client.close()
        (row,) = local.json("topic", "read", "hello")
        assert row["messages"] == 1
        assert local.json("topic", "list", "public/default")[0]["topic"].endswith("/hello")
        assert local.json("dev", "kill", "broker")["state"] == "stopped"
        assert local.json("dev", "start", "broker")["state"] == "running"
    finally:
        local.run("dev", "down", "--yes")
    assert {s["state"] for s in local.json("dev", "status", "--dir", tmp_path / "cluster", code=1)} == {"stopped"}
