"""Anti-affinity groups and resource groups in the REST interface: read and removed, not set."""

from __future__ import annotations

from bkctl.meta.documents import encode_json
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of
from tests.unit.daemon.broker.rest.stored_namespace import STORED_NAMESPACE, prepare_stored

RATES = {"publishRateInMsgs": 5, "publishRateInBytes": -1, "dispatchRateInMsgs": -1, "dispatchRateInBytes": 7}
NO_ANTI_AFFINITY = {"reason": "This broker does not place bundles by anti-affinity groups"}
NO_GROUPS = {"reason": "This broker does not enforce resource groups: set rates of the namespace"}


def test_an_anti_affinity_group_is_refused() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        assert await status_of(admin, "POST", f"{STORED_NAMESPACE}/antiAffinity", "g") == (405, NO_ANTI_AFFINITY)
        assert await status_of(admin, "GET", f"{STORED_NAMESPACE}/antiAffinity") == (204, None)
        assert (await admin.ask("POST", f"{A}/namespaces/t1/none/antiAffinity", "g")).status == 404

    administering(scenario)


def test_an_anti_affinity_group_that_java_stored_is_returned_and_removed() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        group, groups = f"{STORED_NAMESPACE}/antiAffinity", f"{A}/namespaces/lab/antiAffinity"
        assert await status_of(admin, "GET", f"{groups}/g") == (400, {"reason": "Tenant should not be null"})
        namespaces = admin.service.backend.meta.namespaces
        await namespaces.update_local_policies("t1/n", lambda old: old | {"namespaceAntiAffinityGroup": "g"})
        assert await status_of(admin, "GET", group) == (200, "g")
        for name, found in (("g", ["t1/n"]), ("G", ["t1/n"]), ("h", [])):
            assert await admin.ok("GET", f"{groups}/{name}?tenant=t1") == found
            assert await admin.ok("GET", f"{groups}/{name}?property=t1".replace("/v2", "")) == found
        assert await status_of(admin, "GET", f"{A}/namespaces/no/antiAffinity/g?tenant=t1") == (
            412, {"reason": "Cluster no does not exist."},
        )  # fmt: skip
        assert await status_of(admin, "DELETE", group) == (204, None)
        assert await status_of(admin, "GET", group) == (204, None)
        assert "bundles" in await namespaces.local_policies("t1/n")

    administering(scenario)


def test_a_resource_group_is_refused() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        assert await status_of(admin, "PUT", f"{A}/resourcegroups/g", RATES) == (405, NO_GROUPS)
        assert await status_of(admin, "POST", f"{STORED_NAMESPACE}/resourcegroup/g") == (405, NO_GROUPS)
        assert await admin.ok("GET", f"{A}/resourcegroups") == []
        assert (await admin.ask("POST", f"{A}/namespaces/t1/none/resourcegroup/g")).status == 404

    administering(scenario)


def test_a_resource_group_that_java_stored_is_returned_and_removed() -> None:
    """The nodes are those of ResourceGroupResources.java."""

    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        groups, of_namespace = f"{A}/resourcegroups", f"{STORED_NAMESPACE}/resourcegroup"
        assert await status_of(admin, "GET", f"{groups}/g") == (404, {"reason": "ResourceGroup does not exist"})
        await admin.service.store.create("/admin/resourcegroups/g", encode_json(RATES), parents=True)
        assert await admin.ok("GET", groups) == ["g"]
        assert await admin.ok("GET", f"{groups}/g") == RATES
        assert await status_of(admin, "GET", of_namespace) == (200, None)
        namespaces = admin.service.backend.meta.namespaces
        await namespaces.update_policies("t1/n", lambda old: old | {"resource_group_name": "g"})
        assert await status_of(admin, "GET", of_namespace) == (200, "g")
        assert await status_of(admin, "DELETE", f"{groups}/g") == (412, {"reason": "ResourceGroup is in use"})
        await admin.ok("DELETE", of_namespace)
        await admin.ok("DELETE", f"{groups}/g")
        assert await admin.ok("GET", groups) == []

    administering(scenario)
