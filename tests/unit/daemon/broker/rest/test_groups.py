"""Anti-affinity groups and resource groups in the REST interface."""

from __future__ import annotations

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of
from tests.unit.daemon.broker.rest.stored_namespace import STORED_NAMESPACE, prepare_stored


def test_anti_affinity_groups_are_stored_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        group, groups = f"{STORED_NAMESPACE}/antiAffinity", f"{A}/namespaces/lab/antiAffinity"
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


def test_resource_groups_are_stored_as_by_java() -> None:
    """Nodes as ResourceGroupResources.java writes them."""

    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        groups, of_namespace = f"{A}/resourcegroups", f"{STORED_NAMESPACE}/resourcegroup"
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
