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


def test_a_bookie_is_in_one_group_and_an_empty_group_is_removed() -> None:
    async def scenario(admin: Admin) -> None:
        racks, info = "/admin/v2/bookies/racks-info", {"rack": "/east", "hostname": "h"}
        assert (await admin.ask("GET", f"{racks}/b:3181")).status == 404
        assert (await admin.ask("POST", f"{racks}/b:3181", info)).body == {
            "reason": "Bookie 'group' parameters is missing"
        }
        for group in ("one", "two"):
            await admin.ok("POST", f"{racks}/b:3181?group={group}", info)
        assert await admin.ok("GET", racks) == {"two": {"b:3181": info}}
        assert await admin.ok("GET", f"{racks}/b:3181") == info
        await admin.ok("DELETE", f"{racks}/b:3181")
        assert await admin.ok("GET", racks) == {}
        assert (await admin.ask("DELETE", f"{racks}/b:3181")).status == 404

    administering(scenario, bookies=0)


def test_bookies_are_listed_in_order() -> None:
    async def scenario(admin: Admin) -> None:
        found = await admin.ok("GET", "/admin/v2/bookies/all")
        assert found == {"bookies": [{"bookieId": f"b{number}:3181"} for number in range(3)]}

    administering(scenario, bookies=3)
