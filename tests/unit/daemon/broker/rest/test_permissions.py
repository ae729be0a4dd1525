"""Permissions in the REST interface, as Java 4.0.7 without authorization answers."""

from __future__ import annotations

from typing import Any

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of
from tests.unit.daemon.broker.rest.stored_namespace import PARTITIONED, STORED_NAMESPACE, STORED_TOPIC, prepare_stored

ALL = f"{A}/namespaces/grantPermissionsOnTopics"
NOBODY = f"{A}/namespaces/revokePermissionsOnTopics"


async def auth(admin: Admin) -> Any:
    return (await admin.ok("GET", STORED_NAMESPACE))["auth_policies"]


def test_permissions_of_namespaces_and_subscriptions_are_stored_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        assert await admin.ok("GET", f"{STORED_NAMESPACE}/permissions") == {}
        assert await status_of(admin, "POST", f"{STORED_NAMESPACE}/permissions/r", ["functions"]) == (204, None)
        assert await status_of(admin, "POST", f"{STORED_NAMESPACE}/permissions/r2", ["sinks", "sinks"]) == (204, None)
        assert await admin.ok("GET", f"{STORED_NAMESPACE}/permissions") == {"r": ["functions"], "r2": ["sinks"]}
        assert (await admin.ask("POST", f"{STORED_NAMESPACE}/permissions/r", ["zzz"])).status == 400
        missing = {"reason": "Actions should not be null"}
        assert await status_of(admin, "POST", f"{STORED_NAMESPACE}/permissions/r") == (400, missing)
        assert await status_of(admin, "DELETE", f"{STORED_NAMESPACE}/permissions/r") == (204, None)
        assert await status_of(admin, "DELETE", f"{STORED_NAMESPACE}/permissions/nobody") == (204, None)
        assert await admin.ok("GET", f"{STORED_NAMESPACE}/permissions") == {"r2": ["sinks"]}
        gone = {"reason": "Topic's namespace does not exist"}
        assert await status_of(admin, "POST", f"{A}/namespaces/t1/none/permissions/r", ["produce"]) == (404, gone)
        assert (await admin.ask("DELETE", f"{A}/namespaces/t1/none/permissions/r")).status == 404
        subscriptions = f"{STORED_NAMESPACE}/permissions/subscription"
        assert await status_of(admin, "POST", f"{subscriptions}/s", ["r", "q"]) == (204, None)
        assert await admin.ok("GET", subscriptions) == {"s": ["r", "q"]}
        await admin.ok("POST", f"{subscriptions}/s2", [])
        await admin.ok("DELETE", f"{STORED_NAMESPACE}/permissions/s/r")
        assert await admin.ok("GET", subscriptions) == {"s": ["q"], "s2": []}
        await admin.ok("DELETE", f"{STORED_NAMESPACE}/permissions/s/q")
        assert (await admin.ask("DELETE", f"{STORED_NAMESPACE}/permissions/s/q")).status == 404
        missing = {"reason": "Roles should not be null"}
        assert await status_of(admin, "POST", f"{subscriptions}/s") == (400, missing)
        wanted = {"namespace_auth": {"r2": ["sinks"]}, "destination_auth": {}, "subscription_auth_roles": {"s2": []}}
        assert await auth(admin) == wanted

    administering(scenario)


def test_permissions_of_topics_are_stored_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        assert await admin.ok("GET", f"{STORED_TOPIC}/permissions") == {}
        assert await status_of(admin, "POST", f"{STORED_TOPIC}/permissions/r", ["produce", "consume"]) == (204, None)
        await admin.ok("POST", f"{STORED_NAMESPACE}/permissions/r", ["functions"])
        await admin.ok("POST", f"{STORED_NAMESPACE}/permissions/r2", ["sinks"])
        both = {"r": ["functions", "produce", "consume"], "r2": ["sinks"]}
        assert await admin.ok("GET", f"{STORED_TOPIC}/permissions") == both
        await admin.ok("POST", f"{PARTITIONED}/permissions/r", ["produce"])
        await admin.ok("POST", f"{PARTITIONED}-partition-0/permissions/r", ["produce"])
        topics = {f"persistent://t1/n/{name}": {"r": ["produce"]} for name in ("pt", "pt-partition-0")}
        stored = {"persistent://t1/n/t": {"r": ["produce", "consume"]}, **topics}
        assert (await auth(admin))["destination_auth"] == stored
        await admin.ok("DELETE", f"{PARTITIONED}/permissions/r")
        await admin.ok("DELETE", f"{STORED_TOPIC}/permissions/r")
        assert (await auth(admin))["destination_auth"] == {}
        missing = {"reason": "Topic persistent://t1/n/none not found"}
        for method, path in (("GET", ""), ("POST", "/r"), ("DELETE", "/r")):
            where = f"{A}/persistent/t1/n/none/permissions{path}"
            assert await status_of(admin, method, where, ["produce"]) == (404, missing)
        grants: list[Any] = [
            {"topic": f"persistent://t1/n/{name}", "role": "r", "actions": ["produce"]} for name in ("t", "pt")
        ]
        assert await status_of(admin, "POST", ALL, grants) == (204, None)
        assert await admin.ok("GET", f"{STORED_TOPIC}/permissions") == {"r": ["functions", "produce"], "r2": ["sinks"]}
        assert await status_of(admin, "POST", NOBODY, grants) == (204, None)
        assert (await auth(admin))["destination_auth"] == {}
        assert await status_of(admin, "POST", ALL, []) == (400, {"reason": "The namespace should be the same"})
        for wrong in (5, [5], [{}], [{"topic": "persistent://t1/n/t"}]):
            assert (await admin.ask("POST", ALL, wrong)).status == 400

    administering(scenario)
