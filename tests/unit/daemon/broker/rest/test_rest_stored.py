"""Permissions, resource quotas and what else is only stored: as Java 4.0.7 without authorization answered."""

from __future__ import annotations

from typing import Any

from bkctl.model.topic import EARLIEST
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.test_rest_isolation import status_of
from tests.unit.log.logs import until

A = "/admin/v2"
NAMESPACE = f"{A}/namespaces/t1/n"
TOPIC = f"{A}/persistent/t1/n/t"
PARTITIONED = f"{A}/persistent/t1/n/pt"
QUOTAS = f"{A}/resource-quotas"
BUNDLE = f"{QUOTAS}/t1/n/0x00000000_0x80000000"
ALL = f"{A}/namespaces/grantPermissionsOnTopics"
NOBODY = f"{A}/namespaces/revokePermissionsOnTopics"
QUOTA = {
    "msgRateIn": 1.0, "msgRateOut": 2.0, "bandwidthIn": 3.0, "bandwidthOut": 4.0, "memory": 5.0, "dynamic": False,
}  # fmt: skip
INITIAL = {
    "msgRateIn": 40.0, "msgRateOut": 120.0, "bandwidthIn": 100000.0, "bandwidthOut": 300000.0, "memory": 80.0,
    "dynamic": True,
}  # fmt: skip


async def prepared(admin: Admin) -> None:
    await admin.ok("PUT", f"{A}/tenants/t1", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", NAMESPACE, {"bundles": {"numBundles": 2}})
    await admin.ok("PUT", TOPIC)
    await admin.ok("PUT", f"{PARTITIONED}/partitions", 2)


async def auth(admin: Admin) -> Any:
    return (await admin.ok("GET", NAMESPACE))["auth_policies"]


def test_permissions_of_namespaces_and_subscriptions() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        assert await admin.ok("GET", f"{NAMESPACE}/permissions") == {}
        assert await status_of(admin, "POST", f"{NAMESPACE}/permissions/r", ["functions"]) == (204, None)
        assert await status_of(admin, "POST", f"{NAMESPACE}/permissions/r2", ["sinks", "sinks"]) == (204, None)
        assert await admin.ok("GET", f"{NAMESPACE}/permissions") == {"r": ["functions"], "r2": ["sinks"]}
        assert (await admin.ask("POST", f"{NAMESPACE}/permissions/r", ["zzz"])).status == 400
        missing = {"reason": "Actions should not be null"}
        assert await status_of(admin, "POST", f"{NAMESPACE}/permissions/r") == (400, missing)
        assert await status_of(admin, "DELETE", f"{NAMESPACE}/permissions/r") == (204, None)
        assert await status_of(admin, "DELETE", f"{NAMESPACE}/permissions/nobody") == (204, None)
        assert await admin.ok("GET", f"{NAMESPACE}/permissions") == {"r2": ["sinks"]}
        gone = {"reason": "Topic's namespace does not exist"}
        assert await status_of(admin, "POST", f"{A}/namespaces/t1/none/permissions/r", ["produce"]) == (404, gone)
        assert (await admin.ask("DELETE", f"{A}/namespaces/t1/none/permissions/r")).status == 404
        subscriptions = f"{NAMESPACE}/permissions/subscription"
        assert await status_of(admin, "POST", f"{subscriptions}/s", ["r", "q"]) == (204, None)
        assert await admin.ok("GET", subscriptions) == {"s": ["r", "q"]}
        await admin.ok("POST", f"{subscriptions}/s2", [])
        await admin.ok("DELETE", f"{NAMESPACE}/permissions/s/r")
        assert await admin.ok("GET", subscriptions) == {"s": ["q"], "s2": []}
        await admin.ok("DELETE", f"{NAMESPACE}/permissions/s/q")
        assert (await admin.ask("DELETE", f"{NAMESPACE}/permissions/s/q")).status == 404
        missing = {"reason": "Roles should not be null"}
        assert await status_of(admin, "POST", f"{subscriptions}/s") == (400, missing)
        wanted = {"namespace_auth": {"r2": ["sinks"]}, "destination_auth": {}, "subscription_auth_roles": {"s2": []}}
        assert await auth(admin) == wanted

    administering(scenario)


def test_permissions_of_topics() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        assert await admin.ok("GET", f"{TOPIC}/permissions") == {}
        assert await status_of(admin, "POST", f"{TOPIC}/permissions/r", ["produce", "consume"]) == (204, None)
        await admin.ok("POST", f"{NAMESPACE}/permissions/r", ["functions"])
        await admin.ok("POST", f"{NAMESPACE}/permissions/r2", ["sinks"])
        both = {"r": ["functions", "produce", "consume"], "r2": ["sinks"]}
        assert await admin.ok("GET", f"{TOPIC}/permissions") == both
        await admin.ok("POST", f"{PARTITIONED}/permissions/r", ["produce"])
        await admin.ok("POST", f"{PARTITIONED}-partition-0/permissions/r", ["produce"])
        topics = {f"persistent://t1/n/{name}": {"r": ["produce"]} for name in ("pt", "pt-partition-0")}
        stored = {"persistent://t1/n/t": {"r": ["produce", "consume"]}, **topics}
        assert (await auth(admin))["destination_auth"] == stored
        await admin.ok("DELETE", f"{PARTITIONED}/permissions/r")
        await admin.ok("DELETE", f"{TOPIC}/permissions/r")
        assert (await auth(admin))["destination_auth"] == {}
        missing = {"reason": "Topic persistent://t1/n/none not found"}
        for method, path in (("GET", ""), ("POST", "/r"), ("DELETE", "/r")):
            where = f"{A}/persistent/t1/n/none/permissions{path}"
            assert await status_of(admin, method, where, ["produce"]) == (404, missing)
        grants: list[Any] = [
            {"topic": f"persistent://t1/n/{name}", "role": "r", "actions": ["produce"]} for name in ("t", "pt")
        ]
        assert await status_of(admin, "POST", ALL, grants) == (204, None)
        assert await admin.ok("GET", f"{TOPIC}/permissions") == {"r": ["functions", "produce"], "r2": ["sinks"]}
        assert await status_of(admin, "POST", NOBODY, grants) == (204, None)
        assert (await auth(admin))["destination_auth"] == {}
        assert await status_of(admin, "POST", ALL, []) == (400, {"reason": "The namespace should be the same"})
        for wrong in (5, [5], [{}], [{"topic": "persistent://t1/n/t"}]):
            assert (await admin.ask("POST", ALL, wrong)).status == 400

    administering(scenario)


def test_resource_quotas() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        assert await admin.ok("GET", QUOTAS) == INITIAL
        assert await status_of(admin, "POST", QUOTAS, QUOTA) == (204, None)
        assert await admin.ok("GET", QUOTAS) == QUOTA
        assert await admin.ok("GET", BUNDLE) == QUOTA
        assert await status_of(admin, "POST", BUNDLE, {"msgRateIn": 7, "unheard": 1}) == (204, None)
        node = await admin.service.store.get("/loadbalance/resource-quota/t1/n/0x00000000_0x80000000")
        wanted = b'{"msgRateIn":7.0,"msgRateOut":0.0,"bandwidthIn":0.0,"bandwidthOut":0.0,"memory":0.0,"dynamic":true}'
        assert node.data == wanted
        assert (await admin.ok("GET", BUNDLE))["msgRateIn"] == 7.0
        assert await status_of(admin, "DELETE", BUNDLE) == (204, None)
        assert await admin.ok("GET", BUNDLE) == QUOTA
        assert (await admin.ask("DELETE", BUNDLE)).status == 404
        text = "Invalid upper boundary for bundle t1/n/0x00000000_0x90000000."
        text += " Expected upper boundary of t1/n/0x00000000_0x80000000"
        for method in ("GET", "POST", "DELETE"):
            where = f"{QUOTAS}/t1/n/0x00000000_0x90000000"
            assert await status_of(admin, method, where, QUOTA) == (412, {"reason": text})
        for wrong in ([], {"msgRateIn": "x"}, {"dynamic": "x"}, None):
            assert (await admin.ask("POST", BUNDLE, wrong)).status == 400
        await admin.service.store.overwrite("/loadbalance/resource-quota/default", b"null")  # as Java stores no body
        assert await admin.ok("GET", QUOTAS) == INITIAL
        await admin.ok("POST", QUOTAS, QUOTA)
        assert await admin.ok("GET", QUOTAS) == QUOTA

    administering(scenario)


def test_what_is_only_told() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        clusters = f"{NAMESPACE}/allowedClusters"
        assert await admin.ok("GET", clusters) == []
        assert await status_of(admin, "POST", clusters, ["lab", "lab"]) == (200, None)
        assert await admin.ok("GET", clusters) == ["lab"]
        text = "Cluster [no] is not in the list of allowed clusters list for tenant [t1]"
        assert await status_of(admin, "POST", clusters, ["no"]) == (403, {"reason": text})
        answer = await admin.ask("POST", clusters, [])
        assert (answer.status, answer.body["reason"][:60]) == (
            400, "Allowed clusters do not contain the replication cluster lab.",
        )  # fmt: skip
        invalid = {"reason": "Invalid bundle range: allowedClusters"}
        assert await status_of(admin, "DELETE", clusters) == (412, invalid)
        mode = f"{NAMESPACE}/subscriptionAuthMode"
        for value, told in (("Prefix", "Prefix"), ("None", "None")):
            assert await status_of(admin, "POST", mode, value) == (204, None)
            assert await admin.ok("GET", mode) == told
        assert (await admin.ask("POST", mode, "zzz")).status == 400
        rate = f"{NAMESPACE}/replicatorDispatchRate"
        assert await admin.ok("GET", rate) is None
        assert await status_of(admin, "POST", rate, {"dispatchThrottlingRateInMsg": 5}) == (204, None)
        wanted = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 0}
        assert await admin.ok("GET", rate) == wanted | {"relativeToPublishRate": False, "ratePeriodInSecond": 0}
        assert await status_of(admin, "DELETE", rate) == (204, None)
        for where in (f"{NAMESPACE}/entryFilters", f"{TOPIC}/entryFilters"):
            missing = {"reason": "Entry filter 'a' not found"}
            assert await status_of(admin, "POST", where, {"entryFilterNames": "a,b"}) == (400, missing)
            answer = await admin.ask("POST", where, {"entryFilterNames": " , "})
            assert (answer.status, "can't be empty" in answer.body["reason"]) == (400, True)
        assert await status_of(admin, "DELETE", f"{NAMESPACE}/entryFilters") == (204, None)

    administering(scenario)


def test_anti_affinity_groups_are_told_as_java_tells_them() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        group, groups = f"{NAMESPACE}/antiAffinity", f"{A}/namespaces/lab/antiAffinity"
        assert await status_of(admin, "GET", group) == (204, None)
        assert await status_of(admin, "GET", f"{groups}/g") == (400, {"reason": "Tenant should not be null"})
        answer = await admin.ask("POST", group, raw=b" ")
        assert (answer.status, answer.body) == (412, {"reason": "antiAffinityGroup can't be empty"})
        assert (await admin.ask("POST", group, raw=b"g")).status == 204
        local = await admin.service.backend.meta.namespaces.local_policies("t1/n")
        assert (local["namespaceAntiAffinityGroup"], "bundles" in local, local["migrated"]) == ("g", True, False)
        assert await status_of(admin, "GET", group) == (200, "g")
        for name, told in (("g", ["t1/n"]), ("G", ["t1/n"]), ("h", [])):
            assert await admin.ok("GET", f"{groups}/{name}?tenant=t1") == told
            assert await admin.ok("GET", f"{groups}/{name}?property=t1".replace("/v2", "")) == told
        assert await status_of(admin, "GET", f"{A}/namespaces/no/antiAffinity/g?tenant=t1") == (
            412, {"reason": "Cluster no does not exist."},
        )  # fmt: skip
        assert await status_of(admin, "DELETE", group) == (204, None)
        assert await status_of(admin, "GET", group) == (204, None)

    administering(scenario)


def test_resource_groups_are_kept_where_java_looks_for_them() -> None:
    """Nodes as ResourceGroupResources.java writes them."""

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        groups, of_namespace = f"{A}/resourcegroups", f"{NAMESPACE}/resourcegroup"
        missing = {"reason": "ResourceGroup does not exist"}
        assert await status_of(admin, "GET", f"{groups}/g") == (404, missing)
        assert (await admin.ask("PUT", f"{groups}/g", {"publishRateInMsgs": "many"})).status == 400
        await admin.ok("PUT", f"{groups}/g", {"publishRateInMsgs": 5, "unknown": 1})
        node = (await admin.service.store.get("/admin/resourcegroups/g")).data
        rates = b'{"publishRateInMsgs":5,"publishRateInBytes":-1,"dispatchRateInMsgs":-1,"dispatchRateInBytes":-1}'
        assert node == rates
        await admin.ok("PUT", f"{groups}/g", {"dispatchRateInBytes": 7})
        found = await admin.ok("GET", f"{groups}/g")
        assert (found["publishRateInMsgs"], found["dispatchRateInBytes"]) == (5, 7)
        assert await admin.ok("GET", groups) == ["g"]
        assert await status_of(admin, "POST", f"{of_namespace}/h") == (412, missing)
        await admin.ok("POST", f"{of_namespace}/g")
        assert await status_of(admin, "GET", of_namespace) == (200, "g")
        assert (await admin.service.backend.meta.namespaces.policies("t1/n"))["resource_group_name"] == "g"
        assert await status_of(admin, "DELETE", f"{groups}/g") == (412, {"reason": "ResourceGroup is in use"})
        await admin.ok("DELETE", of_namespace)
        await admin.ok("DELETE", f"{groups}/g")
        assert await admin.ok("GET", groups) == []

    administering(scenario)


def test_whether_dispatch_pauses_is_said_at_three_levels() -> None:
    """What is removed is stored as false, as Java does: it comes before the level above."""

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        name = "dispatcherPauseOnAckStatePersistent"
        topic = (await admin.topic("t1/n/t")).name

        async def told(*, rules: bool) -> list[bool]:
            admin.service.backend.policies.forget("t1/n")
            assert (await admin.service.backend.rules(topic)).pause_on_ack_state is rules
            return [await admin.ok("GET", f"{level}/{name}") for level in (NAMESPACE, TOPIC)]

        assert await told(rules=False) == [False, False]
        await admin.ok("POST", f"{A}/brokers/configuration/{name}Enabled/true")
        await admin.ok("DELETE", f"{TOPIC}/{name}")
        assert await told(rules=True) == [False, False]
        await admin.ok("DELETE", f"{NAMESPACE}/{name}")
        assert await told(rules=False) == [False, False]
        await admin.ok("POST", f"{NAMESPACE}/{name}")
        assert await told(rules=True) == [True, False]
        await admin.ok("POST", f"{TOPIC}/{name}")
        await admin.ok("DELETE", f"{TOPIC}/{name}")
        assert await told(rules=False) == [True, False]

    administering(scenario)


def test_the_old_way_to_say_which_schemas_may_follow_is_held_to() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        old, new = (f"{NAMESPACE}/schema{name}CompatibilityStrategy" for name in ("AutoUpdate", ""))

        async def rules() -> str:
            topic = await admin.topic("t1/n/t")
            admin.service.backend.policies.forget("t1/n")
            return str((await admin.service.backend.rules(topic.name)).schema_compatibility)

        assert await status_of(admin, "GET", old) == (204, None)
        assert await rules() == "FULL"
        assert await status_of(admin, "PUT", old, "Backward") == (204, None)
        assert await admin.ok("GET", old) == "Backward"
        assert await rules() == "BACKWARD"
        assert await status_of(admin, "PUT", old, "AutoUpdateDisabled") == (204, None)
        assert await rules() == "ALWAYS_INCOMPATIBLE"
        await admin.ok("PUT", new, "FORWARD")
        assert await rules() == "FORWARD"
        assert (await admin.ask("PUT", old, "backwards")).status == 400
        await admin.ok("PUT", new, "UNDEFINED")
        assert await status_of(admin, "PUT", old) == (204, None)
        assert await rules() == "FULL"

    administering(scenario)


def test_new_partitions_have_the_subscriptions_of_those_that_are_there() -> None:
    name = "persistent://t1/n/parts"

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        path = "/admin/v2/persistent/t1/n/parts"
        await admin.ok("PUT", f"{path}/partitions", 2)
        await admin.ok("POST", f"{path}/partitions", 3)  # nobody has used it yet
        first = await admin.topic(f"{name}-partition-0")
        await first.subscription("s", durable=True, initial=EARLIEST, properties={"a": "b"})
        await first.subscription("reader", durable=False, initial=EARLIEST)
        await admin.ok("POST", f"{path}/partitions", 5)
        new = await admin.topic(f"{name}-partition-4")
        assert set(new.subscriptions) == {"s"}
        new.ledger.add_many([b"1", b"2"])
        await until(lambda: new.ledger.added == 2)
        found = new.subscriptions["s"]
        assert (found.properties, found.cursor.backlog(), found.durable) == ({"a": "b"}, 2, True)
        assert set((await admin.topic(f"{name}-partition-2")).subscriptions) == set()

    administering(scenario)
