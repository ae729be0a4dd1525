"""Statistics of a whole broker in Pulsar's REST interface: `pulsar-admin broker-stats`.

    topics        namespace → bundle → persistent, non-persistent → topic → its statistics
    metrics       [{"metrics": {name: value}, "dimensions": {…}}]: namespaces, the cache, connections
    load-report   the load report for load managers

Statistics of a Java process (MBeans, Netty's allocators) are refused. Source: BrokerStatsBase.java, PulsarStats.java,
PersistentTopic.java (updateRates), StreamingStats.java, NamespaceStats.java, BrokerOperabilityMetrics.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import Conflict
from bkctl.model.bundle import Bundles
from bkdaemon.broker import stats as rest_stats
from bkdaemon.broker.cluster.load import LOAD_MANAGER, load_report
from bkdaemon.broker.rest.base import ADMIN, METHOD_NOT_ALLOWED, NOT_ACCEPTABLE, Handler, reason
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkctl.meta.documents import Json
    from bkdaemon.broker.maintained import MaintainedBroker
    from bkdaemon.broker.topic.topics import AnyTopic

STATS: Final = f"{ADMIN}/broker-stats"
ALLOCATORS: Final = ("default", "ml-cache")
_PUBLISHER: Final = (
    "msgRateIn", "msgThroughputIn", "averageMsgSize", "address", "producerId", "producerName", "connectedSince",
    "clientVersion", "metadata",
)  # fmt: skip
_CONSUMER: Final = (
    "address", "consumerName", "availablePermits", "connectedSince", "msgRateOut", "msgThroughputOut",
    "msgRateRedeliver", "avgMessagesPerEntry", "messageAckRate", "unackedMessages", "blockedConsumerOnUnackedMsgs",
    "clientVersion", "metadata",
)  # fmt: skip
_SHARED_ONLY: Final = ("unackedMessages", "blockedConsumerOnUnackedMsgs")
_FILTERS: Final = (
    "filterProcessedMsgCount", "filterAcceptedMsgCount", "filterRejectedMsgCount", "filterRescheduledMsgCount",
)  # fmt: skip


async def topics(service: MaintainedBroker, request: Request) -> Json:
    """Return the statistics of every open topic."""
    told: Json = {}
    known: dict[str, Bundles] = {}
    for name, topic in sorted(service.server.topics.open.items(), key=lambda one: str(one[0])):
        namespace = name.namespace_name
        if namespace not in known:
            known[namespace] = await service.backend.ownership.bundles(namespace)
        bundle = told.setdefault(namespace, {}).setdefault(known[namespace].of(str(name)).range, {"persistent": {}})
        bundle.setdefault(name.domain, {})[str(name)] = topic_figures(topic, service)
    return told


def topic_figures(topic: AnyTopic, service: MaintainedBroker) -> Json:
    """Returns one topic of GET …/broker-stats/topics."""
    stats = rest_stats.topic_stats(topic, service.rates)
    figures: Json = {
        "publishers": [_picked(one, _PUBLISHER) for one in stats["publishers"]],
        "replication": {},
        "subscriptions": {name: _subscription(topic, name, one) for name, one in stats["subscriptions"].items()},
        "producerCount": len(stats["publishers"]),
        "averageMsgSize": stats["averageMsgSize"],
        "msgRateIn": stats["msgRateIn"],
        "msgRateOut": stats["msgRateOut"],
        "msgInCount": stats["msgInCounter"],
        "bytesInCount": stats["bytesInCounter"],
        "msgOutCount": stats["msgOutCounter"],
        "bytesOutCount": stats["bytesOutCounter"],
        "msgThroughputIn": stats["msgThroughputIn"],
        "msgThroughputOut": stats["msgThroughputOut"],
    }
    if isinstance(topic, Topic):
        figures |= {key: stats[key] for key in ("storageSize", "backlogSize")}
        figures["pendingAddEntriesCount"] = topic.ledger.waiting
    return figures | {"filteredEntriesCount": 0}


def _subscription(topic: AnyTopic, name: str, stats: Json) -> Json:
    shared = stats["type"] in ("Shared", "Key_Shared")
    fields = _CONSUMER if shared else tuple(field for field in _CONSUMER if field not in _SHARED_ONLY)
    told: Json = {
        "consumers": [_picked(one, fields) for one in stats["consumers"]],
        **_picked(stats, ("msgBacklog", "msgRateExpired", "msgRateOut", "messageAckRate", "msgThroughputOut")),
        "msgRateRedeliver": stats["msgRateRedeliver"],
    }
    cursor = topic.subscriptions[name].cursor if isinstance(topic, Topic) else None
    if cursor is not None and isinstance(topic, Topic):
        told["numberOfEntriesSinceFirstNotAckedMessage"] = rest_stats.entries_passed(topic.ledger, cursor)
        told["totalNonContiguousDeletedMessagesRange"] = cursor.range_count
    told |= _picked(stats, ("type", *_FILTERS))
    if shared and cursor is not None:
        told |= _picked(stats, ("blockedSubscriptionOnUnackedMsgs", "unackedMessages"))
    return told | ({"msgDropRate": stats["msgDropRate"]} if cursor is None else {})


def _picked(stats: Json, fields: Iterable[str]) -> Json:
    """Return the statistics of a client with these names, without empty metadata."""
    return {key: stats[key] for key in fields if key in stats and (key != "metadata" or stats[key])}


async def metrics(service: MaintainedBroker, request: Request) -> list[Json]:
    """Return metrics of namespaces, the cache and connections."""
    rows: dict[str, list[Json]] = {}
    for name, topic in service.server.topics.open.items():
        figures = topic_figures(topic, service)
        rows.setdefault(name.namespace_name, []).append(figures)
    told = [_of_namespace(namespace, figures) for namespace, figures in sorted(rows.items())]
    cache = service.backend.context.cache
    hits, misses = service.rates.of("cache", "hits"), service.rates.of("cache", "misses")
    ledgers = sum(isinstance(topic, Topic) for topic in service.server.topics.open.values())
    told.append(
        {
            "metrics": {
                "brk_ml_count": ledgers,
                "brk_ml_cache_used_size": cache.tail_bytes,
                "brk_ml_cache_hits_rate": hits.messages,
                "brk_ml_cache_misses_rate": misses.messages,
            },
            "dimensions": {},
        }
    )
    dimensions = {"broker": service.config.host, "cluster": service.config.cluster}
    connections = {"brk_active_connections": len(service.server.connections)}
    told.append({"metrics": connections, "dimensions": {**dimensions, "metric": "broker_connection"}})
    return told


def _of_namespace(namespace: str, figures: list[Json]) -> Json:
    subscriptions = [one for topic in figures for one in topic["subscriptions"].values()]
    return {
        "metrics": {
            "brk_in_rate": sum(topic["msgRateIn"] for topic in figures),
            "brk_in_tp_rate": sum(topic["msgThroughputIn"] for topic in figures),
            "brk_out_rate": sum(topic["msgRateOut"] for topic in figures),
            "brk_out_tp_rate": sum(topic["msgThroughputOut"] for topic in figures),
            "brk_storage_size": sum(topic.get("storageSize", 0) for topic in figures),
            "brk_no_of_producers": sum(topic["producerCount"] for topic in figures),
            "brk_no_of_subscriptions": len(subscriptions),
            "brk_no_of_replicators": 0,
            "brk_no_of_consumers": sum(len(one["consumers"]) for one in subscriptions),
            "brk_msg_backlog": sum(one["msgBacklog"] for one in subscriptions),
            "brk_replication_backlog": 0,
            "brk_max_replication_delay_second": 0,
        },
        "dimensions": {"namespace": namespace},
    }


async def report(service: MaintainedBroker, request: Request) -> Json:
    """Returns this broker's load report."""
    return load_report(service)


async def no_mbeans(service: MaintainedBroker, request: Request) -> Response:
    """Refuse: this is not a Java process."""
    return reason(METHOD_NOT_ALLOWED, "This broker has no MBeans: it is not a Java process. See /metrics")


async def no_allocator(service: MaintainedBroker, request: Request) -> Response:
    """Refuse: this is not a Java process."""
    name = request.path_params["allocator"]
    if name not in ALLOCATORS:
        return reason(NOT_ACCEPTABLE, f"Invalid allocator name : {name}")
    return reason(METHOD_NOT_ALLOWED, "This broker has no Netty allocators: it is not a Java process. See /metrics")


async def no_bookie_operations(service: MaintainedBroker, request: Request) -> Response:
    """Refuse: bookie operations are not counted by topic."""
    return reason(METHOD_NOT_ALLOWED, "This broker does not count pending operations by topic. See /metrics")


async def availability(service: MaintainedBroker, request: Request) -> None:
    """Refuse: only Java's oldest load manager supports this."""
    raise Conflict(f"{LOAD_MANAGER} does not support this operation")


BROKER_STATS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{STATS}/topics"): topics,
    ("GET", f"{STATS}/destinations"): topics,
    ("GET", f"{STATS}/metrics"): metrics,
    ("GET", f"{STATS}/load-report"): report,
    ("GET", f"{STATS}/mbeans"): no_mbeans,
    ("GET", f"{STATS}/bookieops"): no_bookie_operations,
    ("GET", STATS + "/allocator-stats/{allocator}"): no_allocator,
    ("GET", STATS + "/broker-resource-availability/{tenant}/{namespace}"): availability,
}
