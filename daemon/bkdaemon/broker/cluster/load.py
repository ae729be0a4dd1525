"""The load report of a broker, as Java's load managers and tools read it. Source: LocalBrokerData.java."""

from __future__ import annotations

import os
import resource
import sys
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from bkctl.model.bundle import Bundle, hash_of
from bkdaemon.broker.cluster.own_backend import SERVER_VERSION
from bkdaemon.broker.topic.rates import NOTHING, subscriptions_of
from bkdaemon.broker.topic.sent import Flow

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.cluster.broker import Broker

MIB: Final = 1024 * 1024
LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
ONE_CORE: Final = 100.0
"""Percent of CPU that the event loop can use, on any number of cores, which is its full load."""
UNLIMITED: Final = -1000.0
"""Java's value if the speed of the network is unknown."""


def load_report(broker: Broker) -> dict[str, Any]:
    """Returns the value of /loadbalance/brokers/host:port."""
    address, topics = broker.backend.ownership.address, broker.server.topics.open
    unit = 1 if sys.platform == "darwin" else 1024
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB
    memory = {"usage": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB, "limit": machine}
    cpu = {"usage": min(broker.meter.cpu, ONE_CORE), "limit": ONE_CORE}
    bundles = sorted(map(str, broker.backend.ownership.owned))
    arriving, leaving = broker.rates.total("in"), broker.rates.total("out")
    consumers = sum(len(s.consumers) for topic in topics.values() for s in subscriptions_of(topic))
    return {
        "webServiceUrl": address.http_url,
        "pulsarServiceUrl": address.native_url,
        "persistentTopicsEnabled": broker.config.persistent_topics,
        "nonPersistentTopicsEnabled": broker.config.nonpersistent_topics,
        "cpu": cpu,
        "memory": memory,
        "directMemory": {
            "usage": broker.backend.context.cache.tail_bytes / MIB,
            "limit": float(broker.config.cache_mb),
        },
        "bandwidthIn": {"usage": arriving.size * 8 / 1000, "limit": UNLIMITED},
        "bandwidthOut": {"usage": leaving.size * 8 / 1000, "limit": UNLIMITED},
        "msgThroughputIn": arriving.size,
        "msgThroughputOut": leaving.size,
        "msgRateIn": arriving.messages,
        "msgRateOut": leaving.messages,
        "lastUpdate": broker.world.clock.now_ms(),
        "lastStats": bundle_stats(broker),
        "numTopics": len(topics),
        "numBundles": len(bundles),
        "numConsumers": consumers,
        "numProducers": sum(len(topic.producers.by_name) for topic in topics.values()),
        "bundles": bundles,
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": SERVER_VERSION,
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": LOAD_MANAGER,
        "startTimestamp": broker.started_ms,
        "maxResourceUsage": min(1.0, cpu["usage"] / cpu["limit"]),
        "loadReportType": "LocalBrokerData",
    }


def bundle_stats(broker: Broker) -> dict[str, dict[str, Any]]:
    """Return the statistics of each bundle of this broker that has topics."""
    owned: dict[str, list[Bundle]] = {}
    for bundle in sorted(broker.backend.ownership.owned):
        owned.setdefault(bundle.namespace, []).append(bundle)
    told: dict[str, dict[str, Any]] = {}
    for name, topic in broker.server.topics.open.items():
        mine = _of(name, owned.get(name.namespace_name, []))
        if mine is None:
            continue
        one = told.setdefault(str(mine), dict(EMPTY_BUNDLE))
        arriving, leaving = broker.rates.of("in", name), NOTHING
        for subscription in subscriptions_of(topic):
            flow = broker.rates.of("out", name, subscription.name)
            leaving = Flow(leaving.messages + flow.messages, leaving.size + flow.size)
            one["consumerCount"] += len(subscription.consumers)
        one["producerCount"] += len(topic.producers.by_name)
        one["topics"] += 1
        one["msgRateIn"] += arriving.messages
        one["msgThroughputIn"] += arriving.size
        one["msgRateOut"] += leaving.messages
        one["msgThroughputOut"] += leaving.size
    return told


def _of(topic: TopicName, bundles: list[Bundle]) -> Bundle | None:
    """Returns the bundle of a topic, among the sorted bundles of its namespace."""
    place = hash_of(str(topic))
    index = bisect_right(bundles, place, key=_lower) - 1
    return bundles[index] if index >= 0 and bundles[index].holds(place) else None


_lower = attrgetter("lower")


EMPTY_BUNDLE: Final[dict[str, Any]] = {
    "msgRateIn": 0.0,
    "msgThroughputIn": 0.0,
    "msgRateOut": 0.0,
    "msgThroughputOut": 0.0,
    "consumerCount": 0,
    "producerCount": 0,
    "topics": 0,
    "cacheSize": 0,
}
