"""broker.conf: Pulsar's own keys and defaults, read into one frozen BrokerConfig.

The file is read as bk_server.conf is (bkdaemon.properties). Keys that mean nothing here are kept in `unknown` and
never refused: one file serves Java's brokers and ours. Source: ServiceConfiguration.java, broker.conf of Pulsar 4.0.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from bkctl.errors import UsageError
from bkctl.meta.uri import parse_uri
from bkctl.model.ledger import DigestType, check_quorums
from bkdaemon.broker.ledger.ledger_settings import LedgerSettings
from bkdaemon.broker.metadata_place import PULSAR_DRIVER, Place, check_configuration_store, ledgers_of, place_of
from bkdaemon.properties import check_least, config_of, flag, key, port, read_properties, words

MIB: Final = 1 << 20


def _digest(value: str) -> DigestType:
    word = {"MAC": "HMAC"}.get(value.upper(), value.upper())
    try:
        return DigestType[word]
    except KeyError:
        raise ValueError("no digest type: CRC32C, CRC32, MAC, DUMMY") from None


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What a broker is told. Names follow the keys; units are those of the keys. `load_config` reads it from a file.

    Raises:
        UsageError: values that contradict each other.
    """

    # who and where
    cluster: str = key("clusterName", str, "")
    metadata_store_url: str = key("metadataStoreUrl", str, "")
    configuration_store_url: str = key("configurationMetadataStoreUrl", str, "")
    zookeeper_servers: str = key("zookeeperServers", str, "")
    bookkeeper_uri: str = key("bookkeeperMetadataServiceUri", str, "")
    broker_port: int = key("brokerServicePort", port, 6650)
    web_port: int = key("webServicePort", port, 8080)
    bind_address: str = key("bindAddress", str, "0.0.0.0")
    advertised_address: str = key("advertisedAddress", str, "")
    session_timeout_ms: int = key("metadataStoreSessionTimeoutMillis", int, 30_000, least=1)

    shutdown_ms: int = key("brokerShutdownTimeoutMs", int, 60_000, least=0)

    # clients
    keep_alive_s: int = key("keepAliveIntervalSeconds", int, 30, least=0)
    liveness_ms: int = key("connectionLivenessCheckTimeoutMillis", int, 5000, least=0)
    connections_max: int = key("brokerMaxConnections", int, 0, least=0)
    connections_per_address_max: int = key("brokerMaxConnectionsPerIp", int, 0, least=0)
    lookups_max: int = key("maxConcurrentLookupRequest", int, 50_000, least=1)
    topic_loads_max: int = key("maxConcurrentTopicLoadRequest", int, 5000, least=1)
    pattern_length_max: int = key("subscriptionPatternMaxLength", int, 50, least=0)
    consumer_metadata_max: int = key("maxConsumerMetadataSize", int, 1024, least=0)
    # two that Java sets otherwise where the file says nothing: 1,000, as its connections have threads of their own, and
    # half of the memory outside of its heap, which Python has not; -1 is no limit in both
    pending_sends_max: int = key("maxPendingPublishRequestsPerConnection", int, 4000, least=1)
    publish_buffer_mb: int = key("maxMessagePublishBufferSizeInMB", int, 256, least=-1)
    stats_s: int = key("statsUpdateFrequencyInSecs", int, 60, least=1)

    # balancing
    load_balancer: bool = key("loadBalancerEnabled", flag, True)
    shedding: bool = key("loadBalancerSheddingEnabled", flag, True)
    shedding_threshold: int = key("loadBalancerBrokerThresholdShedderPercentage", int, 10, least=1)
    shedding_grace_minutes: int = key("loadBalancerSheddingGracePeriodMinutes", int, 30, least=0)
    auto_split: bool = key("loadBalancerAutoBundleSplitEnabled", flag, True)
    split_topics: int = key("loadBalancerNamespaceBundleMaxTopics", int, 1_000, least=1)
    split_sessions: int = key("loadBalancerNamespaceBundleMaxSessions", int, 1_000, least=1)
    split_message_rate: int = key("loadBalancerNamespaceBundleMaxMsgRate", int, 30_000, least=1)
    split_mb: int = key("loadBalancerNamespaceBundleMaxBandwidthMbytes", int, 100, least=1)
    bundles_max: int = key("loadBalancerNamespaceMaximumBundles", int, 128, least=1)

    # managed ledgers
    ensemble_size: int = key("managedLedgerDefaultEnsembleSize", int, 2, least=1)
    write_quorum: int = key("managedLedgerDefaultWriteQuorum", int, 2, least=1)
    ack_quorum: int = key("managedLedgerDefaultAckQuorum", int, 2, least=1)
    digest_type: DigestType = key("managedLedgerDigestType", _digest, DigestType.CRC32C)  # noqa: RUF009
    ledger_password: str = key("managedLedgerPassword", str, "")
    entries_per_ledger: int = key("managedLedgerMaxEntriesPerLedger", int, 50_000, least=1)
    ledger_size_mb: int = key("managedLedgerMaxSizePerLedgerMbytes", int, 2048, least=1)
    rollover_min_minutes: int = key("managedLedgerMinLedgerRolloverTimeMinutes", int, 10, least=0)
    rollover_max_minutes: int = key("managedLedgerMaxLedgerRolloverTimeMinutes", int, 240, least=1)
    cursor_entries: int = key("managedLedgerCursorMaxEntriesPerLedger", int, 50_000, least=1)
    cursor_rollover_s: int = key("managedLedgerCursorRolloverTimeInSeconds", int, 14_400, least=1)
    mark_delete_rate: float = key("managedLedgerDefaultMarkDeleteRateLimit", float, 1.0, least=0)
    ranges_max: int = key("managedLedgerMaxUnackedRangesToPersist", int, 10_000, least=1)
    ranges_in_store_max: int = key("managedLedgerMaxUnackedRangesToPersistInMetadataStore", int, 1_000, least=0)
    skip_lost: bool = key("autoSkipNonRecoverableData", flag, False)
    cache_mb: int = key("managedLedgerCacheSizeMB", int, 32, least=0)
    isolation_groups: tuple[str, ...] = key("bookkeeperClientIsolationGroups", words, ())
    secondary_isolation_groups: tuple[str, ...] = key("bookkeeperClientSecondaryIsolationGroups", words, ())
    rack_aware: bool = key("bookkeeperClientRackawarePolicyEnabled", flag, True)
    region_aware: bool = key("bookkeeperClientRegionawarePolicyEnabled", flag, False)
    racks_min: int = key("bookkeeperClientMinNumRacksPerWriteQuorum", int, 2, least=1)
    racks_enforced: bool = key("bookkeeperClientEnforceMinNumRacksPerWriteQuorum", flag, False)
    batch_index_acks: bool = key("acknowledgmentAtBatchIndexLevelEnabled", flag, False)
    entry_interceptors: str = key("brokerEntryMetadataInterceptors", str, "")
    expose_entry_metadata: bool = key("exposingBrokerEntryMetadataToClientEnabled", flag, False)

    # topics
    auto_create: bool = key("allowAutoTopicCreation", flag, True)
    auto_create_type: str = key("allowAutoTopicCreationType", str, "non-partitioned")
    default_partitions: int = key("defaultNumPartitions", int, 1, least=1)
    auto_subscribe: bool = key("allowAutoSubscriptionCreation", flag, True)
    delete_inactive: bool = key("brokerDeleteInactiveTopicsEnabled", flag, True)
    delete_inactive_mode: str = key("brokerDeleteInactiveTopicsMode", str, "delete_when_no_subscriptions")
    delete_inactive_every_s: int = key("brokerDeleteInactiveTopicsFrequencySeconds", int, 60, least=1)
    delete_inactive_after_s: int = key("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", int, 0, least=0)
    default_bundles: int = key("defaultNumberOfNamespaceBundles", int, 4, least=1)
    force_delete_namespace: bool = key("forceDeleteNamespaceAllowed", flag, False)
    force_delete_tenant: bool = key("forceDeleteTenantAllowed", flag, False)
    expire_subscriptions_minutes: int = key("subscriptionExpirationTimeMinutes", int, 0, least=0)
    expire_subscriptions_every_minutes: int = key("subscriptionExpiryCheckIntervalInMinutes", int, 5, least=1)
    topics_per_namespace_max: int = key("maxTopicsPerNamespace", int, 0, least=0)
    subscriptions_max: int = key("maxSubscriptionsPerTopic", int, 0, least=0)
    max_message_size: int = key("maxMessageSize", int, 5 * MIB, least=1)

    # policies
    deduplication: bool = key("brokerDeduplicationEnabled", flag, False)
    deduplication_entries: int = key("brokerDeduplicationEntriesInterval", int, 1000, least=1)
    deduplication_snapshot_s: int = key("brokerDeduplicationSnapshotIntervalSeconds", int, 120, least=1)
    retention_minutes: int = key("defaultRetentionTimeInMinutes", int, 0, least=-1)
    retention_mb: int = key("defaultRetentionSizeInMB", int, 0, least=-1)
    retention_check_s: int = key("retentionCheckIntervalInSeconds", int, 120, least=1)
    ttl_s: int = key("ttlDurationDefaultInSeconds", int, 0, least=0)
    expiry_check_minutes: int = key("messageExpiryCheckIntervalInMinutes", int, 5, least=1)
    backlog_quota_bytes: int = key("backlogQuotaDefaultLimitBytes", int, -1, least=-1)
    backlog_quota_s: int = key("backlogQuotaDefaultLimitSecond", int, -1, least=-1)
    backlog_quota_policy: str = key("backlogQuotaDefaultRetentionPolicy", str, "producer_request_hold")
    backlog_quota_check_s: int = key("backlogQuotaCheckIntervalInSeconds", int, 60, least=1)
    compaction_monitor_s: int = key("brokerServiceCompactionMonitorIntervalInSeconds", int, 60)
    compaction_threshold: int = key("brokerServiceCompactionThresholdInBytes", int, 0, least=0)
    compaction_keeps_unkeyed: bool = key("topicCompactionRetainNullKey", flag, False)
    read_entries_max: int = key("dispatcherMaxReadBatchSize", int, 100, least=1)
    read_bytes_max: int = key("dispatcherMaxReadSizeBytes", int, 5 * 1024 * 1024, least=1)
    slice_entries: int = key("dispatcherMaxRoundRobinBatchSize", int, 20, least=1)
    unacked_per_consumer: int = key("maxUnackedMessagesPerConsumer", int, 50_000, least=0)
    unacked_per_subscription: int = key("maxUnackedMessagesPerSubscription", int, 200_000, least=0)
    look_ahead_per_consumer: int = key("keySharedLookAheadMsgInReplayThresholdPerConsumer", int, 2000, least=0)
    look_ahead_per_subscription: int = key(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription", int, 20_000, least=0
    )
    producers_max: int = key("maxProducersPerTopic", int, 0, least=0)
    consumers_max: int = key("maxConsumersPerTopic", int, 0, least=0)
    consumers_per_subscription_max: int = key("maxConsumersPerSubscription", int, 0, least=0)
    publish_messages: int = key("maxPublishRatePerTopicInMessages", int, 0, least=0)
    publish_bytes: int = key("maxPublishRatePerTopicInBytes", int, 0, least=0)
    broker_publish_messages: int = key("brokerPublisherThrottlingMaxMessageRate", int, 0, least=0)
    broker_publish_bytes: int = key("brokerPublisherThrottlingMaxByteRate", int, 0, least=0)
    broker_dispatch_messages: int = key("dispatchThrottlingRateInMsg", int, 0)
    broker_dispatch_bytes: int = key("dispatchThrottlingRateInByte", int, 0)
    topic_dispatch_messages: int = key("dispatchThrottlingRatePerTopicInMsg", int, 0)
    topic_dispatch_bytes: int = key("dispatchThrottlingRatePerTopicInByte", int, 0)
    subscription_dispatch_messages: int = key("dispatchThrottlingRatePerSubscriptionInMsg", int, 0)
    subscription_dispatch_bytes: int = key("dispatchThrottlingRatePerSubscriptionInByte", int, 0)
    dispatch_relative: bool = key("dispatchThrottlingRateRelativeToPublishRate", flag, False)
    subscribes_per_consumer: int = key("subscribeThrottlingRatePerConsumer", int, 0)
    subscribe_period_s: int = key("subscribeRatePeriodPerConsumerInSecond", int, 30, least=1)
    failover_delay_ms: int = key("activeConsumerFailoverDelayTimeMillis", int, 1000, least=0)
    delayed_delivery: bool = key("delayedDeliveryEnabled", flag, True)
    delayed_tick_ms: int = key("delayedDeliveryTickTimeMillis", int, 1000, least=1)
    schema_compatibility: str = key("schemaCompatibilityStrategy", str, "FULL")
    schema_auto_update: bool = key("isAllowAutoUpdateSchemaEnabled", flag, True)
    schema_enforced: bool = key("isSchemaValidationEnforced", flag, False)
    subscription_types: str = key("subscriptionTypesEnabled", str, "Exclusive,Shared,Failover,Key_Shared")

    unknown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_least(self)
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        if not self.cluster:
            raise UsageError("clusterName is not set")

    @property
    def store_uri(self) -> str:
        """The metadata store, with BookKeeper's ledgers root in it, as bkctl writes URIs.

        Raises:
            UsageError: none is set, it is no ZooKeeper, or Pulsar's metadata are in another one.
        """
        return str(ledgers_of(self._named_place, self.bookkeeper_uri))

    @property
    def pulsar_place(self) -> Place:
        """Where Pulsar's metadata are: metadataStoreUrl, or the root of BookKeeper's ZooKeeper where it is not set.

        Raises:
            UsageError: as store_uri; or the configuration store is somewhere else.
        """
        place = self._named_place or Place(parse_uri(self.store_uri).hosts, "")
        check_configuration_store(place, self.configuration_store_url)
        return place

    @property
    def _named_place(self) -> Place | None:
        text = self.metadata_store_url or self.zookeeper_servers
        if not text:
            return None
        name = "metadataStoreUrl" if self.metadata_store_url else "zookeeperServers"
        return place_of(name, text.removeprefix(PULSAR_DRIVER))

    @property
    def host(self) -> str:
        """The host that clients are told: advertisedAddress, or this machine's name."""
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
            ranges_in_node_max=self.ranges_in_store_max,
            retention_s=self.retention_minutes * 60.0 if self.retention_minutes > 0 else self.retention_minutes,
            retention_bytes=self.retention_mb * MIB if self.retention_mb > 0 else self.retention_mb,
            retention_check_s=self.retention_check_s,
            skip_lost=self.skip_lost,
        )


def load_config(path: Path, **overrides: object) -> BrokerConfig:
    """Reads a properties file; overrides are field values that win.

    Raises:
        UsageError: no such file, a value that cannot be read (with file and line), contradictions.
    """
    return config_of(BrokerConfig, read_properties(path), source=str(path), **overrides)


def runtime(config: BrokerConfig) -> dict[str, str]:
    """Every key with its value as text, as Java shows it at /brokers/configuration/runtime."""
    known = {item.metadata["key"]: getattr(config, item.name) for item in fields(config) if "key" in item.metadata}
    texts = {key: _shown(value) for key, value in known.items() if key != "managedLedgerPassword"}
    return dict(sorted({**config.unknown, **texts}.items()))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, DigestType) else str(value)
