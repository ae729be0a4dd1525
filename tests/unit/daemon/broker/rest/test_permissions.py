"""Permissions in the REST interface: those that Java stored are returned, changes are refused."""

from __future__ import annotations

import pytest

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of
from tests.unit.daemon.broker.rest.stored_namespace import PARTITIONED, STORED_NAMESPACE, STORED_TOPIC, prepare_stored

REFUSED = {"reason": "This broker has no authorization: permissions are not enforced and cannot be changed"}
JAVA = {
    "namespace_auth": {"r": ["functions"], "r2": ["sinks"]},
    "destination_auth": {"persistent://t1/n/t": {"r": ["produce", "consume"]}},
    "subscription_auth_roles": {"s": ["r", "q"]},
}


def test_permissions_that_java_stored_are_returned() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        for path in ("permissions", "permissions/subscription"):
            assert await admin.ok("GET", f"{STORED_NAMESPACE}/{path}") == {}
        assert await admin.ok("GET", f"{STORED_TOPIC}/permissions") == {}
        await admin.service.backend.meta.namespaces.update_policies("t1/n", lambda old: old | {"auth_policies": JAVA})
        assert await admin.ok("GET", f"{STORED_NAMESPACE}/permissions") == JAVA["namespace_auth"]
        assert await admin.ok("GET", f"{STORED_NAMESPACE}/permissions/subscription") == {"s": ["r", "q"]}
        both = {"r": ["functions", "produce", "consume"], "r2": ["sinks"]}
        assert await admin.ok("GET", f"{STORED_TOPIC}/permissions") == both
        assert await admin.ok("GET", f"{PARTITIONED}/permissions") == JAVA["namespace_auth"]
        missing = {"reason": "Topic persistent://t1/n/none not found"}
        assert await status_of(admin, "GET", f"{A}/persistent/t1/n/none/permissions") == (404, missing)

    administering(scenario)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{STORED_NAMESPACE}/permissions/r", ["produce"]),
        ("DELETE", f"{STORED_NAMESPACE}/permissions/r", None),
        ("POST", f"{STORED_NAMESPACE}/permissions/subscription/s", ["r"]),
        ("DELETE", f"{STORED_NAMESPACE}/permissions/s/r", None),
        ("POST", f"{STORED_TOPIC}/permissions/r", ["produce"]),
        ("DELETE", f"{STORED_TOPIC}/permissions/r", None),
        ("POST", f"{A}/namespaces/grantPermissionsOnTopics", []),
        ("POST", f"{A}/namespaces/revokePermissionsOnTopics", []),
    ],
)
def test_granting_and_revoking_are_refused_as_neither_has_an_effect(method: str, path: str, body: object) -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        await admin.service.backend.meta.namespaces.update_policies("t1/n", lambda old: old | {"auth_policies": JAVA})
        assert await status_of(admin, method, path, body) == (405, REFUSED)
        assert (await admin.ok("GET", STORED_NAMESPACE))["auth_policies"] == JAVA
        gone = path.replace("t1/n", "t1/none")
        assert (await admin.ask(method, gone, body)).status == (405 if gone == path else 404)

    administering(scenario)
