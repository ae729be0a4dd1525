"""Policies that apply to a topic if neither it nor its namespace sets them."""

from __future__ import annotations

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import PERSISTENT, TOPIC


def test_applied_policies_are_those_of_broker_conf_by_default() -> None:
    quota = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
    inactive = {"maxInactiveDurationSeconds": 60, "deleteWhileInactive": True}
    java = {
        "retention": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        "messageTTL": 0,
        "backlogQuotaMap": {"destination_storage": quota, "message_age": quota},
        "deduplicationEnabled": False,
        "maxProducers": 0,
        "maxConsumers": 0,
        "maxUnackedMessagesOnConsumer": 50_000,
        "maxUnackedMessagesOnSubscription": 200_000,
        "delayedDelivery": {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
        "compactionThreshold": 0,
        "schemaCompatibilityStrategy": "FULL",
        "inactiveTopicPolicies": {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", **inactive},
        "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": True},
    }

    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        told = {path: await admin.ok("GET", f"{PERSISTENT}/t/{path}?applied=true") for path in java}
        assert told == java
        assert set(await admin.ok("GET", f"{PERSISTENT}/t/persistence?applied=true")) == {
            "bookkeeperEnsemble",
            "bookkeeperWriteQuorum",
            "bookkeeperAckQuorum",
            "managedLedgerMaxMarkDeleteRate",
        }
        assert await admin.ok("GET", f"{PERSISTENT}/t/maxProducers") is None
        await admin.ok("POST", "/admin/v2/namespaces/public/default/maxProducersPerTopic", 3)
        assert await admin.ok("GET", f"{PERSISTENT}/t/maxProducers?applied=true") == 3

    administering(scenario)
