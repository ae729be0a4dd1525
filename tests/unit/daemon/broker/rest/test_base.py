"""Requests with values that no policy has: long numbers in paths and bodies, deep nesting."""

from __future__ import annotations

import pytest

from tests.broker.admin import Admin, administering

TOPIC = "/admin/v2/persistent/public/default/t"
DIGITS = "9" * 5000


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
