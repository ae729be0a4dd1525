"""Policies of a topic that neither it nor its namespace sets: the values of broker.conf.

Source: PersistentTopicsBase.java, AbstractTopic.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from bkdaemon.broker.cluster.policies import inactivity_of, rules_of

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.config import BrokerConfig

QUOTA_KINDS: Final = ("destination_storage", "message_age")
UNDEFINED: Final = "UNDEFINED"


def is_said(value: Any) -> bool:
    """False for an empty policy, for which broker.conf applies."""
    return value is not None and value != {} and value != UNDEFINED


def of_broker(config: BrokerConfig, policies: Mapping[str, Any], topic: TopicName, key: str) -> Any:
    """Return a policy as broker.conf sets it; None if Java's broker returns nothing.

    Args:
        config: broker.conf.
        policies: the namespace's, which may have an older key with the same meaning.
        topic: whose policy it is.
        key: in a namespace's policies.
    """
    if key == "schema_compatibility_strategy":
        return rules_of(config, policies, topic).schema_compatibility
    if key == "inactive_topic_policies":
        found = inactivity_of(config, {})
        return {
            "inactiveTopicDeleteMode": found.mode,
            "maxInactiveDurationSeconds": found.after_s,
            "deleteWhileInactive": found.delete,
        }
    return _table(config).get(key)


def _table(config: BrokerConfig) -> dict[str, Any]:
    size = config.backlog_quota_size
    quota = {"limit": size, "limitSize": size, "limitTime": config.backlog_quota_s}
    return {
        "retention_policies": {
            "retentionTimeInMinutes": config.retention_minutes,
            "retentionSizeInMB": config.retention_mb,
        },
        "message_ttl_in_seconds": config.ttl_s,
        "persistence": {
            "bookkeeperEnsemble": config.ensemble_size,
            "bookkeeperWriteQuorum": config.write_quorum,
            "bookkeeperAckQuorum": config.ack_quorum,
            "managedLedgerMaxMarkDeleteRate": config.mark_delete_rate,
        },
        "backlog_quota_map": {kind: quota | {"policy": config.backlog_quota_policy} for kind in QUOTA_KINDS},
        "deduplicationEnabled": config.deduplication,
        "max_producers_per_topic": config.producers_max,
        "max_consumers_per_topic": config.consumers_max,
        "max_unacked_messages_per_consumer": config.unacked_per_consumer,
        "max_unacked_messages_per_subscription": config.unacked_per_subscription,
        "delayed_delivery_policies": {
            "tickTime": config.delayed_tick_ms,
            "active": config.delayed_delivery,
            "maxDeliveryDelayInMillis": config.delay_max_ms,
        },
        "compaction_threshold": config.compaction_threshold,
        "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": config.auto_subscribe},
    }
