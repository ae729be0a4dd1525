"""What a broker tells of its load, as Java's load managers and tools read it. Source: LocalBrokerData.java."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, Final

from bkdaemon.broker.own_backend import SERVER_VERSION

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

MIB: Final = 1024 * 1024
LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"


def load_report(service: BrokerService) -> dict[str, Any]:
    """The value of /loadbalance/brokers/host:port. Rates are not measured, and told as 0."""
    address, topics = service.backend.ownership.address, service.server.topics.open
    used = resource.getrusage(resource.RUSAGE_SELF)
    cores = os.cpu_count() or 1
    elapsed_s = max(1.0, (service.world.clock.now_ms() - service.started_ms) / 1000)
    cpu = 100 * (used.ru_utime + used.ru_stime) / elapsed_s
    memory = {"usage": used.ru_maxrss / 1024, "limit": 1024.0 * 64}
    bundles = sorted(map(str, service.backend.ownership.owned))
    subscriptions = [s for topic in topics.values() for s in getattr(topic, "subscriptions", {}).values()]
    return {
        "webServiceUrl": address.http_url,
        "pulsarServiceUrl": address.native_url,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "cpu": {"usage": cpu, "limit": 100.0 * cores},
        "memory": memory,
        "directMemory": {
            "usage": service.backend.context.cache.tail_bytes / MIB,
            "limit": float(service.config.cache_mb),
        },
        "bandwidthIn": {"usage": 0.0, "limit": -1000.0},
        "bandwidthOut": {"usage": 0.0, "limit": -1000.0},
        "msgThroughputIn": 0.0,
        "msgThroughputOut": 0.0,
        "msgRateIn": 0.0,
        "msgRateOut": 0.0,
        "lastUpdate": service.world.clock.now_ms(),
        "lastStats": {},
        "numTopics": len(topics),
        "numBundles": len(bundles),
        "numConsumers": sum(len(s.consumers) for s in subscriptions),
        "numProducers": sum(len(topic.producers.by_name) for topic in topics.values()),
        "bundles": bundles,
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": SERVER_VERSION,
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": LOAD_MANAGER,
        "startTimestamp": service.started_ms,
        "maxResourceUsage": min(1.0, cpu / (100.0 * cores)),
        "loadReportType": "LocalBrokerData",
    }
