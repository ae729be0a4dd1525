"""Keys of broker.conf that Pulsar 4.0.7 has and this broker does not read, with the types of their values.

They are ignored, so that one file serves Java's brokers and this one; a value that Java's broker could not read is a
warning. A key that Pulsar does not know is ignored too, as plug-ins bring their own; one that resembles a known key is
a warning. Keys that protect a cluster are in bkctl.model.security_keys. Source: ServiceConfiguration.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from bkctl.model.secret_keys import masked
from bkdaemon.properties import java_flag, java_int, java_long, number, one_of, port

SIMILAR: Final = 0.9
"""Similarity of two keys from which on one is reported as a misspelling of the other."""
_FLAGS: Final = """
    aggregatePublisherStatsByProducerName
    allowAclChangesOnNonExistentTopics allowOverrideEntryFilters authenticateMetricsEndpoint
    authenticateOriginalAuthData authenticationEnabled authorizationAllowWildcardsMatching authorizationEnabled
    bookkeeperClientExposeStatsToPrometheus bookkeeperClientHealthCheckEnabled bookkeeperClientLimitStatsLogging
    bookkeeperClientReorderReadSequenceEnabled bookkeeperClientSeparatedIoThreadsEnabled
    bookkeeperDiskWeightBasedPlacementEnabled bookkeeperEnableStickyReads bookkeeperTLSClientAuthentication
    bookkeeperUseV2WireProtocol brokerClientTlsEnabled brokerClientTlsEnabledWithKeyStore
    cacheEvictionByMarkDeletedPosition
    clientLibraryVersionCheckEnabled clusterMigrationAutoResourceCreation
    createTopicToRemoteClusterForReplication disableHttpDebugMethods dispatchThrottlingForFilteredEntriesEnabled
    dispatcherDispatchMessagesInSubscriptionThread enableBusyWait
    enableNamespaceIsolationUpdateOnTime enablePackagesManagement
    enableReplicatedSubscriptions enableRunBookieAutoRecoveryTogether
    enableRunBookieTogether exposeBundlesMetricsInPrometheus exposeConsumerLevelMetricsInPrometheus
    exposeManagedCursorMetricsInPrometheus exposeManagedLedgerMetricsInPrometheus
    exposePreciseBacklogInPrometheus exposeProducerLevelMetricsInPrometheus exposePublisherStats
    exposeSubscriptionBacklogSizeInPrometheus exposeTopicLevelMetricsInPrometheus failureDomainsEnabled
    functionsWorkerEnablePackageManagement functionsWorkerEnabled haProxyProtocolEnabled
    httpRequestsFailOnUnknownPropertiesEnabled httpRequestsLimitEnabled
    isRunningStandalone lazyCursorRecovery loadBalancerAutoUnloadSplitBundlesEnabled
    loadBalancerDebugModeEnabled loadBalancerDistributeBundlesEvenlyEnabled loadBalancerMultiPhaseBundleUnload
    loadBalancerSheddingBundlesWithPoliciesEnabled loadBalancerTransferEnabled lowerBoundarySheddingEnabled
    managedLedgerCacheCopyEntries managedLedgerForceRecovery managedLedgerPersistIndividualAckAsLongArray
    managedLedgerTraceTaskExecution managedLedgerUnackedRangesOpenCacheSetEnabled
    metadataStoreAllowReadOnlyOperations metadataStoreBatchingEnabled metricsBufferResponse
    persistentUnackedRangesWithMultipleEntriesEnabled preciseDispatcherFlowControl
    preferLaterVersions replicationMetricsEnabled replicationTlsEnabled
    schemaLedgerForceRecovery skipBrokerShutdownOnOOM splitTopicAndPartitionLabelInPrometheus
    strictBookieAffinityEnabled strictTopicNameEnabled
    subscriptionKeySharedUseClassicPersistentImplementation
    subscriptionSharedUseClassicPersistentImplementation systemTopicEnabled tlsAllowInsecureConnection
    tlsEnabled tlsEnabledWithKeyStore tlsHostnameVerificationEnabled tlsRequireTrustedClientCertOnConnect
    topicLevelPoliciesEnabled transactionBufferSegmentedSnapshotEnabled transactionCoordinatorEnabled
    transactionLogBatchedWriteEnabled transactionPendingAckBatchedWriteEnabled triggerOffloadOnTopicLoad
    unblockStuckSubscriptionEnabled useSeparateThreadPoolForProtocolHandlers webServiceHaProxyProtocolEnabled
    webServiceLogDetailedAddresses webServiceTrustXForwardedFor webSocketServiceEnabled
    zooKeeperAllowReadOnlyOperations
"""
_INTS: Final = """
    authenticationRefreshCheckSeconds bookkeeperClientGetBookieInfoIntervalSeconds
    bookkeeperClientGetBookieInfoRetryIntervalSeconds bookkeeperClientNumIoThreads
    bookkeeperClientNumWorkerThreads bookkeeperClientSpeculativeReadTimeoutInMillis
    bookkeeperClientThrottleValue bookkeeperExplicitLacIntervalInMills bookkeeperNumberOfChannelsPerBookie
    bookkeeperTlsCertFilesRefreshDurationSeconds
    brokerPublisherThrottlingTickTimeMillis brokerServicePurgeInactiveFrequencyInSeconds
    clusterMigrationCheckDurationSeconds delayedDeliveryMaxIndexesPerBucketSnapshotSegment
    delayedDeliveryMaxNumBuckets delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds
    dispatchThrottlingRatePerReplicatorInMsg dispatcherEntryFilterRescheduledMessageDelay
    dispatcherMinReadBatchSize dispatcherReadFailureBackoffInitialTimeInMs
    dispatcherReadFailureBackoffMandatoryStopTimeInMs dispatcherReadFailureBackoffMaxTimeInMs
    dispatcherRetryBackoffInitialTimeInMs dispatcherRetryBackoffMaxTimeInMs
    healthCheckMetricsUpdateTimeInSeconds
    httpServerAcceptQueueSize httpServerThreadPoolQueueSize
    loadBalancerAverageResourceUsageDifferenceThresholdPercentage loadBalancerAvgShedderHighThreshold
    loadBalancerAvgShedderHitCountHighThreshold loadBalancerAvgShedderHitCountLowThreshold
    loadBalancerAvgShedderLowThreshold loadBalancerBrokerComfortLoadLevelPercentage loadBalancerBrokerMaxTopics
    loadBalancerBrokerUnderloadedThresholdPercentage
    loadBalancerHostUsageCheckIntervalMinutes loadBalancerMaxNumberOfBrokerSheddingPerCycle
    loadBalancerMaxNumberOfBundlesInBundleLoadReport loadBalancerMaxNumberOfBundlesToSplitPerCycle
    loadBalancerNamespaceBundleSplitConditionHitCountThreshold loadBalancerReportUpdateMaxIntervalMinutes
    loadBalancerReportUpdateMinIntervalMillis loadBalancerReportUpdateThresholdPercentage
    loadBalancerResourceQuotaUpdateIntervalMinutes loadBalancerServiceUnitStateMaxConcurrentOverrides
    loadBalancerSheddingConditionHitCountThreshold
    loadBalancerSplitIntervalMinutes managedLedgerCursorPositionFlushSeconds
    managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis
    managedLedgerInactiveOffloadedLedgerEvictionTimeSeconds
    managedLedgerMaxBacklogBetweenCursorsForCaching
    managedLedgerMaxBatchDeletedIndexToPersist
    managedLedgerMaxReadsInFlightPermitsAcquireQueueSize
    managedLedgerMinimumBacklogCursorsForCaching managedLedgerMinimumBacklogEntriesForCaching
    managedLedgerNewEntriesCheckDelayInMillis managedLedgerNumSchedulerThreads managedLedgerOffloadMaxThreads
    managedLedgerOffloadPrefetchRounds managedLedgerPrometheusStatsLatencyRolloverSeconds
    managedLedgerStatsPeriodSeconds maxConcurrentHttpRequests maxConcurrentNonPersistentMessagePerConnection
    maxSecondsToClearTopicNameCache maxUnloadBundleNumPerShedding
    metadataStoreBatchingMaxDelayMillis metadataStoreBatchingMaxOperations metadataStoreBatchingMaxSizeKb
    metadataStoreCacheExpirySeconds metadataStoreOperationTimeoutSeconds minUnloadMessage
    minUnloadMessageThroughput numAcceptorThreads numCacheExecutorThreadPoolSize numExecutorThreadPoolSize
    numHttpServerThreads numIOThreads numOrderedExecutorThreads numTransactionReplayThreadPoolSize
    numWorkerThreadsForNonPersistentTopic packagesReplicas replicatedSubscriptionsSnapshotFrequencyMillis
    replicatedSubscriptionsSnapshotMaxCachedPerSubscription replicatedSubscriptionsSnapshotTimeoutSeconds
    replicationConnectionsPerBroker replicationPolicyCheckDurationSeconds replicationProducerQueueSize
    resourceUsageTransportPublishIntervalInSecs statsUpdateInitialDelayInSecs
    topicFencingTimeoutSeconds topicNameCacheMaxCapacity
    topicOrderedExecutorThreadNum topicPublisherThrottlingTickTimeMillis
    transactionBufferClientMaxConcurrentRequests transactionBufferSnapshotMaxTransactionCount
    transactionBufferSnapshotMinTimeInMillis transactionBufferSnapshotSegmentSize
    transactionLogBatchedWriteMaxDelayInMillis transactionLogBatchedWriteMaxRecords
    transactionLogBatchedWriteMaxSize transactionPendingAckBatchedWriteMaxDelayInMillis
    transactionPendingAckBatchedWriteMaxRecords transactionPendingAckBatchedWriteMaxSize
    webSocketConnectionsPerBroker webSocketMaxTextFrameSize webSocketNumIoThreads webSocketNumServiceThreads
    webSocketPingDurationSeconds webSocketPulsarClientMemoryLimitInMB webSocketSessionIdleTimeoutMillis
    zooKeeperCacheExpirySeconds zooKeeperOperationTimeoutSeconds
"""
_LONGS: Final = """
    bookkeeperClientHealthCheckErrorThresholdPerInterval bookkeeperClientHealthCheckIntervalSeconds
    bookkeeperClientHealthCheckQuarantineTimeInSeconds bookkeeperClientTimeoutInSeconds
    brokerServiceCompactionPhaseOneLoopTimeInSeconds delayedDeliveryMinIndexCountPerBucket
    dispatchThrottlingRatePerReplicatorInByte inflightSaslContextExpiryMs
    keySharedUnblockingIntervalMs loadBalanceSheddingDelayInSeconds loadBalancerBrokerLoadDataTTLInSeconds
    loadBalancerInFlightServiceUnitStateWaitingTimeInMillis loadBalancerServiceUnitStateMonitorIntervalInSeconds
    loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds managedCursorInfoCompressionThresholdInBytes
    managedLedgerAddEntryTimeoutSeconds managedLedgerCacheEvictionIntervalMs
    managedLedgerCacheEvictionTimeThresholdMillis
    managedLedgerInfoCompressionThresholdInBytes managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis
    managedLedgerMaxReadsInFlightSizeInMB managedLedgerMetadataOperationsTimeoutSeconds
    managedLedgerOffloadAutoTriggerSizeThresholdBytes managedLedgerOffloadDeletionLagMs
    managedLedgerOffloadThresholdInSeconds managedLedgerReadEntryTimeoutSeconds
    maxActiveTransactionsPerCoordinator maxInflightSaslContext metricsServletTimeoutMs
    namespaceBundleUnloadingTimeoutMs subscriptionBacklogScanMaxEntries subscriptionBacklogScanMaxTimeMs
    tlsCertRefreshCheckDurationSec transactionBufferClientOperationTimeoutInMills
    transactionPendingAckLogIndexMinLag
"""
_NUMBERS: Final = """
    bookkeeperClientQuarantineRatio httpRequestsMaxPerSecond loadBalancerBandwidthInResourceWeight
    loadBalancerBandwidthOutResourceWeight loadBalancerBandwithInResourceWeight
    loadBalancerBandwithOutResourceWeight loadBalancerBrokerLoadTargetStd
    loadBalancerBundleUnloadMinThroughputThreshold loadBalancerCPUResourceWeight
    loadBalancerDirectMemoryResourceWeight loadBalancerHistoryResourcePercentage
    loadBalancerMemoryResourceWeight loadBalancerMsgRateDifferenceShedderThreshold
    loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold loadBalancerOverrideBrokerNicSpeedGbps
    managedLedgerCacheEvictionFrequency managedLedgerCacheEvictionWatermark
    maxUnloadPercentage
"""
_TEXTS: Final = """
    additionalServletDirectory additionalServlets advertisedListeners
    anonymousUserRole authenticationProviders authorizationProvider bindAddresses
    bookkeeperClientAuthenticationParameters bookkeeperClientAuthenticationParametersName
    bookkeeperClientAuthenticationPlugin bookkeeperTLSCertificateFilePath bookkeeperTLSKeyFilePath
    bookkeeperTLSKeyFileType bookkeeperTLSKeyStorePasswordPath bookkeeperTLSProviderFactoryClass
    bookkeeperTLSTrustCertTypes bookkeeperTLSTrustCertsFilePath bookkeeperTLSTrustStorePasswordPath
    brokerClientAuthenticationParameters brokerClientAuthenticationPlugin
    brokerClientCertificateFilePath brokerClientKeyFilePath brokerClientSslFactoryPlugin
    brokerClientSslFactoryPluginParams brokerClientSslProvider brokerClientTlsCiphers brokerClientTlsKeyStore
    brokerClientTlsKeyStorePassword brokerClientTlsKeyStoreType brokerClientTlsProtocols
    brokerClientTlsTrustStore brokerClientTlsTrustStorePassword brokerClientTlsTrustStoreType
    brokerClientTrustCertsFilePath brokerEntryPayloadProcessors brokerInterceptors brokerInterceptorsDirectory
    compactionServiceFactoryClassName configurationMetadataSyncEventTopic configurationStoreConfigPath
    delayedDeliveryTrackerFactoryClassName
    dispatchRateLimiterFactoryClassName entryFilterNames entryFiltersDirectory functionsWorkerServiceNarPackage
    httpServerGzipCompressionExcludedPaths internalListenerName jvmGCMetricsLoggerClassName kinitCommand
    loadBalancerLoadPlacementStrategy loadBalancerLoadSheddingStrategy loadBalancerPlacementStrategy
    loadManagerClassName loadManagerServiceUnitStateTableViewClassName lookupPropertyPrefix
    managedCursorInfoCompressionType managedLedgerDataReadPriority managedLedgerInfoCompressionType
    managedLedgerOffloadDriver managedLedgerStorageClassName messagingProtocols metadataStoreConfigPath
    metadataSyncEventTopic narExtractionDirectory offloadersDirectory packagesManagementLedgerRootPath
    packagesManagementStorageProvider protocolHandlerDirectory proxyRoles replicationStartAt replicatorPrefix
    resourceUsageTransportClassName saslJaasClientAllowedIds saslJaasServerRoleTokenSignerSecretPath
    saslJaasServerSectionName schemaRegistryCompatibilityCheckers schemaRegistryStorageClassName
    sslFactoryPlugin sslFactoryPluginParams statusFilePath superUserRoles
    tlsCertificateFilePath tlsCiphers tlsKeyFilePath tlsKeyStore
    tlsKeyStorePassword tlsKeyStoreType tlsProtocols tlsProvider tlsTrustCertsFilePath tlsTrustStore
    tlsTrustStorePassword tlsTrustStoreType topicBundleAssignmentStrategy topicFactoryClassName
    topicPoliciesServiceClassName transactionBufferProviderClassName transactionMetadataStoreProviderClassName
    transactionPendingAckStoreProviderClassName webServiceTlsCiphers webServiceTlsProtocols
    webServiceTlsProvider
"""
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(_FLAGS.split(), java_flag),
    **dict.fromkeys(_INTS.split(), java_int),
    **dict.fromkeys(_LONGS.split(), java_long),
    **dict.fromkeys(_NUMBERS.split(), number),
    **dict.fromkeys(_TEXTS.split(), str),
    "brokerServicePortTls": port,
    "webServicePortTls": port,
    "zookeeperSessionExpiredPolicy": one_of("reconnect", "shutdown"),
    "topicsPatternRegexImplementation": one_of("RE2J", "JDK", "RE2J_WITH_JDK_FALLBACK"),
    "loadBalancerServiceUnitTableViewSyncer": one_of(
        "None", "MetadataStoreToSystemTopicSyncer", "SystemTopicToMetadataStoreSyncer"
    ),
}
_AT_LEAST_ONE: Final = (
    "managedLedgerCursorPositionFlushSeconds",
    "managedLedgerStatsPeriodSeconds",
)
_ASKS: Final = {
    "advertisedListeners": "every lookup returns advertisedAddress, whatever listener the client names",
    "transactionCoordinatorEnabled": "transactions are refused",
    "systemTopicEnabled": "topic policies are supported all the same",
    "topicLevelPoliciesEnabled": "topic policies are supported all the same",
    "managedLedgerOffloadDriver": "all ledgers stay in BookKeeper",
    "httpRequestsLimitEnabled": "the rate of HTTP requests is not limited",
    "topicsPatternRegexImplementation": "patterns run on RE2; clients filter by those that RE2 does not support",
}
"""Keys of features that this broker does not support, and what it does instead."""
_USUAL: Final = {
    "topicsPatternRegexImplementation": "re2j_with_jdk_fallback",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
}


def warnings_of(unread: Mapping[str, str], read: Iterable[str]) -> list[str]:
    """Returns a line for each key that is not supported, has an invalid value or is misspelled.

    Args:
        unread: keys that the broker does not read, with their values.
        read: the keys that it reads.
    """
    found = [
        f"{name}={unread[name]} is not supported: {instead}"
        for name, instead in _ASKS.items()
        if unread.get(name) and unread[name].lower() != _USUAL.get(name, "false")
    ]
    known = {*_PARSERS, *read}
    for name in sorted(unread):
        wrong = _invalid(name, unread[name])
        if wrong:
            found.append(f"{name}={masked(name, unread[name])}: {wrong}; ignoring the key")
        close = [] if name in known else get_close_matches(name, known, 1, SIMILAR)
        if close:
            found.append(f"unknown key {name}; did you mean {close[0]}?")
    return found


def _invalid(name: str, text: str) -> str:
    """Returns why Java's broker cannot read a value; "" if it can, or if the key is unknown."""
    if not text or name not in _PARSERS:
        return ""
    try:
        value = _PARSERS[name](text)
    except ValueError as e:
        return str(e)
    return "below 1" if name in _AT_LEAST_ONE and value < 1 else ""
