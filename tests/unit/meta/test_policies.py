"""What JSON values policies may have: the conversions that Jackson does, and those that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from bkctl.meta.policies import LONG_MAX, InvalidPolicy, typed
from tests.broker.admin import Admin, administering

NAMESPACE = "/admin/v2/namespaces/public/default"
PARTITIONS = "/admin/v2/persistent/public/default/pt/partitions"


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("long", "10240", 10240), ("long", " -5 ", -5), ("long", "+7", 7), ("long", str(LONG_MAX), LONG_MAX),
        ("int", 5.9, 5), ("int", -5.9, -5), ("double", "1.5e3", 1500.0), ("double", "2", 2.0), ("double", 2, 2.0),
        ("bool", "true", True), ("bool", "False", False), ("bool", 1, True), ("bool", 0, False),
        ("str", 7, "7"), ("str", True, "true"), ("str", 1.5, "1.5"),
    ],
)  # fmt: skip
def test_a_scalar_of_another_json_type_is_converted(kind: str, given: Any, expected: Any) -> None:
    found = typed(kind, given, "it")
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("long", str(LONG_MAX + 1)), ("long", "1_0"), ("long", "0x10"), ("long", "1.5"), ("long", "ten"), ("int", True),
        ("long", "9" * 5000), ("long", "\u0661"), ("int", float("inf")), ("int", float("nan")), ("int", 2**31),
        ("int", [1]), ("double", "1e999"), ("double", "x"), ("double", False), ("bool", "yes"), ("bool", 1.0),
        ("bool", {}), ("str", {}), ("str", ["a"]), ("str", None),
    ],
)  # fmt: skip
def test_a_scalar_that_is_not_convertible_is_refused(kind: str, given: Any) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        typed(kind, given, "it")
    assert refused.value.status == 400


def test_numeric_strings_in_a_backlog_quota_and_as_partitions_are_accepted() -> None:
    async def scenario(admin: Admin) -> None:
        quota = {"limit": "10240", "policy": "producer_request_hold"}
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota", quota)
        stored = (await admin.ok("GET", f"{NAMESPACE}/backlogQuotaMap"))["destination_storage"]
        assert (stored["limit"], stored["limitSize"]) == (10240, 10240)
        await admin.ok("PUT", PARTITIONS, "2")
        await admin.ok("POST", PARTITIONS, "3")
        assert (await admin.ok("GET", PARTITIONS))["partitions"] == 3
        assert (await admin.ask("POST", PARTITIONS, "many")).status == 400

    administering(scenario)
