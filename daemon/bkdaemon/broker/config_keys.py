"""Keys of broker.conf that Pulsar 4.0.7 knows and this broker does not read: what their values must be.

They are taken, so that one file serves Java's brokers and ours; but not with a value that keeps Java's broker from
starting, which is a slip wherever it stands. A key that nobody knows is taken too, as plug-ins bring their own; one
that is nearly a known one is told. Source: ServiceConfiguration.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from bkctl.errors import UsageError
from bkdaemon.properties import java_flag, java_int, java_long, number, one_of, port

STRATEGIES: Final = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
SIMILAR: Final = 0.9
"""How much of two keys is the same, for one to be a slip of the other."""
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
    subscriptionKeySharedUseConsistentHashing
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
    healthCheckMetricsUpdateTimeInSeconds httpMaxRequestHeaderSize
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
    maxHttpServerConnections
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
    dispatchThrottlingRatePerReplicatorInByte httpMaxRequestSize inflightSaslContextExpiryMs
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
    "authenticationEnabled": "everybody who reaches it may do everything",
    "authorizationEnabled": "everybody who reaches it may do everything",
    "brokerServicePortTls": "it listens without TLS alone",
    "webServicePortTls": "it listens without TLS alone",
    "advertisedListeners": "clients are told of one address, whatever listener they ask for",
    "transactionCoordinatorEnabled": "transactions are refused",
    "systemTopicEnabled": "topics have policies of their own all the same",
    "topicLevelPoliciesEnabled": "topics have policies of their own all the same",
    "managedLedgerOffloadDriver": "everything stays in BookKeeper",
}
"""Keys by which a file can ask for what this broker does not do, and what it does."""
_USUAL: Final = {
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
}


def check_unread(properties: Mapping[str, tuple[str, int]], source: str) -> None:
    """Looks at the values of keys that are not read: key → (value, line) of a file.

    Raises:
        UsageError: Java's broker could not read one.
    """
    for name, (text, line) in properties.items():
        if not text or name not in _PARSERS:
            continue
        try:
            value = _PARSERS[name](text)
        except ValueError as e:
            raise UsageError(f"{source}:{line}: {name}={text}: {e}") from None
        if name in _AT_LEAST_ONE and value < 1:
            raise UsageError(f"{source}:{line}: {name}={text} is below 1")


def warnings_of(unread: Mapping[str, str], read: Iterable[str]) -> list[str]:
    """What is to be said of keys that are not read: what they ask for in vain, and which are slips.

    Args:
        unread: keys and values.
        read: the keys that are.
    """
    told = [
        f"{name}={unread[name]} is not held to: {instead}"
        for name, instead in _ASKS.items()
        if unread.get(name) and unread[name].lower() != _USUAL.get(name, "false")
    ]
    known = {*_PARSERS, *read}
    for name in sorted(unread.keys() - known):
        close = get_close_matches(name, known, 1, SIMILAR)
        if close:
            told.append(f"there is no key {name}; is {close[0]} meant?")
    return told
