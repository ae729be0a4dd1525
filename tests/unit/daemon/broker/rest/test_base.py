"""Names and values that no request may have: invalid names, escapes, long numbers, deep nesting."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A

TOPIC = "/admin/v2/persistent/public/default/t"
DIGITS = "9" * 5000
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


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", f"{TOPIC}/subscription/s/skip/{DIGITS}"),
        ("GET", f"{TOPIC}/messageid/{DIGITS}"),
        ("GET", f"/admin/v2/schemas/public/default/t/schema/{DIGITS}"),
        ("POST", f"{TOPIC}/subscription/s/expireMessages/{DIGITS}"),
    ],
)
def test_a_path_with_a_number_of_5000_digits_is_not_found(method: str, target: str) -> None:
    async def scenario(admin: Admin) -> None:
        assert (await admin.ask(method, target)).status == 404

    administering(scenario)


@pytest.mark.parametrize(
    "target",
    ["namespaces/public/default/retention", "namespaces/public/default/messageTTL", "tenants/x", "namespaces/public/n"],
)
@pytest.mark.parametrize("raw", [DIGITS, f'{{"limit": {DIGITS}}}', f"[{DIGITS}]", "[" * 500_000], ids=lambda r: r[:6])
def test_a_body_with_a_number_of_5000_digits_or_deep_nesting_is_400(target: str, raw: str) -> None:
    async def scenario(admin: Admin) -> None:
        method = "PUT" if target.endswith(("x", "/n")) else "POST"
        assert (await admin.ask(method, f"/admin/v2/{target}", raw=raw.encode())).status == 400

    administering(scenario)


def test_a_rate_of_4000_digits_is_400() -> None:
    async def scenario(admin: Admin) -> None:
        answer = await admin.ask(
            "POST",
            "/admin/v2/namespaces/public/default/persistence",
            raw=(
                '{"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,'
                f' "managedLedgerMaxMarkDeleteRate": {"9" * 4000}}}'
            ).encode(),
        )
        assert answer.status == 400

    administering(scenario)


def paths(name: str) -> list[tuple[str, object]]:
    quoted = quote(name, safe="")
    return [
        (f"{A}/persistent/public/default/{quoted}", None),
        (f"{A}/persistent/public/default/p{quoted}/partitions", 1),
        (f"{A}/persistent/public/default/base/subscription/{quoted}", None),
    ]


def test_tenants_namespaces_and_clusters_with_other_characters_are_refused() -> None:
    async def scenario(admin: Admin) -> None:
        for name in ENTITIES:
            for kind in ("tenants", "namespaces/public", "clusters"):
                answer = await admin.ask("PUT", f"{A}/{kind}/{quote(name, safe='')}", {"serviceUrl": "http://x"})
                assert answer.status == 412, (kind, name)
                assert "name is not valid" in answer.body["reason"]

    administering(scenario)


def test_topics_and_subscriptions_with_control_characters_are_created() -> None:
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
def test_names_that_are_path_elements_are_refused(name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"{A}/persistent/public/default/base")
        for kind in ("tenants", "namespaces/public", "clusters", "persistent/public/default"):
            assert (await admin.ask("PUT", f"{A}/{kind}/{name}", {"serviceUrl": "http://x"})).status == 412
        assert (await admin.ask("PUT", f"{A}/persistent/public/default/base/subscription/{name}")).status == 412

    administering(scenario)
