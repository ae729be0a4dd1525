"""Configuration that is changed while brokers run, and what this broker has not, by REST; refusals are Java's."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from bkdaemon.broker.cluster.dynamic import DYNAMIC, take
from bkdaemon.broker.rules import Rate

from tests.broker.admin import Admin, administering

CONFIGURATION = "/admin/v2/brokers/configuration"
TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
NAMESPACE = "/admin/v2/namespaces/public/default"


def test_a_key_is_changed_held_to_and_given_back() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        assert await admin.ok("GET", CONFIGURATION) == list(DYNAMIC)
        assert await admin.ok("GET", f"{CONFIGURATION}/values") == {}
        await admin.ok("POST", f"{CONFIGURATION}/maxPublishRatePerTopicInMessages/40")
        assert await admin.ok("GET", f"{CONFIGURATION}/values") == {"maxPublishRatePerTopicInMessages": "40"}
        assert (await admin.ok("GET", f"{CONFIGURATION}/runtime"))["maxPublishRatePerTopicInMessages"] == "40"
        assert topic.rules.publish_rate == Rate(40)
        await admin.ok("POST", f"{CONFIGURATION}/allowAutoTopicCreation/false")
        await admin.ok("POST", f"{CONFIGURATION}/subscriptionTypesEnabled/Exclusive,Shared")
        assert topic.rules.subscription_types == {"Exclusive", "Shared"}
        assert not topic.rules.auto_create_topic
        assert not topic.ledger.settings.skip_lost
        await admin.ok("POST", f"{CONFIGURATION}/autoSkipNonRecoverableData/true")
        assert topic.ledger.settings.skip_lost
        await admin.ok("DELETE", f"{CONFIGURATION}/autoSkipNonRecoverableData")
        assert not topic.ledger.settings.skip_lost
        for key in ("maxPublishRatePerTopicInMessages", "allowAutoTopicCreation", "allowAutoTopicCreation"):
            await admin.ok("DELETE", f"{CONFIGURATION}/{key}")
        assert topic.rules.auto_create_topic
        assert await admin.ok("GET", f"{CONFIGURATION}/values") == {"subscriptionTypesEnabled": "Exclusive,Shared"}

    administering(scenario)


def test_a_text_that_is_no_truth_value_is_read_as_false_with_a_warning_as_java_reads_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        text = '{"key/123":"https://example.com/"}'
        assert topic.rules.auto_create_subscription
        await admin.ok("POST", f"{CONFIGURATION}/allowAutoSubscriptionCreation/{quote(text, safe='')}")
        assert await admin.ok("GET", f"{CONFIGURATION}/values") == {"allowAutoSubscriptionCreation": text}
        assert not topic.rules.auto_create_subscription
        assert "is neither true nor false: it is read as false" in caplog.text
        await admin.ok("POST", f"{CONFIGURATION}/allowAutoSubscriptionCreation/TRUE")
        assert topic.rules.auto_create_subscription

    administering(scenario)


def test_what_cannot_be_changed_is_refused() -> None:
    async def scenario(admin: Admin) -> None:
        for key, text, why in (
            ("clusterName", "x", "Can't update non-dynamic configuration"),
            ("nosuch", "1", "Can't update non-dynamic configuration"),
            ("maxTopicsPerNamespace", "many", "Invalid dynamic-config value"),
            ("defaultNumPartitions", "0", "Invalid dynamic-config value"),
        ):
            answer = await admin.ask("POST", f"{CONFIGURATION}/{key}/{text}")
            assert answer.status == 412
            assert answer.body["reason"].startswith(why)
        answer = await admin.ask("DELETE", f"{CONFIGURATION}/nosuch")
        assert (answer.status, answer.body) == (412, {"reason": "Can't delete non-dynamic configuration"})
        assert await admin.ok("GET", f"{CONFIGURATION}/values") == {}

    administering(scenario)


def test_what_another_broker_stored_is_taken_as_far_as_it_means_something() -> None:
    async def scenario(admin: Admin) -> None:
        texts = b'{"maxTopicsPerNamespace":"many","brokerShutdownTimeoutMs":"1234","superUserRoles":"me"}'
        await admin.ok("POST", f"{CONFIGURATION}/maxTopicsPerNamespace/3")
        node = await admin.service.store.get("/admin/configuration")
        await admin.service.store.set("/admin/configuration", texts, node.stat.version)
        await take(admin.service)
        assert admin.service.config.shutdown_ms == 1234
        assert admin.service.config.topics_per_namespace_max == 0
        assert (await admin.ok("GET", f"{CONFIGURATION}/values"))["superUserRoles"] == "me"

    administering(scenario)


def test_what_an_operator_asks_daily() -> None:
    async def scenario(admin: Admin) -> None:
        assert await admin.ok("GET", "/admin/v2/brokers/health?topicVersion=V2") == "ok"
        assert await admin.ok("GET", "/admin/v2/brokers/version") == "4.0.7"
        assert (await admin.ask("GET", "/admin/v2/brokers/backlog-quota-check")).status == 204
        assert await admin.ok("GET", "/admin/v2/clusters/lab/failureDomains") == {}
        assert await admin.ok("GET", f"{NAMESPACE}/permissions") == {}
        assert await admin.ok("GET", f"{NAMESPACE}/subscriptionAuthMode") == "None"
        assert await admin.ok("GET", "/admin/v2/resourcegroups") == []
        answer = await admin.ask("GET", "/admin/v2/clusters/lab/namespaceIsolationPolicies")
        wanted = {"reason": "NamespaceIsolationPolicies for cluster lab does not exist"}
        assert (answer.status, answer.body) == (404, wanted)

    administering(scenario)


def test_offload_and_entry_filters_are_refused_with_a_reason() -> None:
    async def scenario(admin: Admin) -> None:
        assert (await admin.ask("PUT", f"{PATH}/compaction")).status == 404
        await admin.topic(TOPIC)
        answer = await admin.ask("PUT", f"{PATH}/offload", {"ledgerId": 1, "entryId": 1})
        assert answer.status == 405
        assert answer.body["reason"].startswith("This broker has no offload")
        for what in ("compaction", "offload"):
            assert (await admin.ok("GET", f"{PATH}/{what}"))["status"] == "NOT_RUN"
        answer = await admin.ask("POST", f"{NAMESPACE}/offloadPolicies", 5)
        assert (answer.status, "offloadPolicies" in answer.body["reason"]) == (405, True)
        assert (await admin.ask("GET", f"{NAMESPACE}/offloadPolicies")).data == b""

    administering(scenario)
