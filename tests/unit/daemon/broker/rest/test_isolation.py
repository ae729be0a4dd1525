"""Isolation policies and failure domains in the REST interface, with the answers of Java's broker 4.0.7."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of

CLUSTER = f"{A}/clusters/lab"
ISOLATION = f"{CLUSTER}/namespaceIsolationPolicies"
DOMAINS = f"{CLUSTER}/failureDomains"
TOPIC = "persistent://public/default/t"
FAILOVER = {"parameters": {"min_limit": "1", "usage_threshold": "80"}, "policy_type": "min_available"}
POLICY: dict[str, Any] = {
    "namespaces": ["t1/n", "t1/n"], "primary": ["b.*"], "secondary": [], "auto_failover_policy": FAILOVER,
}  # fmt: skip
NONE = {"reason": "NamespaceIsolationPolicies for cluster lab does not exist"}
NO_CLUSTER = {"reason": "Cluster no does not exist."}
SHOWN = (
    'Invalid format of input policy data. policy: p; data: {\n  "namespaces" : [ ],\n  "primary" : null,\n'
    '  "secondary" : null,\n  "auto_failover_policy" : {\n    "parameters" : {\n      "min_limit" : "1"\n    },\n'
    '    "policy_type" : null\n  },\n  "unload_scope" : null\n}'
)


def failover(**parameters: Any) -> dict[str, Any]:
    return POLICY | {"auto_failover_policy": {"policy_type": "min_available", "parameters": parameters}}


def test_isolation_policies_are_set_returned_and_deleted_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        for path in ("", "/p", "/brokers", "/brokers/b:1"):
            assert await status_of(admin, "GET", ISOLATION + path) == (404, NONE)
        assert await status_of(admin, "DELETE", f"{ISOLATION}/p") == (204, None)
        assert await admin.ok("GET", ISOLATION) == {}
        numbers = failover(min_limit=1, usage_threshold=80) | {"unheard": 1}
        assert await status_of(admin, "POST", f"{ISOLATION}/p", numbers) == (204, None)
        wanted = json.dumps({"p": POLICY}, separators=(",", ":")).encode()
        node = await admin.service.store.get("/admin/clusters/lab/namespaceIsolationPolicies")
        assert node.data == wanted
        assert await admin.ok("GET", f"{ISOLATION}/p") == POLICY
        missing = {"reason": "Cannot find NamespaceIsolationPolicy q for cluster lab"}
        assert await status_of(admin, "GET", f"{ISOLATION}/q") == (404, missing)
        told = {"brokerName": "b1:8080", "policyName": "p", "namespaceRegex": ["t1/n", "t1/n"], "primary": True}
        assert await admin.ok("GET", f"{ISOLATION}/brokers/b1:8080") == told
        none = {"brokerName": "a:8080", "namespaceRegex": [], "primary": False}
        assert await admin.ok("GET", f"{ISOLATION}/brokers") == [none]
        assert await status_of(admin, "DELETE", CLUSTER) == (412, {"reason": "Cluster not empty"})
        await admin.ok("DELETE", f"{ISOLATION}/p")
        assert await admin.ok("GET", ISOLATION) == {}
        for method, path in (("POST", "/v"), ("DELETE", "/v"), ("GET", "/v"), ("GET", "/brokers")):
            where = f"{A}/clusters/no/namespaceIsolationPolicies{path}"
            assert await status_of(admin, method, where, POLICY) == (412, NO_CLUSTER)
        assert await status_of(admin, "GET", f"{A}/clusters/no/namespaceIsolationPolicies") == (404, NO_CLUSTER)

    administering(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespaces": []}, {"namespaces": None}, {"namespaces": ["("]}, {"primary": []}, {"primary": ["("]},
        {"primary": "b"}, {"secondary": None}, {"secondary": ["["]}, {"auto_failover_policy": None},
        {"auto_failover_policy": {}}, {"auto_failover_policy": "min_available"}, {"unload_scope": "some"},
        {"auto_failover_policy": {"policy_type": "min_available"}},
        {"auto_failover_policy": FAILOVER | {"policy_type": "max"}}, failover(min_limit="1"),
        failover(min_limit="x", usage_threshold="1"), failover(min_limit="9" * 10, usage_threshold="1"),
        failover(min_limit=None, usage_threshold="1"),
    ],
)  # fmt: skip
def test_invalid_isolation_policies_are_refused(wrong: dict[str, Any]) -> None:
    async def scenario(admin: Admin) -> None:
        assert (await admin.ask("POST", f"{ISOLATION}/p", POLICY | wrong)).status == 400
        assert await status_of(admin, "GET", ISOLATION) == (404, NONE)

    administering(scenario, bookies=0)


def test_a_refusal_shows_the_isolation_policy_as_java_does() -> None:
    async def scenario(admin: Admin) -> None:
        given = {"namespaces": [], "auto_failover_policy": {"parameters": {"min_limit": "1"}}}
        assert await status_of(admin, "POST", f"{ISOLATION}/p", given) == (400, {"reason": SHOWN})

    administering(scenario, bookies=0)


def test_an_isolation_policy_unloads_bundles_that_it_moves() -> None:
    async def scenario(admin: Admin) -> None:
        ownership = admin.service.backend.ownership
        topic = await admin.topic(TOPIC)
        bundle = await ownership.bundle_of(topic.name)
        ours = POLICY | {"namespaces": ["public/default"], "primary": ["a"]}
        await admin.ok("POST", f"{ISOLATION}/p", ours | {"unload_scope": "none"})
        assert bundle in ownership.owned
        await admin.ok("POST", f"{ISOLATION}/p", ours)
        assert bundle in ownership.owned  # it stays where it was
        await admin.ok("POST", f"{ISOLATION}/p", ours | {"unload_scope": "all_matching"})
        assert bundle not in ownership.owned
        assert admin.service.server.topics.open == {}
        await admin.topic(TOPIC)
        await admin.ok("POST", f"{ISOLATION}/p", ours | {"primary": ["other"]})
        assert bundle not in ownership.owned
        reason = {"reason": f"Failed to find ownership for topic:{TOPIC}"}
        assert await status_of(admin, "GET", f"{A}/persistent/public/default/t/stats") == (412, reason)
        await admin.ok("POST", f"{ISOLATION}/p", ours | {"primary": ["other"], "secondary": ["a"]})
        await admin.ok("GET", f"{A}/persistent/public/default/t/stats")

    administering(scenario)


def test_a_failure_domain_is_refused() -> None:
    async def scenario(admin: Admin) -> None:
        refused = {"reason": "This broker does not place bundles by failure domains"}
        assert await status_of(admin, "POST", f"{DOMAINS}/d", {"brokers": ["b1:8080"]}) == (405, refused)
        assert await admin.ok("GET", DOMAINS) == {}

    administering(scenario, bookies=0)


def test_failure_domains_that_java_stored_are_returned_and_deleted() -> None:
    async def scenario(admin: Admin) -> None:
        missing = {"reason": "Domain d for cluster lab does not exist"}
        assert await status_of(admin, "GET", f"{DOMAINS}/d") == (404, missing)
        missing = {"reason": "Domain-name d or cluster lab does not exist"}
        assert await status_of(admin, "DELETE", f"{DOMAINS}/d") == (404, missing)
        both = {"brokers": ["b1:8080", "b2:8080"]}
        store, nodes = admin.service.store, "/admin/clusters/lab/failureDomain"
        await store.create(f"{nodes}/d", b'{"brokers":["b1:8080","b2:8080"]}', parents=True)
        await store.create(f"{nodes}/e", b"{}")
        await store.create(f"{nodes}/f", b"null")  # Java stores an empty body so.
        assert await admin.ok("GET", f"{DOMAINS}/d") == both
        assert await admin.ok("GET", DOMAINS) == {"d": both, "e": {}}
        assert (await admin.ask("GET", f"{DOMAINS}/f")).status == 404
        assert await status_of(admin, "DELETE", f"{DOMAINS}/d") == (200, None)
        assert await admin.ok("GET", DOMAINS) == {"e": {}}
        assert await admin.ok("GET", f"{A}/clusters/no/failureDomains") == {}
        for method in ("GET", "POST", "DELETE"):
            assert await status_of(admin, method, f"{A}/clusters/no/failureDomains/d", both) == (412, NO_CLUSTER)

    administering(scenario, bookies=0)
