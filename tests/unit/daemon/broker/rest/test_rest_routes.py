"""Every path and method of Pulsar 4.0.7's admin interface is answered by ours on purpose, and whatever is sent.

`pulsar_rest/routes.txt` are the routes in the annotations of Java's classes admin.v2.* and lookup.v2.TopicLookup.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from bkdaemon.broker.rest.application import application
from starlette.routing import Match

from tests.broker.admin import Admin, Answer, administering
from tests.unit.daemon.broker.rest.test_rest import CALLS

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


def sample(path: str, number: str = "5") -> str:
    def value(match: re.Match[str]) -> str:
        return VALUES.get(match[1], number)

    return re.sub(r"\{([^}]+)\}", value, path)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_the_path_is_known(method: str, path: str) -> None:
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


async def prepared(admin: Admin) -> None:
    await admin.ok("PUT", "/admin/v2/tenants/t", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", "/admin/v2/namespaces/t/n", {"bundles": {"numBundles": 1}})
    await admin.ok("PUT", "/admin/v2/persistent/t/n/x")
    await admin.ok("PUT", "/admin/v2/persistent/t/n/x/subscription/s", {"ledgerId": -1, "entryId": -1})


def test_no_body_is_a_bug_of_ours() -> None:
    """Every route with every nonsense: a client's fault is never told as the broker's."""

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
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


def test_no_path_and_no_query_is_a_bug_of_ours() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
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


def test_what_is_not_there_is_told_as_java_tells_it() -> None:
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


def test_what_is_no_path_says_so() -> None:
    async def scenario(admin: Admin) -> None:
        answer = await admin.ask("GET", "/admin/v2/nothing/here")
        assert (answer.status, answer.body) == (404, {"reason": "There is no GET /admin/v2/nothing/here"})
        answer = await admin.ask("DELETE", "/admin/v2/brokers")
        assert (answer.status, answer.body) == (405, {"reason": "There is no DELETE of /admin/v2/brokers"})

    administering(scenario)
