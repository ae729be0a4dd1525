"""Configuration changed while brokers run: /admin/configuration, a JSON object of keys and texts for all of them.

It takes precedence over broker.conf; the broker of the request applies it at once, others within UPKEEP_S. An invalid
text is refused here, and ignored if another broker stored it. Source: BrokerService.java
(registerConfigurationListener), DynamicConfigurationResources.java.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bkctl.errors import AlreadyExists, Refused, UsageError
from bkctl.meta.documents import Json, encode_json, read_document, update_document
from bkctl.model.secret_keys import masked
from bkdaemon.broker.config import MIB, BrokerConfig
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.properties import java_flag

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore
    from bkdaemon.broker.cluster.broker import Broker

CONFIGURATION: Final = "/admin/configuration"
DYNAMIC: Final = (
    "allowAutoSubscriptionCreation",
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "autoSkipNonRecoverableData",
    "brokerDeleteInactivePartitionedTopicMetadataEnabled",
    "brokerDeleteInactiveTopicsEnabled",
    "brokerDeleteInactiveTopicsFrequencySeconds",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
    "brokerDeleteInactiveTopicsMode",
    "brokerPublisherThrottlingMaxByteRate",
    "brokerPublisherThrottlingMaxMessageRate",
    "brokerShutdownTimeoutMs",
    "defaultNumPartitions",
    "defaultNumberOfNamespaceBundles",
    "defaultNamespaceBundleSplitAlgorithm",
    "dispatcherMaxReadBatchSize",
    "dispatcherMaxReadSizeBytes",
    "dispatcherMaxRoundRobinBatchSize",
    "dispatcherPauseOnAckStatePersistentEnabled",
    "dispatchThrottlingOnBatchMessageEnabled",
    "dispatchThrottlingOnNonBacklogConsumerEnabled",
    "dispatchThrottlingRateInByte",
    "dispatchThrottlingRateInMsg",
    "dispatchThrottlingRatePerSubscriptionInByte",
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerTopicInByte",
    "dispatchThrottlingRatePerTopicInMsg",
    "dispatchThrottlingRateRelativeToPublishRate",
    "flowOrQpsDifferenceThresholdPercentage",
    "forceDeleteNamespaceAllowed",
    "forceDeleteTenantAllowed",
    "isAllowAutoUpdateSchemaEnabled",
    "keySharedLookAheadMsgInReplayThresholdPerConsumer",
    "keySharedLookAheadMsgInReplayThresholdPerSubscription",
    "loadBalancerAutoBundleSplitEnabled",
    "loadBalancerBrokerOverloadedThresholdPercentage",
    "loadBalancerBrokerThresholdShedderPercentage",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes",
    "loadBalancerNamespaceBundleMaxMsgRate",
    "loadBalancerNamespaceBundleMaxSessions",
    "loadBalancerNamespaceBundleMaxTopics",
    "loadBalancerNamespaceMaximumBundles",
    "loadBalancerSheddingEnabled",
    "loadBalancerSheddingGracePeriodMinutes",
    "loadBalancerSheddingIntervalMinutes",
    "managedLedgerCacheSizeMB",
    "managedLedgerInactiveLedgerRolloverTimeSeconds",
    "maxConcurrentLookupRequest",
    "maxConcurrentTopicLoadRequest",
    "maxMessagePublishBufferSizeInMB",
    "maxNamespacesPerTenant",
    "maxNumPartitionsPerPartitionedTopic",
    "maxPublishRatePerTopicInBytes",
    "maxPublishRatePerTopicInMessages",
    "maxTenants",
    "maxTopicsPerNamespace",
    "strictlyVerifySubscriptionName",
    "subscribeRatePeriodPerConsumerInSecond",
    "subscribeThrottlingRatePerConsumer",
    "subscriptionKeySharedEnable",
    "subscriptionRedeliveryTrackerEnabled",
    "subscriptionTypesEnabled",
    "supportedNamespaceBundleSplitAlgorithms",
)
"""Java's dynamic keys that this broker supports."""
_FIELDS: Final = {item.metadata["key"]: item for item in fields(BrokerConfig) if item.metadata.get("key") in DYNAMIC}

_log = logging.getLogger(__name__)

Refresh: TypeAlias = Callable[[str], Awaitable[None]]


async def stored(store: MetadataStore) -> dict[str, str]:
    """Return the changed keys with their texts."""
    found = await read_document(store, CONFIGURATION)
    return {} if found is None else {str(name): str(text) for name, text in found.value.items()}


async def put(broker: Broker, name: str, text: str, refresh: Refresh) -> None:
    """Changes a key for all brokers; refresh applies it to the open topics of a namespace.

    Raises:
        Refused: the key is not dynamic, or the text is invalid.
    """
    if name not in _FIELDS:
        raise Refused("Can't update non-dynamic configuration")
    try:
        applied(broker.own_config, {name: text})
    except UsageError as error:
        raise Refused(f"Invalid dynamic-config value: {error.message}") from None
    if _FIELDS[name].metadata["parse"] is java_flag and text.lower() not in ("true", "false"):
        _log.warning("%s=%r is neither true nor false: it is read as false, as by Java's brokers", name, text[:100])
    await _change(broker, lambda old: {**old, name: text}, refresh)


async def remove(broker: Broker, name: str, refresh: Refresh) -> None:
    """Removes a changed key, so that broker.conf applies again; refresh applies it to the open topics of a namespace.

    Raises:
        Refused: the key is not dynamic.
    """
    if name not in _FIELDS:
        raise Refused("Can't delete non-dynamic configuration")
    await _change(broker, lambda old: {key: text for key, text in old.items() if key != name}, refresh)


async def _change(broker: Broker, change: Any, refresh: Refresh) -> None:
    try:
        await broker.store.create(CONFIGURATION, encode_json({}), parents=True)
    except AlreadyExists:
        pass

    def changed(old: Json) -> Json:
        return dict(change(old))

    await update_document(broker.store, CONFIGURATION, changed)
    await take(broker)
    for namespace in {name.namespace_name for name in broker.server.topics.open}:
        await refresh(namespace)


async def take(broker: Broker) -> None:
    """Applies the stored keys."""
    texts = {name: text for name, text in (await stored(broker.store)).items() if name in _FIELDS}
    config = broker.own_config
    for name, text in texts.items():
        try:
            config = applied(config, {name: text})
        except UsageError as error:
            _log.warning("%s is left as it is: %s", CONFIGURATION, error.message)
    if config != broker.config:
        _log.info(
            "the configuration was changed: %s",
            ", ".join(f"{k}={masked(k, v)}" for k, v in sorted(texts.items())) or "-",
        )
        if config.topic_loads_max != broker.config.topic_loads_max:
            broker.server.topics.set_loads_max(config.topic_loads_max)
        broker.config = broker.backend.config = config
        broker.backend.policies.take_config(config)
        broker.backend.ownership.overloaded = config.overloaded_percentage / 100
        broker.server.topics.limits.apply(config)
        broker.server.limits = ServerLimits.of(config)
        cache = broker.backend.context.cache
        cache.tail_bytes_max, cache.catch_up_bytes_max = config.cache_mb * MIB, max(config.cache_mb * MIB // 2, MIB)


def applied(config: BrokerConfig, texts: Mapping[str, str]) -> BrokerConfig:
    """Returns the configuration with these keys. As in Java, every text except true means false for a boolean key.

    Raises:
        UsageError: a text is invalid, or contradicts other keys.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        parse = _FIELDS[name].metadata["parse"]
        try:
            values[_FIELDS[name].name] = text.lower() == "true" if parse is java_flag else parse(text)
        except ValueError as error:
            raise UsageError(f"{name}={text}: {error}") from None
    return replace(config, **values)
