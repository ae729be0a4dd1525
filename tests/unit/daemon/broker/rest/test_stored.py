"""Policies of other clusters, of authorization and of filters, and the old policy of schemas."""

from __future__ import annotations

import pytest

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A, status_of
from tests.unit.daemon.broker.rest.stored_namespace import STORED_NAMESPACE, STORED_TOPIC, prepare_stored


@pytest.mark.parametrize(
    ("path", "key", "value", "unset", "words"),
    [
        ("allowedClusters", "allowed_clusters", ["lab"], [], "does not replicate"),
        ("subscriptionAuthMode", "subscription_auth_mode", "Prefix", "None", "has no authorization"),
    ],
)
def test_a_policy_without_an_effect_is_refused_and_returned_if_java_stored_it(
    path: str, key: str, value: object, unset: object, words: str
) -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        url = f"{STORED_NAMESPACE}/{path}"
        answer = await admin.ask("POST", url, value)
        assert (answer.status, words in answer.body["reason"]) == (405, True)
        assert await admin.ok("GET", url) == unset
        await admin.service.backend.meta.namespaces.update_policies("t1/n", lambda old: old | {key: value})
        assert await admin.ok("GET", url) == value
        assert (await admin.ask("POST", f"{A}/namespaces/t1/none/{path}", value)).status == 404

    administering(scenario)


def test_entry_filters_are_refused_as_none_is_installed() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        for where in (f"{STORED_NAMESPACE}/entryFilters", f"{STORED_TOPIC}/entryFilters"):
            missing = {"reason": "Entry filter 'a' not found"}
            assert await status_of(admin, "POST", where, {"entryFilterNames": "a,b"}) == (400, missing)
            answer = await admin.ask("POST", where, {"entryFilterNames": " , "})
            assert (answer.status, "can't be empty" in answer.body["reason"]) == (400, True)

    administering(scenario)


def test_entry_filters_that_java_stored_are_removed() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        namespaces, url = admin.service.backend.meta.namespaces, f"{STORED_NAMESPACE}/entryFilters"
        await namespaces.update_policies("t1/n", lambda old: old | {"entryFilters": {"entryFilterNames": "a"}})
        assert await admin.ok("GET", url) == {"entryFilterNames": "a"}
        assert await status_of(admin, "DELETE", url) == (204, None)
        assert await admin.ok("GET", url) is None

    administering(scenario)


def test_the_old_auto_update_strategy_takes_effect_unless_the_new_one_is_set() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        old, new = (f"{STORED_NAMESPACE}/schema{name}CompatibilityStrategy" for name in ("AutoUpdate", ""))

        async def rules() -> str:
            topic = await admin.topic("t1/n/t")
            admin.service.backend.policies.forget("t1/n")
            return str((await admin.service.backend.rules(topic.name)).schema_compatibility)

        assert await status_of(admin, "GET", old) == (204, None)
        assert await rules() == "FULL"
        assert await status_of(admin, "PUT", old, "Backward") == (204, None)
        assert await admin.ok("GET", old) == "Backward"
        assert await rules() == "BACKWARD"
        assert await status_of(admin, "PUT", old, "AutoUpdateDisabled") == (204, None)
        assert await rules() == "ALWAYS_INCOMPATIBLE"
        await admin.ok("PUT", new, "FORWARD")
        assert await rules() == "FORWARD"
        assert (await admin.ask("PUT", old, "backwards")).status == 400
        await admin.ok("PUT", new, "UNDEFINED")
        assert await status_of(admin, "PUT", old) == (204, None)
        assert await rules() == "FULL"

    administering(scenario)
