"""Names that brokers accept and refuse; each row was seen at Java's broker 4.0.7, over REST and the binary protocol."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.broker.admin import Admin, administering

A = "/admin/v2"
ENTITIES = [
    "b\nx",
    "\x1b[31mred",
    "\x9b33m",
    "\x7f",
    "a b",
    " lead",
    "a\tb",
    "a\\b",
    "a%b",
    "ü",
    "  ",
    "a\u2028b",
    "a,b",
    "a<b>",
]
CONTROLS = ["b\nx", "\x1b[31mred", "\x9b33m", "\x7f", " lead", "trail ", "a\\b", "a\u2028b"]


def paths(name: str) -> list[tuple[str, object]]:
    quoted = quote(name, safe="")
    return [
        (f"{A}/persistent/public/default/{quoted}", None),
        (f"{A}/persistent/public/default/p{quoted}/partitions", 1),
        (f"{A}/persistent/public/default/base/subscription/{quoted}", None),
    ]


def test_tenants_namespaces_and_clusters_have_names_of_few_characters() -> None:
    async def scenario(admin: Admin) -> None:
        for name in ENTITIES:
            for kind in ("tenants", "namespaces/public", "clusters"):
                answer = await admin.ask("PUT", f"{A}/{kind}/{quote(name, safe='')}", {"serviceUrl": "http://x"})
                assert answer.status == 412, (kind, name)
                assert "name is not valid" in answer.body["reason"]

    administering(scenario)


def test_topics_and_subscriptions_may_have_control_characters() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"{A}/persistent/public/default/base")
        for name in CONTROLS:
            for path, body in paths(name):
                await admin.ok("PUT", path, body)
        told = await admin.ok("GET", f"{A}/persistent/public/default/base/subscriptions")
        assert sorted(told) == sorted(CONTROLS)

    administering(scenario)


@pytest.mark.parametrize("name", ["%00", "a%00b", "a%zz", "a%", "a%4", "%u0041"])
def test_nul_and_invalid_escapes_are_refused_in_paths(name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"{A}/persistent/public/default/base")
        for kind in ("tenants", "namespaces/public", "clusters"):
            assert (await admin.ask("PUT", f"{A}/{kind}/{name}", {})).status == 400
        for path, body in paths("NAME"):
            assert (await admin.ask("PUT", path.replace("NAME", name), body)).status == 400
        assert await admin.ok("GET", f"{A}/persistent/public/default") == ["persistent://public/default/base"]
        assert await admin.ok("GET", f"{A}/persistent/public/default/base/subscriptions") == []

    administering(scenario)


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_are_places_in_a_path_are_refused(name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"{A}/persistent/public/default/base")
        for kind in ("tenants", "namespaces/public", "clusters", "persistent/public/default"):
            assert (await admin.ask("PUT", f"{A}/{kind}/{name}", {"serviceUrl": "http://x"})).status == 412
        assert (await admin.ask("PUT", f"{A}/persistent/public/default/base/subscription/{name}")).status == 412

    administering(scenario)
