"""Rates of a namespace in the REST interface: each policy has one for every cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT, A, status_of

NAMESPACE = f"{A}/namespaces/{DEFAULT}"
DISPATCH = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 6,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


@pytest.mark.parametrize(
    ("path", "keys", "rate"),
    [
        ("publishRate", ["publishMaxMessageRate"], {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": 6}),
        ("dispatchRate", ["topicDispatchRate", "clusterDispatchRate"], DISPATCH),
        ("subscriptionDispatchRate", ["subscriptionDispatchRate"], DISPATCH),
        ("subscribeRate", ["clusterSubscribeRate"], {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 9}),
    ],
)
def test_a_rate_is_set_and_removed_for_this_cluster_only(path: str, keys: list[str], rate: dict[str, Any]) -> None:
    async def scenario(admin: Admin) -> None:
        namespaces, url = admin.service.backend.meta.namespaces, f"{NAMESPACE}/{path}"
        far = {key: {"far": rate} for key in keys}
        await namespaces.update_policies(DEFAULT, lambda old: old | far)
        assert await status_of(admin, "GET", url) == (200, None)
        assert await status_of(admin, "POST", url, rate) == (204, None)
        assert await admin.ok("GET", url) == rate
        stored = await namespaces.policies(DEFAULT)
        assert {key: stored[key] for key in keys} == {key: {"far": rate, "lab": rate} for key in keys}
        assert await status_of(admin, "DELETE", url) == (204, None)
        stored = await namespaces.policies(DEFAULT)
        assert {key: stored[key] for key in keys} == far

    administering(scenario, bookies=0)


def test_an_open_topic_follows_the_rates_of_its_namespace() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("persistent://public/default/t")
        await admin.ok("POST", f"{NAMESPACE}/dispatchRate", DISPATCH)
        await admin.ok("POST", f"{NAMESPACE}/publishRate", {"publishThrottlingRateInMsg": 7})
        assert (topic.rules.dispatch_rate.messages, topic.rules.publish_rate.messages) == (5, 7)
        await admin.ok("DELETE", f"{NAMESPACE}/dispatchRate")
        assert (topic.rules.dispatch_rate.limits, topic.rules.publish_rate.limits) == (False, True)

    administering(scenario)


def test_a_rate_without_a_body_removes_it_and_one_that_is_not_a_number_is_400() -> None:
    async def scenario(admin: Admin) -> None:
        url = f"{NAMESPACE}/publishRate"
        await admin.ok("POST", url, {"publishThrottlingRateInMsg": 7})
        assert (await admin.ask("POST", url, {"publishThrottlingRateInMsg": "x"})).status == 400
        assert (await admin.ok("GET", url))["publishThrottlingRateInMsg"] == 7
        assert await status_of(admin, "POST", url) == (204, None)
        assert await status_of(admin, "GET", url) == (200, None)

    administering(scenario, bookies=0)


def test_the_rate_of_replication_is_refused_and_removed_if_java_stored_it() -> None:
    async def scenario(admin: Admin) -> None:
        url = f"{NAMESPACE}/replicatorDispatchRate"
        refused = {"reason": "This broker does not replicate: replicatorDispatchRate is not enforced"}
        assert await status_of(admin, "POST", url, DISPATCH) == (405, refused)
        assert await status_of(admin, "GET", url) == (200, None)
        namespaces, rate = admin.service.backend.meta.namespaces, {"replicatorDispatchRate": {"lab": DISPATCH}}
        await namespaces.update_policies(DEFAULT, lambda old: old | rate)
        assert await admin.ok("GET", url) == DISPATCH
        assert await status_of(admin, "DELETE", url) == (204, None)
        assert await status_of(admin, "GET", url) == (200, None)

    administering(scenario, bookies=0)
