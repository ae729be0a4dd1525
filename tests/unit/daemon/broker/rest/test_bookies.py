"""Racks of bookies in the REST interface."""

from __future__ import annotations

from tests.broker.admin import Admin, administering


def test_invalid_roles_and_racks_are_refused() -> None:
    async def scenario(admin: Admin) -> None:
        tenant = {"adminRoles": ["a", " b"], "allowedClusters": ["lab"]}
        for method, name in (("PUT", "new"), ("POST", "public")):
            answer = await admin.ask(method, f"/admin/v2/tenants/{name}", tenant)
            told = {"reason": "AdminRoles contains whitespace in the beginning or end."}
            assert (answer.status, answer.body) == (412, told)
        await admin.ok("PUT", "/admin/v2/tenants/new", tenant | {"adminRoles": ["a", "b"]})
        rack = "/admin/v2/bookies/racks-info/b:3181?group=g"
        answer = await admin.ask("POST", rack, {"rack": "/east/r1"})
        assert (answer.status, answer.body["reason"][:35]) == (412, "Bookie 'rack' parameter is invalid,")
        await admin.ok("POST", rack, {"rack": "/east/"})

    administering(scenario)
