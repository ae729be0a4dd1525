"""The policies of a topic: those of its namespace if they are set, otherwise the values of broker.conf.

    policies key                        what it sets
    bookieAffinityGroup (local)         groups of bookies for new ledgers
    persistence                         quorums, mark-delete rate
    retention_policies                  minutes, MB; -1 for ever
    message_ttl_in_seconds              when unacknowledged messages expire for all subscriptions
    backlog_quota_map                   bytes or age of the slowest backlog, and the action beyond
    inactive_topic_policies             deletion of unused topics
    subscription_expiration_time_minutes, max_topics_per_namespace, is_allow_auto_update_schema,
    publishMaxMessageRate, topicDispatchRate, subscriptionDispatchRate, clusterSubscribeRate,
    deduplicationEnabled, autoTopicCreationOverride, autoSubscriptionCreationOverride, max_*, delayed_delivery_policies,
    compaction_threshold, schema_compatibility_strategy, schema_validation_enforced, subscription_types_enabled,
    dispatcherPauseOnAckStatePersistentEnabled

Policies are read again when they are older than POLICIES_AGE_MAX_S. Those of single topics (topic_policies) override
those of their namespace. Source: Policies.java, AbstractTopic.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bkinspect.topic_policies import Policies, TopicPolicyReader, policies_key

from bkctl.errors import NotFound
from bkctl.log.settings import FOR_EVER, LedgerSettings
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.policies import MESSAGE_SIZE_KEY, PAUSE_KEY, SUBSCRIPTIONS_KEY, merged
from bkctl.model.topic import TopicName
from bkdaemon.broker.config import MIB, BrokerConfig
from bkdaemon.broker.rules import Rate, TopicRules
from bkdaemon.broker.topic.migration import moved_to
from bkdaemon.broker.topic.system_topics import SYSTEM_TOPICS as EVENT_TOPICS
from bkdaemon.properties import words

POLICIES_AGE_MAX_S: Final = 5.0
MIGRATED_KEY: Final = "#migrated_to"
"""Key added to the policies of a namespace; its value is stored elsewhere."""
NAMESPACES_CACHED_MAX: Final = 1_000
SYSTEM_TOPICS: Final = ("__change_events", "__transaction_", "__consumer_offsets", "transaction_coordinator_assign")
SYSTEM_PREFIX: Final = "__"
TRANSACTION_TOPICS: Final = ("transaction_coordinator_assign", "__transaction_log_")
PENDING_ACKS: Final = "__transaction_pending_ack"
AFFINITY_KEY: Final = "bookieAffinityGroup"
"""Key of the local policies, added to the policies of a namespace."""
AUTO_UPDATE_STRATEGIES: Final = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""Compatibility strategies by the values of the older key schema_auto_update_compatibility_strategy."""
QUOTA_BYTES: Final = "destination_storage"
QUOTA_AGE: Final = "message_age"


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """Limits of a topic's backlog, -1 for unlimited, and the policy for exceeding each.

    A policy is producer_request_hold, producer_exception or consumer_backlog_eviction.
    """

    size: int
    age_s: int
    policy: str
    age_policy: str = "producer_request_hold"


@dataclass(frozen=True, slots=True)
class Inactivity:
    """Whether an unused topic is deleted, in which mode, and after what time."""

    delete: bool
    mode: str
    after_s: int


class TopicPolicies:
    """The policies of all topics of this broker."""

    def __init__(
        self, config: BrokerConfig, namespaces: NamespaceStore, topics: TopicPolicyReader | None = None
    ) -> None:
        self._config = config
        self._namespaces = namespaces
        self._topics = topics
        self._known: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._of_topics: dict[str, tuple[float, Mapping[str, Policies]]] = {}

    async def of(self, namespace: str) -> Mapping[str, Any]:
        """Returns the policies of a namespace.

        Raises:
            NotFound: the namespace does not exist.
        """
        now = asyncio.get_running_loop().time()
        known = self._known.get(namespace)
        if known is not None and now - known[0] < POLICIES_AGE_MAX_S:
            return known[1]
        policies = await self._namespaces.policies(namespace)
        group = (await self._namespaces.local_policies(namespace)).get(AFFINITY_KEY)
        if group:
            policies = policies | {AFFINITY_KEY: group}
        elsewhere = await moved_to(self._namespaces.store, self._config.cluster, namespace)
        if elsewhere:
            policies = policies | {MIGRATED_KEY: elsewhere}
        if policies.get("deleted"):  # read again each time: another broker may create it again at any moment
            self._known.pop(namespace, None)
            return policies
        if len(self._known) >= NAMESPACES_CACHED_MAX:
            self._known.clear()
        self._known[namespace] = (now, policies)
        return policies

    def take_config(self, config: BrokerConfig) -> None:
        """Replace the defaults of unset policies."""
        self._config = config

    def forget(self, namespace: str) -> None:
        """Drops cached policies of a namespace, because this broker has changed them."""
        self._known.pop(namespace, None)
        self._of_topics.pop(namespace, None)

    async def of_topic(self, topic: TopicName, *, everywhere: bool = False) -> Policies | None:
        """Returns a topic's own policies, or those for all clusters, by the names in events; None if it has none."""
        if self._topics is None or topic.local.startswith(SYSTEM_PREFIX):
            return None
        namespace, now = topic.namespace_name, asyncio.get_running_loop().time()
        known = self._of_topics.get(namespace)
        if known is None or now - known[0] >= POLICIES_AGE_MAX_S:
            if len(self._of_topics) >= NAMESPACES_CACHED_MAX:
                self._of_topics.clear()
            known = self._of_topics[namespace] = (now, await self._topics.of(namespace))
        return known[1].get(policies_key(str(topic.partitioned), everywhere=everywhere))

    async def ledger_settings(self, topic: TopicName) -> LedgerSettings:
        """Returns the settings of a topic's managed ledger."""
        settings = settings_of(self._config, await self._of(topic))
        if topic.local.startswith(SYSTEM_PREFIX) and not always_compacted(
            topic
        ):  # a message that was sent once is kept
            return replace(settings, retention_s=FOR_EVER, retention_bytes=FOR_EVER)
        return settings

    async def rules(self, topic: TopicName) -> TopicRules:
        """Return the rules of a topic."""
        return rules_of(self._config, await self._of(topic), topic)

    async def ttl_s(self, topic: TopicName) -> int:
        """Returns the seconds after which a message expires, 0 for never."""
        found = (await self._of(topic)).get("message_ttl_in_seconds")
        return int(self._config.ttl_s if found is None else found)

    async def snapshot_s(self, topic: TopicName) -> int:
        """Returns the seconds between snapshots of the producers' sequence ids."""
        found = (await self._of(topic)).get("deduplicationSnapshotIntervalSeconds")
        return int(self._config.deduplication_snapshot_s if found is None else found)

    async def backlog_quota(self, topic: TopicName) -> BacklogQuota:
        """Returns the backlog quota of a topic."""
        return quota_of(self._config, await self._of(topic))

    async def subscription_expiry_minutes(self, topic: TopicName) -> int:
        """Returns the minutes after which an unused subscription is deleted, 0 for never."""
        found = (await self._of(topic)).get("subscription_expiration_time_minutes")
        return int(self._config.expire_subscriptions_minutes if found is None else found)

    async def inactivity(self, topic: TopicName) -> Inactivity:
        """Returns whether and when an unused topic is deleted."""
        return inactivity_of(self._config, await self._of(topic))

    async def topics_max(self, namespace: str) -> int:
        """Returns the maximum number of topics of a namespace, 0 for unlimited."""
        found = (await self.of(namespace)).get("max_topics_per_namespace")
        return int(self._config.topics_per_namespace_max if found is None else found)

    async def _of(self, topic: TopicName) -> Mapping[str, Any]:
        try:
            policies = await self.of(topic.namespace_name)
        except NotFound:
            return {}
        for everywhere in (True, False):  # policies for this cluster override those for all
            own = await self.of_topic(topic, everywhere=everywhere)
            policies = policies if own is None else merged(policies, own)
        return policies


def settings_of(config: BrokerConfig, policies: Mapping[str, Any]) -> LedgerSettings:
    """Returns the settings of broker.conf, overridden by the policies of a namespace."""
    settings = config.ledger_settings
    persistence = policies.get("persistence") or {}
    if persistence.get("bookkeeperEnsemble"):
        settings = replace(
            settings,
            ensemble_size=int(persistence["bookkeeperEnsemble"]),
            write_quorum_size=int(persistence.get("bookkeeperWriteQuorum", settings.write_quorum_size)),
            ack_quorum_size=int(persistence.get("bookkeeperAckQuorum", settings.ack_quorum_size)),
        )
    if persistence.get("managedLedgerMaxMarkDeleteRate"):
        settings = replace(settings, mark_delete_rate=float(persistence["managedLedgerMaxMarkDeleteRate"]))
    settings = replace(settings, groups=config.isolation_groups, secondary_groups=config.secondary_isolation_groups)
    affinity = policies.get(AFFINITY_KEY) or {}
    if affinity.get("bookkeeperAffinityGroupPrimary"):
        settings = replace(
            settings,
            groups=words(affinity["bookkeeperAffinityGroupPrimary"]),
            secondary_groups=words(affinity.get("bookkeeperAffinityGroupSecondary") or ""),
        )
    retention = policies.get("retention_policies")
    if retention:
        minutes, size_mb = retention.get("retentionTimeInMinutes", 0), retention.get("retentionSizeInMB", 0)
        settings = replace(
            settings,
            retention_s=minutes * 60.0 if minutes > 0 else float(minutes),
            retention_bytes=size_mb * MIB if size_mb > 0 else int(size_mb),
        )
    return settings


def quota_of(config: BrokerConfig, policies: Mapping[str, Any]) -> BacklogQuota:
    """Returns the backlog quota of a namespace."""
    quotas = policies.get("backlog_quota_map") or {}
    size, age = quotas.get(QUOTA_BYTES), quotas.get(QUOTA_AGE)
    limit, age_s, default = config.backlog_quota_size, config.backlog_quota_s, config.backlog_quota_policy
    if size is not None:
        limit = int(size.get("limitSize", size.get("limit", -1)))
    if age is not None:
        age_s = int(age.get("limitTime", -1))
    return BacklogQuota(limit, age_s, (size or {}).get("policy", default), (age or {}).get("policy", default))


def inactivity_of(config: BrokerConfig, policies: Mapping[str, Any]) -> Inactivity:
    """Return the policy of inactive topics of a namespace."""
    found = policies.get("inactive_topic_policies") or {}
    default_s = config.delete_inactive_after_s or config.delete_inactive_every_s
    return Inactivity(
        bool(found.get("deleteWhileInactive", config.delete_inactive)),
        str(found.get("inactiveTopicDeleteMode", config.delete_inactive_mode)),
        int(found.get("maxInactiveDurationSeconds", default_s)),
    )


def always_compacted(topic: TopicName) -> bool:
    """True for a system topic, which is compacted after every change. Source: SystemTopic.java."""
    local = topic.partitioned.local
    return local in EVENT_TOPICS or local.startswith(TRANSACTION_TOPICS) or local.endswith(PENDING_ACKS)


def rules_of(config: BrokerConfig, policies: Mapping[str, Any], topic: TopicName) -> TopicRules:
    """Return the rules of a topic in a namespace with these policies."""
    creation = policies.get("autoTopicCreationOverride") or {}
    subscribing = policies.get("autoSubscriptionCreationOverride") or {}
    delayed = policies.get("delayed_delivery_policies") or {}
    system = topic.local.startswith(SYSTEM_TOPICS)
    kind = creation.get("topicType", config.auto_create_type)
    partitions = int(creation.get("defaultNumPartitions", config.default_partitions)) if kind == "partitioned" else 0
    auto_update = policies.get("is_allow_auto_update_schema")
    pause, own_size = policies.get(PAUSE_KEY), int(policies.get(MESSAGE_SIZE_KEY) or 0)
    types = policies.get("subscription_types_enabled") or config.subscription_types.split(",")

    return TopicRules(
        served=config.persistent_topics if topic.persistent else config.nonpersistent_topics,
        auto_create_topic=not policies.get("deleted")
        and (system or bool(creation.get("allowAutoTopicCreation", config.auto_create))),
        auto_partitions=0 if system or topic.partition >= 0 else partitions,
        auto_create_subscription=bool(subscribing.get("allowAutoSubscriptionCreation", config.auto_subscribe)),
        deduplication=not system and bool(policies.get("deduplicationEnabled", config.deduplication)),
        deduplication_entries=config.deduplication_entries,
        deduplication_producers=config.deduplication_producers,
        batch_index_acks=config.batch_index_acks,
        encryption_required=not system and bool(policies.get("encryption_required") or config.encryption_required),
        migrated_to=policies.get(MIGRATED_KEY),
        stamp_time="AppendBrokerTimestampMetadataInterceptor" in config.entry_interceptors,
        stamp_index="AppendIndexMetadataInterceptor" in config.entry_interceptors,
        read_entries_max=config.read_entries_max,
        read_bytes_max=config.read_bytes_max,
        slice_entries=config.slice_entries,
        look_ahead_per_consumer_max=config.look_ahead_per_consumer,
        look_ahead_per_subscription_max=config.look_ahead_per_subscription,
        consistent_hashing=config.consistent_hashing,
        ring_points=config.ring_points,
        failover_by_ring=config.failover_by_ring,
        strict_subscription_names=config.strict_subscription_names,
        system_cursors=config.system_cursors,
        key_shared=config.key_shared,
        counts_redeliveries=config.counts_redeliveries,
        subscription_types=frozenset(name.strip() for name in types if name.strip()),
        message_size_max=own_size if own_size < config.max_message_size else 0,
        pause_on_ack_state=config.pause_on_ack_state if pause is None else bool(pause),
        failover_delay_ms=config.failover_delay_ms,
        delayed_delivery=bool(delayed.get("active", config.delayed_delivery)),
        delayed_tick_ms=int(delayed.get("tickTime", config.delayed_tick_ms)),
        delayed_strict=config.delayed_strict,
        delay_max_ms=int(delayed.get("maxDeliveryDelayInMillis", config.delay_max_ms)),
        fixed_delay_entries=config.fixed_delay_entries,
        schema_compatibility=compatibility_of(config, policies, topic),
        schema_validation_enforced=bool(policies.get("schema_validation_enforced", False)) or config.schema_enforced,
        schema_auto_update=config.schema_auto_update if auto_update is None else bool(auto_update),
        always_compacted=always_compacted(topic),
        compaction_keeps_unkeyed=config.compaction_keeps_unkeyed,
        compaction_keeps_stamps=config.expose_entry_metadata,
        **limits_of(config, policies, topic),
        **({} if topic.local.startswith(SYSTEM_PREFIX) else rates_of(config, policies)),
    )


def compatibility_of(config: BrokerConfig, policies: Mapping[str, Any], topic: TopicName) -> str:
    """Return the compatibility strategy of a topic's schemas; that of system topics is set in broker.conf only."""
    if always_compacted(topic):
        return config.system_schema_compatibility
    found = str(policies.get("schema_compatibility_strategy", "UNDEFINED"))
    if found == "UNDEFINED":
        found = AUTO_UPDATE_STRATEGIES.get(str(policies.get("schema_auto_update_compatibility_strategy")), found)
    return config.schema_compatibility if found == "UNDEFINED" else found


def limits_of(config: BrokerConfig, policies: Mapping[str, Any], topic: TopicName) -> dict[str, Any]:
    """Returns the maxima of a topic by names in TopicRules; system topics have unlimited clients."""

    def limit(key: str, default: int) -> int:
        found = policies.get(key)
        return default if found is None else int(found)

    limits = {
        "unacked_per_consumer_max": limit("max_unacked_messages_per_consumer", config.unacked_per_consumer),
        "unacked_per_subscription_max": limit("max_unacked_messages_per_subscription", config.unacked_per_subscription),
        "subscriptions_max": limit("max_subscriptions_per_topic", config.subscriptions_max),
        "compaction_threshold": limit("compaction_threshold", config.compaction_threshold),
    }
    if always_compacted(topic):
        return limits
    return limits | {
        "producers_max": limit("max_producers_per_topic", config.producers_max),
        "consumers_max": limit("max_consumers_per_topic", config.consumers_max),
        "consumers_per_subscription_max": limit(
            "max_consumers_per_subscription", config.consumers_per_subscription_max
        ),
        "same_address_producers_max": config.same_address_producers_max,
        "same_address_consumers_max": config.same_address_consumers_max,
    }


def rates_of(config: BrokerConfig, policies: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rate limits of a topic, by names in TopicRules."""

    def told(key: str) -> Mapping[str, Any] | None:
        found = policies.get(key)
        if isinstance(found, Mapping) and isinstance(found.get(config.cluster), Mapping):
            found = found[config.cluster]  # a namespace has one for each cluster, a topic just one
        return found if isinstance(found, Mapping) and found else None

    def dispatch(key: str, messages: int, size: int) -> Rate:
        found = told(key)
        return Rate(messages, size, 1, config.dispatch_relative) if found is None else dispatch_rate(found)

    publish, subscribe = told("publishMaxMessageRate"), told("clusterSubscribeRate")
    return {
        "dispatch_caught_up": config.dispatch_caught_up,
        "dispatch_by_entry": config.dispatch_by_entry,
        "caught_up_entries": config.caught_up_entries,
        "publish_rate": Rate(config.publish_messages, config.publish_bytes)
        if publish is None
        else Rate(publish.get("publishThrottlingRateInMsg", 0), publish.get("publishThrottlingRateInByte", 0)),
        "dispatch_rate": dispatch("topicDispatchRate", config.topic_dispatch_messages, config.topic_dispatch_bytes),
        "subscription_rate": dispatch(
            "subscriptionDispatchRate", config.subscription_dispatch_messages, config.subscription_dispatch_bytes
        ),
        "subscription_rates": {
            name: dispatch_rate(found["dispatchRate"])
            for name, found in (policies.get(SUBSCRIPTIONS_KEY) or {}).items()
            if found.get("dispatchRate")
        },
        "subscribe_rate": Rate(config.subscribes_per_consumer, 0, config.subscribe_period_s)
        if subscribe is None
        else Rate(
            int(subscribe.get("subscribeThrottlingRatePerConsumer", 0)),
            0,
            int(subscribe.get("ratePeriodInSecond") or 30),
        ),
    }


def dispatch_rate(found: Mapping[str, Any]) -> Rate:
    """Returns the Rate of a stored DispatchRate."""
    return Rate(
        int(found.get("dispatchThrottlingRateInMsg", 0)),
        int(found.get("dispatchThrottlingRateInByte", 0)),
        int(found.get("ratePeriodInSecond") or 1),
        bool(found.get("relativeToPublishRate", False)),
    )
