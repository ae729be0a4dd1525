"""broker.conf: Pulsar's own keys and defaults, read into one frozen BrokerConfig.

The file is read as bk_server.conf is. Keys that mean nothing here are kept in `unknown` and never refused: one file
serves Java's brokers and ours. Source: ServiceConfiguration.java, conf/broker.conf of Pulsar 4.0.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from bkctl.errors import UsageError
from bkctl.model.ledger import DigestType, check_quorums
from bkdaemon.broker.ledger_settings import LedgerSettings
from bkdaemon.config import parse_properties

MIB: Final = 1 << 20

T = TypeVar("T")


def _flag(value: str) -> bool:
    if value.lower() in ("true", "yes", "on"):
        return True
    if value.lower() in ("false", "no", "off"):
        return False
    raise ValueError("not true or false")


def _digest(value: str) -> DigestType:
    word = {"MAC": "HMAC"}.get(value.upper(), value.upper())
    try:
        return DigestType[word]
    except KeyError:
        raise ValueError("no digest type: CRC32C, CRC32, MAC, DUMMY") from None


def _key(name: str, parse: Callable[[str], T], default: T, *, least: float | None = None) -> T:
    made: T = field(default=default, metadata={"key": name, "parse": parse, "least": least})
    return made


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What a broker is told. Names follow the keys; units are those of the keys. `load_config` reads it from a file.

    Raises:
        UsageError: values that contradict each other.
    """

    # who and where
    cluster: str = _key("clusterName", str, "")
    metadata_store_url: str = _key("metadataStoreUrl", str, "")
    configuration_store_url: str = _key("configurationMetadataStoreUrl", str, "")
    zookeeper_servers: str = _key("zookeeperServers", str, "")
    bookkeeper_uri: str = _key("bookkeeperMetadataServiceUri", str, "")
    broker_port: int = _key("brokerServicePort", int, 6650, least=0)
    web_port: int = _key("webServicePort", int, 8080, least=0)
    bind_address: str = _key("bindAddress", str, "0.0.0.0")
    advertised_address: str = _key("advertisedAddress", str, "")
    session_timeout_ms: int = _key("metadataStoreSessionTimeoutMillis", int, 30_000, least=1)

    # managed ledgers
    ensemble_size: int = _key("managedLedgerDefaultEnsembleSize", int, 2, least=1)
    write_quorum: int = _key("managedLedgerDefaultWriteQuorum", int, 2, least=1)
    ack_quorum: int = _key("managedLedgerDefaultAckQuorum", int, 2, least=1)
    digest_type: DigestType = _key("managedLedgerDigestType", _digest, DigestType.CRC32C)  # noqa: RUF009
    ledger_password: str = _key("managedLedgerPassword", str, "")
    entries_per_ledger: int = _key("managedLedgerMaxEntriesPerLedger", int, 50_000, least=1)
    ledger_size_mb: int = _key("managedLedgerMaxSizePerLedgerMbytes", int, 2048, least=1)
    rollover_min_minutes: int = _key("managedLedgerMinLedgerRolloverTimeMinutes", int, 10, least=0)
    rollover_max_minutes: int = _key("managedLedgerMaxLedgerRolloverTimeMinutes", int, 240, least=1)
    cursor_entries: int = _key("managedLedgerCursorMaxEntriesPerLedger", int, 50_000, least=1)
    cursor_rollover_s: int = _key("managedLedgerCursorRolloverTimeInSeconds", int, 14_400, least=1)
    mark_delete_rate: float = _key("managedLedgerDefaultMarkDeleteRateLimit", float, 1.0, least=0)
    ranges_max: int = _key("managedLedgerMaxUnackedRangesToPersist", int, 10_000, least=1)
    ranges_in_store_max: int = _key("managedLedgerMaxUnackedRangesToPersistInMetadataStore", int, 1_000, least=0)
    cache_mb: int = _key("managedLedgerCacheSizeMB", int, 32, least=0)
    batch_index_acks: bool = _key("acknowledgmentAtBatchIndexLevelEnabled", _flag, False)
    entry_interceptors: str = _key("brokerEntryMetadataInterceptors", str, "")

    # topics
    auto_create: bool = _key("allowAutoTopicCreation", _flag, True)
    auto_create_type: str = _key("allowAutoTopicCreationType", str, "non-partitioned")
    default_partitions: int = _key("defaultNumPartitions", int, 1, least=1)
    auto_subscribe: bool = _key("allowAutoSubscriptionCreation", _flag, True)
    delete_inactive: bool = _key("brokerDeleteInactiveTopicsEnabled", _flag, True)
    delete_inactive_mode: str = _key("brokerDeleteInactiveTopicsMode", str, "delete_when_no_subscriptions")
    delete_inactive_every_s: int = _key("brokerDeleteInactiveTopicsFrequencySeconds", int, 60, least=1)
    delete_inactive_after_s: int = _key("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", int, 0, least=0)
    default_bundles: int = _key("defaultNumberOfNamespaceBundles", int, 4, least=1)
    max_message_size: int = _key("maxMessageSize", int, 5 * MIB, least=1)

    # policies
    deduplication: bool = _key("brokerDeduplicationEnabled", _flag, False)
    deduplication_entries: int = _key("brokerDeduplicationEntriesInterval", int, 1000, least=1)
    retention_minutes: int = _key("defaultRetentionTimeInMinutes", int, 0, least=-1)
    retention_mb: int = _key("defaultRetentionSizeInMB", int, 0, least=-1)
    retention_check_s: int = _key("retentionCheckIntervalInSeconds", int, 120, least=1)
    ttl_s: int = _key("ttlDurationDefaultInSeconds", int, 0, least=0)
    expiry_check_minutes: int = _key("messageExpiryCheckIntervalInMinutes", int, 5, least=1)
    backlog_quota_bytes: int = _key("backlogQuotaDefaultLimitBytes", int, -1, least=-1)
    backlog_quota_s: int = _key("backlogQuotaDefaultLimitSecond", int, -1, least=-1)
    backlog_quota_policy: str = _key("backlogQuotaDefaultRetentionPolicy", str, "producer_request_hold")
    unacked_per_consumer: int = _key("maxUnackedMessagesPerConsumer", int, 50_000, least=0)
    unacked_per_subscription: int = _key("maxUnackedMessagesPerSubscription", int, 200_000, least=0)
    producers_max: int = _key("maxProducersPerTopic", int, 0, least=0)
    consumers_max: int = _key("maxConsumersPerTopic", int, 0, least=0)
    consumers_per_subscription_max: int = _key("maxConsumersPerSubscription", int, 0, least=0)
    failover_delay_ms: int = _key("activeConsumerFailoverDelayTimeMillis", int, 1000, least=0)
    delayed_delivery: bool = _key("delayedDeliveryEnabled", _flag, True)
    delayed_tick_ms: int = _key("delayedDeliveryTickTimeMillis", int, 1000, least=1)
    schema_compatibility: str = _key("schemaCompatibilityStrategy", str, "FULL")
    schema_enforced: bool = _key("isSchemaValidationEnforced", _flag, False)
    subscription_types: str = _key("subscriptionTypesEnabled", str, "Exclusive,Shared,Failover,Key_Shared")

    unknown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in fields(self):
            least = item.metadata.get("least")
            if least is not None and getattr(self, item.name) < least:
                raise UsageError(f"{item.metadata['key']}={getattr(self, item.name)} is below {least}")
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        if not self.cluster:
            raise UsageError("clusterName is not set")

    @property
    def store_uri(self) -> str:
        """The metadata store, with BookKeeper's ledgers root in it, as bkctl writes URIs.

        Raises:
            UsageError: none is set, or it is no ZooKeeper.
        """
        if self.bookkeeper_uri:
            return self.bookkeeper_uri.removeprefix("metadata-store:")
        text = self.metadata_store_url or self.zookeeper_servers
        if not text:
            raise UsageError("metadataStoreUrl is not set")
        hosts = text.removeprefix("metadata-store:").removeprefix("zk://").removeprefix("zk:")
        hosts, _, chroot = hosts.partition("/")
        if ":" in hosts.split(":", 1)[0] or chroot:
            raise UsageError(f"metadataStoreUrl={text}: only zk:host:port,… without a path is known")
        return f"zk+hierarchical://{hosts.replace(',', ';')}/ledgers"

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
        )


def load_config(path: Path, **overrides: object) -> BrokerConfig:
    """Reads a properties file; overrides are field values that win.

    Raises:
        UsageError: no such file, a value that cannot be read (with file and line), contradictions.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read {path}: {e}") from e
    values: dict[str, Any] = {}
    left = parse_properties(text)
    for item in fields(BrokerConfig):
        key = item.metadata.get("key")
        if key is None or key not in left:
            continue
        value, line = left.pop(key)
        if not value:
            continue  # `key=` means the default, as in Java's shipped files
        try:
            values[item.name] = item.metadata["parse"](value)
        except ValueError as e:
            raise UsageError(f"{path}:{line}: {key}={value}: {e}") from None
    values["unknown"] = {key: value for key, (value, _) in left.items()}
    return BrokerConfig(**(values | overrides))


def runtime(config: BrokerConfig) -> dict[str, str]:
    """Every key with its value as text, as Java shows it at /brokers/configuration/runtime."""
    known = {item.metadata["key"]: getattr(config, item.name) for item in fields(config) if "key" in item.metadata}
    texts = {key: _shown(value) for key, value in known.items() if key != "managedLedgerPassword"}
    return dict(sorted({**config.unknown, **texts}.items()))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, DigestType) else str(value)
