"""The whole REST interface: its routes, invalid requests, tenants, and requests that Java's broker answered.

`pulsar_rest/routes.txt` has the routes in the annotations of Java's classes admin.v2.* and lookup.v2.TopicLookup.
`pulsar_rest/calls.json` has some 250 requests to Pulsar 4.0.7, recorded with a client that wrote 50 messages to t1/m/a
(20 a ledger) and 10 in two batches to t1/m/b; `produce` writes the same. Ledger ids are translated, times are not
compared.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

import pytest
from bkdaemon.broker.rest.application import application
from starlette.routing import Match

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_batch, encode_entry
from tests import pulsar_golden as golden
from tests.broker.admin import Admin, Answer, administering
from tests.unit.daemon.broker.rest.clients import A
from tests.unit.daemon.broker.rest.prepared import prepare_namespace, write_topics
from tests.unit.daemon.broker.rest.recorded import CALLS, certain, recorded_entry, shape
from tests.unit.daemon.broker.rest.test_absent import POLICIES
from tests.unit.log.logs import until

SKIPPED = {
    r"/namespaces/t1/n/0x|n/bundles$|GET .*/namespaces/t1/n$|n/bundles/x": "Java lost the bundles to an affinity",
    r"DELETE .*/(schemaCompatibilityStrategy|deduplicationSnapshotInterval)$": "Java takes it for a bundle",
    r"POST .*/replication$": "Java answers 200 with nothing in it",
    r"subscription/none/": "Java makes a subscription when somebody peeks at one that is not there",
    r"all_subscription": "Java complains of the one it made so",
    r"persistent/t1/m/a/(retention|messageTTL|persistence|backlogQuota|dedup|max|delayed|schema|inactive|subscriptionTypes|compactionT)":
        "policies of single topics",
    r"__change_events|includeSystemTopic=true": "of the same",
    r"DELETE .*/persistent/t1/m/a(/subscription/s)?$": "needs clients that are connected",
    r"bookies/all|internal-configuration": "addresses",
    r"non-persistent": "needs clients that are connected",
    r"m/b/stats": "needs clients that are connected",
    r"/truncate$": "of what is left there Java tells more than is there",
    r"namespaces/t1/m\?force": "of what forced deletion is not allowed",
}  # fmt: skip
"""What is not sent, and why."""
JAVA_FAILS = 500
VOLATILE = re.compile(
    r"time|[Ts]tamp|address|connectedSince|ownerBroker|activeConsumerName|waiting|oldestBacklog", re.ASCII
)
HEADERS_SKIPPED = {"x-pulsar-publish-time", "x-pulsar-message-id"}
ROUTES: Final = [tuple(line.split(" ")) for line in (CALLS.parent / "routes.txt").read_text().splitlines()]
WHOLE: Final = "0x00000000_0xffffffff"
VALUES: Final = {
    "topic-domain": "persistent", "tenant": "t", "property": "t", "namespace": "n", "topic": "x", "cluster": "lab",
    "clusterName": "lab", "bundle": WHOLE, "brokerId": "a:8080", "broker": "a:8080", "subName": "s",
    "subscriptionName": "s", "subscription": "s", "bookie": "b:1", "allocator": "default",
}  # fmt: skip
WRONG: Final = {
    "bundles": 1, "retention_policies": 1, "partitions": "x", "properties": [1], "ledgerId": "x", "entryId": None,
    "type": 7, "schema": {}, "allowedClusters": "lab", "adminRoles": 3, "rack": [], "hostname": {}, "limitSize": "x",
    "policy": "none", "dispatchThrottlingRateInMsg": "fast", "publishThrottlingRateInMsg": [], "serviceUrl": 1,
    "subscribeThrottlingRatePerConsumer": {}, "peerClusterNames": {}, "bookkeeperEnsemble": 1.5, "tickTime": "x",
    "bookkeeperAffinityGroupPrimary": [1], "retentionTimeInMinutes": "many", "maxInactiveDurationSeconds": "x",
    "allowAutoSubscriptionCreation": "x", "allowAutoTopicCreation": "x",
}  # fmt: skip
"""Of every field that some body has, what it cannot be."""
BODIES: Final[list[bytes]] = [
    json.dumps(WRONG).encode(),
    *(b"{", b"\xff\xfe", b"[" * 5000, b"-1", b"1.5", b"1" + b"0" * 30, b'"x"', b'[{"a": null}]'),
    b'{"ledgerId": 1e400, "entryId": 1}',
    b'{"bundles": {"numBundles": 99999999999}}',
    b'{"type": "JSON", "schema": "{", "properties": {"a": []}}',
]


def test_requests_that_change_nothing_are_answered_as_by_java() -> None:
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


def test_requests_of_pulsar_admin_are_answered_as_by_java() -> None:
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


def recorded_batch(first: int) -> bytes:
    singles = []
    for i in range(first, first + 5):
        single = api.SingleMessageMetadata(partition_key="kk", sequence_id=i, payload_size=0)
        single.properties.add(key="x", value="y")
        singles.append((single, b"b%d" % i))
    metadata = api.MessageMetadata(
        producer_name="p2", sequence_id=first, publish_time=1_700_000_000_001, partition_key="kk",
        num_messages_in_batch=5,
    )  # fmt: skip
    return encode_entry(metadata, encode_batch(singles))


async def produce(admin: Admin) -> None:
    """What the recording's clients did."""
    topic = await admin.topic("persistent://t1/m/a")
    for i in range(50):
        topic.ledger.add_many([recorded_entry(i)])
        await until(lambda n=i: topic.ledger.added == n + 1)  # type: ignore[misc]
    other = await admin.topic("persistent://t1/m/b")
    other.ledger.add_many([recorded_batch(0), recorded_batch(5)])
    await admin.ok("PUT", "/admin/v2/persistent/t1/m/b/subscription/sb", {"ledgerId": -1, "entryId": -1})
    await until(lambda: other.ledger.added == 2)


class Comparison:
    """Java's ledgers of t1/m/a by ours, and the judgement of answers."""

    def __init__(self) -> None:
        self.ledgers: dict[int, int] = {}
        self.compared = 0

    def learn(self, java: Any, ours: Any) -> None:
        pairs = zip(java["ledgers"], ours["ledgers"], strict=True)
        self.ledgers |= {theirs["ledgerId"]: mine["ledgerId"] for theirs, mine in pairs}

    def translated(self, call: dict[str, Any]) -> tuple[str, str, Any]:
        request = call["request"]
        path = re.sub(r"/ledger/(\d+)/", lambda m: f"/ledger/{self.ledgers.get(int(m[1]), m[1])}/", request["path"])
        body = request["body"]
        if isinstance(body, dict) and body.get("ledgerId", -1) in self.ledgers:
            body = body | {"ledgerId": self.ledgers[body["ledgerId"]]}
        return request["method"], path, body

    def judge(self, call: dict[str, Any], ours: Answer) -> None:
        java = call["response"]
        what = f"{call['request']['method']} {call['request']['path']}: {ours.body}"
        assert ours.status == java["status"], what
        wanted, got = java["body"], ours.body
        if isinstance(wanted, dict) and "base64" in wanted:
            assert ours.data == base64.b64decode(wanted["base64"]), what
            for name, text in java["headers"].items():
                if name.lower() not in HEADERS_SKIPPED:
                    assert ours.headers.get(name.lower()) == text, f"{what}: {name}"
        elif java["status"] < 400:
            assert self._plain(got) == self._plain(wanted), what
        elif wanted is not None and "Stacktrace" not in str(wanted):
            assert got == wanted, what
        self.compared += 1

    def _plain(self, value: Any, key: str = "") -> Any:
        """A value without what differs from run to run."""
        if isinstance(value, dict):
            if "publishers" in value or "consumers" in value or "entriesAddedCounter" in value:
                return shape({k: v for k, v in value.items() if not VOLATILE.search(k)} | self._without_clients(value))
            return {k: self._plain(v, k) for k, v in value.items() if not VOLATILE.search(k)}
        if isinstance(value, list):
            return [self._plain(one, key) for one in value] if key != "" else sorted(map(str, value))
        if key in ("ledgerId", "firstMessageId", "lastMessageId"):
            return type(value).__name__
        return value

    def _without_clients(self, told: dict[str, Any]) -> dict[str, Any]:
        left: dict[str, Any] = {}
        if "publishers" in told:
            left = {"publishers": [], "partitions": {}, "subscriptions": {}}
        if "cursors" in told:
            left = {"cursors": {}}
        return left


def test_recorded_requests_are_answered_as_by_java() -> None:
    calls = json.loads(CALLS.read_text())
    comparison = Comparison()

    async def scenario(admin: Admin) -> None:
        produced = False
        for call in calls:
            line = f"{call['request']['method']} {call['request']['path']}"
            if not produced and "m/a/stats" in line:
                await produce(admin)
                produced = True
            if call["response"]["status"] == JAVA_FAILS or any(re.search(pattern, line) for pattern in SKIPPED):
                continue
            if "a/subscription/s/position/1" in line:  # here the consumer's acks had come to Java
                cursor = (await admin.topic("persistent://t1/m/a")).subscriptions["s"].cursor
                cursor.ack_cumulative(cursor.mark_delete._replace(entry_id=9))
            method, path, body = comparison.translated(call)
            ours = await admin.ask(method, path, body)
            if "m/a/internalStats" in line:
                comparison.learn(call["response"]["body"], ours.body)
            comparison.judge(call, ours)

    administering(scenario, entries_per_ledger=20, rollover_min_minutes=0)
    assert comparison.compared > 180


def sample(path: str, number: str = "5") -> str:
    def value(match: re.Match[str]) -> str:
        return VALUES.get(match[1], number)

    return re.sub(r"\{([^}]+)\}", value, path)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_of_java_has_a_route_here(method: str, path: str) -> None:
    scope = {"type": "http", "method": method, "path": sample(path), "root_path": "", "headers": []}
    found = [route for route in _routes() if route.matches(scope)[0] == Match.FULL]
    assert found, f"{method} {path}"
    names = re.findall(r"[^/{}]+", re.sub(r"\{[^}]*\}", "", path))
    ours = re.sub(r"\{domain:domain\}", "persistent" if "/persistent" in path else "non-persistent", found[0].path)
    assert re.findall(r"[^/{}]+", re.sub(r"\{[^}]*\}", "", ours)) == names, "another path takes it"


def _routes(made: list[Any] = []) -> list[Any]:  # noqa: B006 - made once
    if not made:
        made.extend(application(None).routes)  # type: ignore[arg-type]
    return made


def failed(answer: Answer) -> bool:
    """True for a bug; 501 and 503 are what Java says of what a broker has not."""
    return answer.status >= 500 and answer.status not in (501, 503)


async def prepare_topic(admin: Admin) -> None:
    await admin.ok("PUT", "/admin/v2/tenants/t", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", "/admin/v2/namespaces/t/n", {"bundles": {"numBundles": 1}})
    await admin.ok("PUT", "/admin/v2/persistent/t/n/x")
    await admin.ok("PUT", "/admin/v2/persistent/t/n/x/subscription/s", {"ledgerId": -1, "entryId": -1})


def test_an_invalid_body_is_never_answered_with_500() -> None:
    """Every route with every nonsense: a client's fault is never told as the broker's."""

    async def scenario(admin: Admin) -> None:
        await prepare_topic(admin)
        wrong, asked = [], 0
        for method, path in ROUTES:
            for body in BODIES if method in ("PUT", "POST") else BODIES[:2]:
                answer = await admin.ask(method, sample(path), raw=body)
                asked += 1
                if failed(answer):
                    wrong.append(f"{method} {path} {body[:40]!r}: {answer.status} {answer.body}")
            if method == "DELETE":
                await restored(admin)
        assert wrong == []
        assert asked > 1_000

    administering(scenario)


async def restored(admin: Admin) -> None:
    """What was deleted is there again."""
    for method, path, body in (
        ("PUT", "/admin/v2/clusters/lab", {"serviceUrl": "http://a:8080"}),
        ("PUT", "/admin/v2/tenants/t", {"allowedClusters": ["lab"]}),
        ("PUT", "/admin/v2/namespaces/t/n", {"bundles": {"numBundles": 1}}),
        ("PUT", "/admin/v2/persistent/t/n/x", None),
        ("PUT", "/admin/v2/persistent/t/n/x/subscription/s", {"ledgerId": -1, "entryId": -1}),
    ):
        assert (await admin.ask(method, path, body)).status < 500


def test_an_invalid_path_or_query_is_never_answered_with_500() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_topic(admin)
        query, wrong = "?authoritative=x&force=1&backlogQuotaType=x&messageTTL=x&messagePosition=x&group=", []
        for method, path in ROUTES:
            for number in ("x", "-1", "9" * 22):
                answer = await admin.ask(method, sample(path, number) + (query if number == "x" else ""))
                if failed(answer):
                    wrong.append(f"{method} {path} {number}: {answer.status} {answer.body}")
            if method == "DELETE":
                await restored(admin)
        assert wrong == []

    administering(scenario)


def test_requests_of_an_unknown_tenant_or_topic_are_refused_with_a_reason() -> None:
    """An unknown namespace, tenant or topic: 404 (412 for some), never done and never a bug."""

    async def scenario(admin: Admin) -> None:
        wrong = []
        for method, path in ROUTES:
            target = sample(path.replace("{tenant}", "none").replace("{property}", "none").replace("{topic}", "gone"))
            if "none" not in target or target in ("/admin/v2/tenants/none",):
                continue
            answer = await admin.ask(method, target, {} if method in ("PUT", "POST") else None)
            if answer.status not in (400, 404, 405, 409, 412, 422, 501) or "reason" not in json.dumps(answer.body):
                wrong.append(f"{method} {target}: {answer.status} {answer.body}")
        assert wrong == []

    administering(scenario)


def test_an_unknown_path_is_404_and_an_unknown_method_405() -> None:
    async def scenario(admin: Admin) -> None:
        answer = await admin.ask("GET", "/admin/v2/nothing/here")
        assert (answer.status, answer.body) == (404, {"reason": "GET /admin/v2/nothing/here does not exist"})
        answer = await admin.ask("DELETE", "/admin/v2/brokers")
        assert (answer.status, answer.body) == (405, {"reason": "/admin/v2/brokers does not support DELETE"})

    administering(scenario)


def test_a_tenant_is_deleted_with_its_namespaces_only_if_configuration_allows_it() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        await write_topics(admin, ())
        answer = await admin.ask("DELETE", f"{A}/tenants/t?force=true")
        wanted = {"reason": "Broker doesn't allow forced deletion of tenants"}
        assert (answer.status, answer.body) == (405, wanted)
        await admin.ok("POST", f"{A}/brokers/configuration/forceDeleteTenantAllowed/true")
        await admin.ok("DELETE", f"{A}/tenants/t?force=true")
        assert "t" not in await admin.ok("GET", f"{A}/tenants")

    administering(scenario)


def test_frequent_requests_of_operators_are_answered() -> None:
    async def scenario(admin: Admin) -> None:
        assert await admin.ok("GET", "/admin/v2/brokers/health?topicVersion=V2") == "ok"
        assert await admin.ok("GET", "/admin/v2/brokers/version") == "4.0.7"
        assert (await admin.ask("GET", "/admin/v2/brokers/backlog-quota-check")).status == 204
        assert await admin.ok("GET", "/admin/v2/clusters/lab/failureDomains") == {}
        assert await admin.ok("GET", f"{POLICIES}/permissions") == {}
        assert await admin.ok("GET", f"{POLICIES}/subscriptionAuthMode") == "None"
        assert await admin.ok("GET", "/admin/v2/resourcegroups") == []
        answer = await admin.ask("GET", "/admin/v2/clusters/lab/namespaceIsolationPolicies")
        wanted = {"reason": "NamespaceIsolationPolicies for cluster lab does not exist"}
        assert (answer.status, answer.body) == (404, wanted)

    administering(scenario)
