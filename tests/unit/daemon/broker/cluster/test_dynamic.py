"""Configuration that is changed while brokers run, and what this broker has not, by REST; refusals are Java's."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from bkdaemon.broker.cluster.dynamic import DYNAMIC, take
from bkdaemon.broker.rules import Rate

from tests.broker.admin import Admin, administering

CONFIGURATION = "/admin/v2/brokers/configuration"
TOPIC = "persistent://public/default/t"


def test_a_changed_key_takes_effect_until_it_is_deleted() -> None:
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


def test_a_value_that_is_not_a_boolean_is_false_with_a_warning_as_in_java(
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


def test_unknown_and_static_keys_and_invalid_values_are_refused() -> None:
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


def test_valid_values_that_another_broker_stored_take_effect() -> None:
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


def test_rules_of_open_topics_follow_dynamic_configuration() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        for key, value in (
            ("dispatcherMaxReadBatchSize", 7),
            ("dispatcherMaxReadSizeBytes", 8),
            ("dispatcherMaxRoundRobinBatchSize", 9),
            ("dispatchThrottlingOnBatchMessageEnabled", "true"),
            ("dispatchThrottlingOnNonBacklogConsumerEnabled", "false"),
            ("loadBalancerNamespaceMaximumBundles", 11),
            ("managedLedgerInactiveLedgerRolloverTimeSeconds", 12),
            ("maxConcurrentTopicLoadRequest", 1),
            ("strictlyVerifySubscriptionName", "true"),
            ("subscriptionKeySharedEnable", "false"),
            ("subscriptionRedeliveryTrackerEnabled", "false"),
        ):
            await admin.ok("POST", f"/admin/v2/brokers/configuration/{key}/{value}")
        rules, config = topic.rules, admin.service.config
        assert (rules.read_entries_max, rules.read_bytes_max, rules.slice_entries) == (7, 8, 9)
        assert (rules.dispatch_by_entry, rules.dispatch_caught_up, rules.strict_subscription_names) == (
            True,
            False,
            True,
        )
        assert (rules.key_shared, rules.counts_redeliveries) == (False, False)
        assert (config.bundles_max, config.inactive_rollover_s) == (11, 12)
        found = await asyncio.gather(*(admin.topic(f"{TOPIC}{i}") for i in range(3)))
        assert len(found) == 3

    administering(scenario)
