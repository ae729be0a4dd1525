"""broker.conf: Pulsar's own keys and defaults, read into one frozen BrokerConfig.

The file is read as bk_server.conf is (bkdaemon.properties). Keys that this broker does not support are kept in
`unknown` and not refused: one file serves Java's brokers and this one. The broker refuses to start with keys that
protect a cluster and are not supported (bkctl.model.security_keys).
Source: ServiceConfiguration.java, broker.conf of Pulsar 4.0.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from bkctl.errors import UsageError
from bkctl.log.settings import LedgerSettings
from bkctl.meta.policies import INACTIVE_MODES, QUOTA_POLICIES, STRATEGIES, SUBSCRIPTION_TYPES
from bkctl.meta.uri import parse_uri
from bkctl.model.ledger import DigestType, check_quorums
from bkctl.model.secret_keys import masked
from bkctl.model.security_keys import BROKER
from bkdaemon.broker.config_keys import warnings_of
from bkdaemon.broker.metadata_place import PULSAR_DRIVER, Place, check_configuration_store, ledgers_of, place_of
from bkdaemon.properties import (
    check_bounds,
    config_of,
    java_flag,
    java_int,
    java_long,
    key,
    limit,
    long_limit,
    number,
    one_of,
    port,
    read_server_properties,
    words,
)

MIB: Final = 1 << 20
GIB: Final = 1 << 30
NEVER_S: Final = 1e9
MESSAGE_SIZE_MAX: Final = (1 << 31) - 1 - 10 * 1024
"""Java adds the size of a frame's header to maxMessageSize, in 32 bits."""
TOPIC_TYPES: Final = ("non-partitioned", "partitioned")
SPLIT_ALGORITHMS: Final = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)

logger = logging.getLogger(__name__)


def _digest(value: str) -> DigestType:
    word = {"MAC": "HMAC"}.get(value.upper(), value.upper())
    try:
        return DigestType[word]
    except KeyError:
        raise ValueError("no digest type: CRC32C, CRC32, MAC, DUMMY") from None


def _algorithms(value: str) -> tuple[str, ...]:
    found = words(value)
    if not set(found) <= set(SPLIT_ALGORITHMS):
        raise ValueError(f"not some of {', '.join(SPLIT_ALGORITHMS)}")
    return found


def _subscription_types(value: str) -> str:
    unknown = set(words(value)) - set(SUBSCRIPTION_TYPES)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not one of {', '.join(SUBSCRIPTION_TYPES)}")
    return value


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration of a broker. Names and units follow the keys. `load_config` reads it from a file.

    Raises:
        UsageError: values that contradict each other.
    """

    # who and where
    cluster: str = key("clusterName", str, "")
    metadata_store_url: str = key("metadataStoreUrl", str, "")
    configuration_store_url: str = key("configurationMetadataStoreUrl", str, "")
    configuration_store_servers: str = key("configurationStoreServers", str, "")
    global_zookeeper_servers: str = key("globalZookeeperServers", str, "")
    zookeeper_servers: str = key("zookeeperServers", str, "")
    bookkeeper_uri: str = key("bookkeeperMetadataServiceUri", str, "")
    broker_port: int = key("brokerServicePort", port, 6650)
    web_port: int = key("webServicePort", port, 8080)
    bind_address: str = key("bindAddress", str, "0.0.0.0")
    advertised_address: str = key("advertisedAddress", str, "")
    session_timeout_ms: int = key("metadataStoreSessionTimeoutMillis", java_long, 30_000, least=1)
    zookeeper_session_timeout_ms: int = key("zooKeeperSessionTimeoutMillis", java_long, -1)
    shutdown_ms: int = key("brokerShutdownTimeoutMs", java_long, 60_000, least=0)

    # clients
    keep_alive_s: int = key("keepAliveIntervalSeconds", limit, 30)
    liveness_ms: int = key("connectionLivenessCheckTimeoutMillis", java_long, 5000, least=0)
    connections_max: int = key("brokerMaxConnections", limit, 0)
    connections_per_address_max: int = key("brokerMaxConnectionsPerIp", limit, 0)
    lookups_max: int = key("maxConcurrentLookupRequest", java_int, 50_000, least=1)
    topic_loads_max: int = key("maxConcurrentTopicLoadRequest", java_int, 5000, least=1)
    pattern_length_max: int = key("subscriptionPatternMaxLength", java_int, 50, least=0)
    pattern_evaluation: bool = key("enableBrokerSideSubscriptionPatternEvaluation", java_flag, True)
    consumer_metadata_max: int = key("maxConsumerMetadataSize", java_int, 1024, least=0)
    pending_sends_max: int = key("maxPendingPublishRequestsPerConnection", java_int, 1000, least=1)
    http_connections_max: int = key("maxHttpServerConnections", limit, 2048)
    http_head_bytes_max: int = key("httpMaxRequestHeaderSize", java_int, 8192, least=1)
    http_body_bytes_max: int = key("httpMaxRequestSize", java_long, -1, least=-1)
    # Java's is half of the memory outside of its heap, which Python has not; -1 is no limit at either
    publish_buffer_mb: int = key("maxMessagePublishBufferSizeInMB", java_int, 256, least=-1)
    stats_s: int = key("statsUpdateFrequencyInSecs", java_int, 60, least=1)

    # balancing
    load_balancer: bool = key("loadBalancerEnabled", java_flag, True)
    shedding: bool = key("loadBalancerSheddingEnabled", java_flag, True)
    shedding_threshold: int = key("loadBalancerBrokerThresholdShedderPercentage", java_int, 10, least=1, most=100)
    shedding_grace_minutes: int = key("loadBalancerSheddingGracePeriodMinutes", java_long, 30, least=0)
    shedding_minutes: int = key("loadBalancerSheddingIntervalMinutes", java_int, 1, least=1)
    overloaded_percentage: int = key("loadBalancerBrokerOverloadedThresholdPercentage", java_int, 85)
    auto_split: bool = key("loadBalancerAutoBundleSplitEnabled", java_flag, True)
    split_topics: int = key("loadBalancerNamespaceBundleMaxTopics", java_int, 1_000, least=1)
    split_sessions: int = key("loadBalancerNamespaceBundleMaxSessions", limit, 1_000)
    split_message_rate: int = key("loadBalancerNamespaceBundleMaxMsgRate", java_int, 30_000, least=1)
    split_mb: int = key("loadBalancerNamespaceBundleMaxBandwidthMbytes", java_int, 100, least=1)
    split_algorithm: str = key(
        "defaultNamespaceBundleSplitAlgorithm", one_of(*SPLIT_ALGORITHMS), "range_equally_divide"
    )
    split_algorithms: tuple[str, ...] = key("supportedNamespaceBundleSplitAlgorithms", _algorithms, SPLIT_ALGORITHMS)
    split_slack_percentage: int = key("flowOrQpsDifferenceThresholdPercentage", java_int, 10)
    bundles_max: int = key("loadBalancerNamespaceMaximumBundles", java_int, 128, least=1)

    # managed ledgers
    ensemble_size: int = key("managedLedgerDefaultEnsembleSize", java_int, 2, least=1)
    write_quorum: int = key("managedLedgerDefaultWriteQuorum", java_int, 2, least=1)
    ack_quorum: int = key("managedLedgerDefaultAckQuorum", java_int, 2, least=1)
    digest_type: DigestType = key("managedLedgerDigestType", _digest, DigestType.CRC32C)  # noqa: RUF009
    ensemble_size_max: int = key("managedLedgerMaxEnsembleSize", java_int, 5, least=1)
    write_quorum_max: int = key("managedLedgerMaxWriteQuorum", java_int, 5, least=1)
    ack_quorum_max: int = key("managedLedgerMaxAckQuorum", java_int, 5, least=1)
    ledger_password: str = key("managedLedgerPassword", str, "")
    entries_per_ledger: int = key("managedLedgerMaxEntriesPerLedger", java_int, 50_000, least=1)
    ledger_size_mb: int = key("managedLedgerMaxSizePerLedgerMbytes", java_int, 2048, least=1)
    rollover_min_minutes: int = key("managedLedgerMinLedgerRolloverTimeMinutes", java_int, 10, least=0)
    rollover_max_minutes: int = key("managedLedgerMaxLedgerRolloverTimeMinutes", java_int, 240, least=1)
    inactive_rollover_s: int = key("managedLedgerInactiveLedgerRolloverTimeSeconds", limit, 0)
    cursor_entries: int = key("managedLedgerCursorMaxEntriesPerLedger", java_int, 50_000, least=1)
    cursor_rollover_s: int = key("managedLedgerCursorRolloverTimeInSeconds", java_int, 14_400, least=1)
    mark_delete_rate: float = key("managedLedgerDefaultMarkDeleteRateLimit", number, 1.0, least=0)
    ranges_max: int = key("managedLedgerMaxUnackedRangesToPersist", java_int, 10_000, least=1)
    ranges_in_store_max: int = key("managedLedgerMaxUnackedRangesToPersistInMetadataStore", java_int, 1_000, least=0)
    ranges_in_zookeeper_max: int = key("managedLedgerMaxUnackedRangesToPersistInZooKeeper", java_int, -1)
    skip_lost: bool = key("autoSkipNonRecoverableData", java_flag, False)
    cache_mb: int = key("managedLedgerCacheSizeMB", java_int, 32, least=0)
    isolation_groups: tuple[str, ...] = key("bookkeeperClientIsolationGroups", words, ())
    secondary_isolation_groups: tuple[str, ...] = key("bookkeeperClientSecondaryIsolationGroups", words, ())
    rack_aware: bool = key("bookkeeperClientRackawarePolicyEnabled", java_flag, True)
    region_aware: bool = key("bookkeeperClientRegionawarePolicyEnabled", java_flag, False)
    racks_min: int = key("bookkeeperClientMinNumRacksPerWriteQuorum", java_int, 2, least=1)
    racks_enforced: bool = key("bookkeeperClientEnforceMinNumRacksPerWriteQuorum", java_flag, False)
    batch_index_acks: bool = key("acknowledgmentAtBatchIndexLevelEnabled", java_flag, False)
    entry_interceptors: str = key("brokerEntryMetadataInterceptors", str, "")
    expose_entry_metadata: bool = key("exposingBrokerEntryMetadataToClientEnabled", java_flag, False)

    # topics
    persistent_topics: bool = key("enablePersistentTopics", java_flag, True)
    nonpersistent_topics: bool = key("enableNonPersistentTopics", java_flag, True)
    topic_load_timeout_s: int = key("topicLoadTimeoutSeconds", java_long, 60, least=1)
    auto_create: bool = key("allowAutoTopicCreation", java_flag, True)
    auto_create_type: str = key("allowAutoTopicCreationType", one_of(*TOPIC_TYPES), "non-partitioned")
    default_partitions: int = key("defaultNumPartitions", java_int, 1, least=1)
    auto_subscribe: bool = key("allowAutoSubscriptionCreation", java_flag, True)
    delete_inactive: bool = key("brokerDeleteInactiveTopicsEnabled", java_flag, True)
    delete_inactive_metadata: bool = key("brokerDeleteInactivePartitionedTopicMetadataEnabled", java_flag, False)
    delete_inactive_mode: str = key(
        "brokerDeleteInactiveTopicsMode", one_of(*INACTIVE_MODES), "delete_when_no_subscriptions"
    )
    delete_inactive_every_s: int = key("brokerDeleteInactiveTopicsFrequencySeconds", java_int, 60, least=1)
    delete_inactive_after_s: int = key("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", java_int, 0, least=0)
    bootstrap_namespaces: tuple[str, ...] = key("bootstrapNamespaces", words, ())
    default_bundles: int = key("defaultNumberOfNamespaceBundles", java_int, 4, least=1)
    force_delete_namespace: bool = key("forceDeleteNamespaceAllowed", java_flag, False)
    force_delete_tenant: bool = key("forceDeleteTenantAllowed", java_flag, False)
    expire_subscriptions_minutes: int = key("subscriptionExpirationTimeMinutes", limit, 0)
    expire_subscriptions_every_minutes: int = key("subscriptionExpiryCheckIntervalInMinutes", limit, 5)
    tenants_max: int = key("maxTenants", limit, 0)
    namespaces_per_tenant_max: int = key("maxNamespacesPerTenant", limit, 0)
    partitions_max: int = key("maxNumPartitionsPerPartitionedTopic", limit, 0)
    topics_per_namespace_max: int = key("maxTopicsPerNamespace", limit, 0)
    subscriptions_max: int = key("maxSubscriptionsPerTopic", limit, 0)
    max_message_size: int = key("maxMessageSize", java_int, 5 * MIB, least=1, most=MESSAGE_SIZE_MAX)

    # policies
    deduplication: bool = key("brokerDeduplicationEnabled", java_flag, False)
    deduplication_producers: int = key("brokerDeduplicationMaxNumberOfProducers", java_int, 10_000, least=0)
    deduplication_entries: int = key("brokerDeduplicationEntriesInterval", java_int, 1000, least=1)
    deduplication_inactive_minutes: int = key(
        "brokerDeduplicationProducerInactivityTimeoutMinutes", java_int, 360, least=1
    )
    deduplication_snapshot_s: int = key("brokerDeduplicationSnapshotIntervalSeconds", limit, 120)
    deduplication_check_s: int = key("brokerDeduplicationSnapshotFrequencyInSeconds", limit, 120)
    retention_minutes: int = key("defaultRetentionTimeInMinutes", java_int, 0, least=-1)
    retention_mb: int = key("defaultRetentionSizeInMB", java_int, 0, least=-1)
    retention_check_s: int = key("retentionCheckIntervalInSeconds", limit, 120)
    ttl_s: int = key("ttlDurationDefaultInSeconds", limit, 0)
    expiry_check_minutes: int = key("messageExpiryCheckIntervalInMinutes", java_int, 5, least=1)
    backlog_quota_check: bool = key("backlogQuotaCheckEnabled", java_flag, True)
    backlog_quota_gb: float = key("backlogQuotaDefaultLimitGB", number, -1.0)
    backlog_quota_bytes: int = key("backlogQuotaDefaultLimitBytes", java_long, -1, least=-1)
    backlog_quota_s: int = key("backlogQuotaDefaultLimitSecond", java_int, -1, least=-1)
    backlog_quota_policy: str = key(
        "backlogQuotaDefaultRetentionPolicy", one_of(*QUOTA_POLICIES), "producer_request_hold"
    )
    backlog_quota_reads: bool = key("preciseTimeBasedBacklogQuotaCheck", java_flag, False)
    backlog_quota_check_s: int = key("backlogQuotaCheckIntervalInSeconds", java_int, 60, least=1)
    compaction_monitor_s: int = key("brokerServiceCompactionMonitorIntervalInSeconds", java_int, 60)
    compaction_threshold: int = key("brokerServiceCompactionThresholdInBytes", java_long, 0, least=0)
    compaction_keeps_unkeyed: bool = key("topicCompactionRetainNullKey", java_flag, False)
    read_entries_max: int = key("dispatcherMaxReadBatchSize", java_int, 100, least=1)
    read_bytes_max: int = key("dispatcherMaxReadSizeBytes", java_int, 5 * 1024 * 1024, least=1)
    slice_entries: int = key("dispatcherMaxRoundRobinBatchSize", java_int, 20, least=1)
    unacked_per_consumer: int = key("maxUnackedMessagesPerConsumer", limit, 50_000)
    unacked_per_subscription: int = key("maxUnackedMessagesPerSubscription", limit, 200_000)
    unacked_per_broker: int = key("maxUnackedMessagesPerBroker", limit, 0)
    unacked_part_when_blocked: float = key("maxUnackedMessagesPerSubscriptionOnBrokerBlocked", number, 0.16)
    failover_by_ring: bool = key("activeConsumerFailoverConsistentHashing", java_flag, False)
    consistent_hashing: bool = key("subscriptionKeySharedUseConsistentHashing", java_flag, True)
    ring_points: int = key("subscriptionKeySharedConsistentHashingReplicaPoints", java_int, 100, least=1)
    look_ahead_per_consumer: int = key("keySharedLookAheadMsgInReplayThresholdPerConsumer", java_int, 2000, least=0)
    look_ahead_per_subscription: int = key(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription", java_int, 20_000, least=0
    )
    producers_max: int = key("maxProducersPerTopic", limit, 0)
    consumers_max: int = key("maxConsumersPerTopic", limit, 0)
    consumers_per_subscription_max: int = key("maxConsumersPerSubscription", limit, 0)
    same_address_producers_max: int = key("maxSameAddressProducersPerTopic", limit, 0)
    same_address_consumers_max: int = key("maxSameAddressConsumersPerTopic", limit, 0)
    system_cursors: tuple[str, ...] = key("additionalSystemCursorNames", words, ())
    strict_subscription_names: bool = key("strictlyVerifySubscriptionName", java_flag, False)
    publish_messages: int = key("maxPublishRatePerTopicInMessages", limit, 0)
    publish_bytes: int = key("maxPublishRatePerTopicInBytes", long_limit, 0)
    broker_publish_messages: int = key("brokerPublisherThrottlingMaxMessageRate", limit, 0)
    broker_publish_bytes: int = key("brokerPublisherThrottlingMaxByteRate", long_limit, 0)
    broker_dispatch_messages: int = key("dispatchThrottlingRateInMsg", java_int, 0)
    broker_dispatch_bytes: int = key("dispatchThrottlingRateInByte", java_long, 0)
    topic_dispatch_messages: int = key("dispatchThrottlingRatePerTopicInMsg", java_int, 0)
    topic_dispatch_bytes: int = key("dispatchThrottlingRatePerTopicInByte", java_long, 0)
    subscription_dispatch_messages: int = key("dispatchThrottlingRatePerSubscriptionInMsg", java_int, 0)
    subscription_dispatch_bytes: int = key("dispatchThrottlingRatePerSubscriptionInByte", java_long, 0)
    dispatch_caught_up: bool = key("dispatchThrottlingOnNonBacklogConsumerEnabled", java_flag, True)
    dispatch_by_entry: bool = key("dispatchThrottlingOnBatchMessageEnabled", java_flag, False)
    caught_up_entries: int = key("managedLedgerCursorBackloggedThreshold", java_long, 1000)
    dispatch_relative: bool = key("dispatchThrottlingRateRelativeToPublishRate", java_flag, False)
    subscribes_per_consumer: int = key("subscribeThrottlingRatePerConsumer", java_int, 0)
    subscribe_period_s: int = key("subscribeRatePeriodPerConsumerInSecond", java_int, 30, least=1)
    failover_delay_ms: int = key("activeConsumerFailoverDelayTimeMillis", java_int, 1000, least=0)
    delayed_delivery: bool = key("delayedDeliveryEnabled", java_flag, True)
    delayed_tick_ms: int = key("delayedDeliveryTickTimeMillis", java_long, 1000, least=1)
    delayed_strict: bool = key("isDelayedDeliveryDeliverAtTimeStrict", java_flag, False)
    delay_max_ms: int = key("delayedDeliveryMaxDelayInMillis", long_limit, 0)
    fixed_delay_entries: int = key("delayedDeliveryFixedDelayDetectionLookahead", long_limit, 50_000)
    schema_compatibility: str = key("schemaCompatibilityStrategy", one_of(*STRATEGIES), "FULL")
    system_schema_compatibility: str = key(
        "systemTopicSchemaCompatibilityStrategy", one_of(*STRATEGIES), "ALWAYS_COMPATIBLE"
    )
    schema_auto_update: bool = key("isAllowAutoUpdateSchemaEnabled", java_flag, True)
    schema_enforced: bool = key("isSchemaValidationEnforced", java_flag, False)
    key_shared: bool = key("subscriptionKeySharedEnable", java_flag, True)
    counts_redeliveries: bool = key("subscriptionRedeliveryTrackerEnabled", java_flag, True)
    pause_on_ack_state: bool = key("dispatcherPauseOnAckStatePersistentEnabled", java_flag, False)
    encryption_required: bool = key("encryptionRequireOnProducer", java_flag, False)
    subscription_types: str = key(
        "subscriptionTypesEnabled", _subscription_types, "Exclusive,Shared,Failover,Key_Shared"
    )

    unknown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_bounds(self)
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        if not self.cluster:
            raise UsageError("clusterName is not set")
        if self.split_algorithm not in self.split_algorithms:
            raise UsageError(
                f"defaultNamespaceBundleSplitAlgorithm={self.split_algorithm} is not in "
                "supportedNamespaceBundleSplitAlgorithms"
            )
        size, seconds = self.retention_mb * MIB, self.retention_minutes * 60
        if 0 < size <= self.backlog_quota_bytes:
            raise UsageError(
                f"backlogQuotaDefaultLimitBytes={self.backlog_quota_bytes} must be less than defaultRetentionSizeInMB, "
                f"{size} bytes"
            )
        if 0 < seconds <= self.backlog_quota_s:
            raise UsageError(
                f"backlogQuotaDefaultLimitSecond={self.backlog_quota_s} must be less than "
                f"defaultRetentionTimeInMinutes, {seconds} s"
            )

    @property
    def store_uri(self) -> str:
        """The metadata store, with BookKeeper's ledgers root in it, as bkctl writes URIs.

        Raises:
            UsageError: no store is set, it is not ZooKeeper, or Pulsar's metadata are in another one.
        """
        return str(ledgers_of(self._named_place, self.bookkeeper_uri))

    @property
    def pulsar_place(self) -> Place:
        """Returns the place of Pulsar's metadata: metadataStoreUrl, or the root of BookKeeper's ZooKeeper without it.

        Raises:
            UsageError: as store_uri; or the configuration store is somewhere else.
        """
        place = self._named_place or Place(parse_uri(self.store_uri).hosts, "")
        names = self.configuration_store_url or self.configuration_store_servers or self.global_zookeeper_servers
        check_configuration_store(place, names)
        return place

    @property
    def session_timeout_s(self) -> float:
        """Timeout of the ZooKeeper session; the old key takes precedence, as in Java."""
        old_ms = self.zookeeper_session_timeout_ms
        return (old_ms if old_ms > 0 else self.session_timeout_ms) / 1000

    @property
    def backlog_quota_size(self) -> int:
        """Maximum bytes of a backlog, -1 for unlimited; the old key, in GB, takes precedence, as in Java."""
        return int(self.backlog_quota_gb * GIB) if self.backlog_quota_gb > 0 else self.backlog_quota_bytes

    @property
    def _named_place(self) -> Place | None:
        text = self.metadata_store_url or self.zookeeper_servers
        if not text:
            return None
        name = "metadataStoreUrl" if self.metadata_store_url else "zookeeperServers"
        return place_of(name, text.removeprefix(PULSAR_DRIVER))

    @property
    def host(self) -> str:
        """Returns the advertised host: advertisedAddress, or this machine's name."""
        return self.advertised_address or socket.getfqdn()

    @property
    def ledger_settings(self) -> LedgerSettings:
        """The managed ledger settings of a topic whose namespace has no policies of its own."""
        return LedgerSettings(
            ensemble_size=self.ensemble_size,
            write_quorum_size=self.write_quorum,
            ack_quorum_size=self.ack_quorum,
            digest_type=self.digest_type,
            password=self.ledger_password.encode(),
            entries_max=self.entries_per_ledger,
            size_max_bytes=self.ledger_size_mb * MIB,
            rollover_min_s=self.rollover_min_minutes * 60.0,
            rollover_max_s=self.rollover_max_minutes * 60.0,
            cursor_entries_max=self.cursor_entries,
            cursor_age_max_s=self.cursor_rollover_s,
            mark_delete_rate=self.mark_delete_rate,
            ranges_max=self.ranges_max,
            ranges_in_node_max=self.ranges_in_zookeeper_max
            if self.ranges_in_zookeeper_max > 0
            else self.ranges_in_store_max,
            retention_s=self.retention_minutes * 60.0 if self.retention_minutes > 0 else self.retention_minutes,
            retention_bytes=self.retention_mb * MIB if self.retention_mb > 0 else self.retention_mb,
            retention_check_s=float(self.retention_check_s or NEVER_S),
            skip_lost=self.skip_lost,
        )


def load_config(path: Path, **overrides: object) -> BrokerConfig:
    """Reads the properties file of a broker; overrides are field values that take precedence.

    Raises:
        UsageError: the file does not exist, a value is invalid (with file and line), values contradict each other, or a
            key requires protection that is not supported.
    """
    properties = read_server_properties(path, BROKER, logger.warning)
    return config_of(BrokerConfig, properties, source=str(path), **overrides)


def warnings(config: BrokerConfig) -> list[str]:
    """Returns a line for each key that is not supported, has an invalid value or is misspelled."""
    return warnings_of(config.unknown, (item.metadata["key"] for item in fields(config) if "key" in item.metadata))


def runtime(config: BrokerConfig) -> dict[str, str]:
    """The keys that the broker reads with their values as text, secrets masked; /brokers/configuration/runtime."""
    known = {item.metadata["key"]: getattr(config, item.name) for item in fields(config) if "key" in item.metadata}
    return {key: masked(key, _shown(value)) for key, value in sorted(known.items())}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return value.name if isinstance(value, DigestType) else str(value)
