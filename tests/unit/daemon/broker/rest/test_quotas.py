"""Resource quotas of bundles in the REST interface: those that Java stored are returned, new ones refused."""

from __future__ import annotations

from bkctl.meta.documents import encode_json
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of
from tests.unit.daemon.broker.rest.stored_namespace import prepare_stored

QUOTAS = f"{A}/resource-quotas"
BUNDLE = f"{QUOTAS}/t1/n/0x00000000_0x80000000"
QUOTA = {
    "msgRateIn": 1.0, "msgRateOut": 2.0, "bandwidthIn": 3.0, "bandwidthOut": 4.0, "memory": 5.0, "dynamic": False,
}  # fmt: skip
INITIAL = {
    "msgRateIn": 40.0, "msgRateOut": 120.0, "bandwidthIn": 100000.0, "bandwidthOut": 300000.0, "memory": 80.0,
    "dynamic": True,
}  # fmt: skip


def test_a_resource_quota_is_refused() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        refused = {"reason": "This broker does not use resource quotas: it places bundles by their measured load"}
        for path in (QUOTAS, BUNDLE):
            assert await status_of(admin, "POST", path, QUOTA) == (405, refused)
            assert await admin.ok("GET", path) == INITIAL
        assert (await admin.ask("DELETE", BUNDLE)).status == 404

    administering(scenario)


def test_resource_quotas_that_java_stored_are_returned_and_removed() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        store, nodes = admin.service.store, "/loadbalance/resource-quota"
        await store.create(f"{nodes}/default", b"null", parents=True)  # Java stores an empty body so.
        assert await admin.ok("GET", QUOTAS) == INITIAL
        await store.overwrite(f"{nodes}/default", encode_json(QUOTA))
        assert await admin.ok("GET", QUOTAS) == QUOTA
        assert await admin.ok("GET", BUNDLE) == QUOTA
        await store.create(f"{nodes}/t1/n/0x00000000_0x80000000", encode_json(QUOTA | {"memory": 7.0}), parents=True)
        assert (await admin.ok("GET", BUNDLE))["memory"] == 7.0
        assert await status_of(admin, "DELETE", BUNDLE) == (204, None)
        assert await admin.ok("GET", BUNDLE) == QUOTA

    administering(scenario)


def test_a_range_that_is_not_a_bundle_is_refused() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        text = "Invalid upper boundary for bundle t1/n/0x00000000_0x90000000."
        text += " Expected upper boundary of t1/n/0x00000000_0x80000000"
        for method in ("GET", "POST", "DELETE"):
            where = f"{QUOTAS}/t1/n/0x00000000_0x90000000"
            assert await status_of(admin, method, where, QUOTA) == (412, {"reason": text})

    administering(scenario)
