"""Resource quotas of bundles in the REST interface."""

from __future__ import annotations

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


def test_resource_quotas_are_stored_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
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
