"""Metrics of a broker in Prometheus' text format, with Pulsar's names, types and labels where Pulsar has the metric.

Metrics that Pulsar does not have begin with bkctl_. All values are read from counters that topics and other parts have
anyway; rates are those of the last minute.
Source: PrometheusMetricsGenerator.java, TopicStats.java, NamespaceStatsAggregator.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from bkctl.codec.pulsar import SubscriptionType
from bkctl.log.backlog import bytes_behind
from bkdaemon.broker.compaction.record import LATENCIES_US, CompactionRecord
from bkdaemon.broker.stats import DELAYED_BYTES, internal_bytes, times
from bkdaemon.broker.topic.oldest import oldest_of
from bkdaemon.broker.topic.rates import subscriptions_of
from bkdaemon.broker.topic.sent import Flow, sent
from bkdaemon.broker.topic.subscription import Subscription
from bkdaemon.broker.topic.system_topics import internal_topic
from bkdaemon.broker.topic.topic import Topic
from bkdaemon.prometheus import Sample, process_samples

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker
    from bkdaemon.broker.topic.nonpersistent import NonPersistentSubscription
    from bkdaemon.broker.topic.topics import AnyTopic

    AnySubscription: TypeAlias = Subscription | NonPersistentSubscription

Labels: TypeAlias = tuple[tuple[str, str], ...]


class _SubscriptionRow(NamedTuple):
    """The metrics of one subscription."""

    labels: Labels
    backlog: int
    backlog_bytes: int
    flow: Flow
    ever: Flow
    consumers: int
    unacked: int
    blocked: bool
    expired: int
    expired_ms: int
    waiting: tuple[int, int]
    again: float
    acked: float
    lost: Flow
    times: dict[str, int]


class _TopicRow(NamedTuple):
    """The metrics of one topic and its subscriptions."""

    labels: Labels
    topic: AnyTopic
    flow: Flow
    stored: Flow
    size: int
    copies: int
    subscriptions: list[_SubscriptionRow]

    @property
    def out(self) -> Flow:
        return Flow(sum(s.flow.messages for s in self.subscriptions), sum(s.flow.size for s in self.subscriptions))

    @property
    def consumers(self) -> int:
        return sum(s.consumers for s in self.subscriptions)


def broker_samples(service: MaintainedBroker) -> Iterator[Sample]:
    """Returns all metrics of one broker."""
    cluster = ("cluster", service.config.cluster)
    rows = [_row(service, topic, cluster) for topic in list(service.server.topics.open.values())]
    yield from _broker(service, rows, (cluster,))
    for namespace, count in Counter(row.topic.name.namespace_name for row in rows).items():
        yield Sample("pulsar_topics_count", "gauge", count, (cluster, ("namespace", namespace)))
    yield from _table(rows, TOPIC_FIGURES)
    yield from _table([row for row in rows if isinstance(row.topic, Topic)], STORED_FIGURES)
    yield from _compactions(service, rows)
    yield from _table([one for row in rows for one in row.subscriptions], SUBSCRIPTION_FIGURES)
    yield from process_samples()


_Row = TypeVar("_Row", _TopicRow, _SubscriptionRow)


def _table(rows: Iterable[_Row], figures: dict[str, Callable[[_Row], float]]) -> Iterator[Sample]:
    """Yield the samples of each metric together, as the format requires."""
    rows = list(rows)
    for name, figure in figures.items():
        for row in rows:
            yield Sample(name, "gauge", figure(row), row.labels)


def _row(service: MaintainedBroker, topic: AnyTopic, cluster: tuple[str, str]) -> _TopicRow:
    labels = (cluster, ("namespace", topic.name.namespace_name), ("topic", str(topic.name)))
    log = topic.ledger if isinstance(topic, Topic) else None
    return _TopicRow(
        labels,
        topic,
        service.rates.of("in", topic.name),
        service.rates.of("stored", topic.name),
        log.ledgers.size_total if log is not None else 0,
        log.settings.write_quorum_size if log is not None else 0,
        [_subscription(service, topic, one, labels) for one in subscriptions_of(topic)],
    )


def _subscription(service: MaintainedBroker, topic: AnyTopic, one: AnySubscription, labels: Labels) -> _SubscriptionRow:
    cursor = getattr(one, "cursor", None)
    behind = bytes_behind(topic.ledger.ledgers, cursor.mark_delete) if cursor and isinstance(topic, Topic) else 0
    many = one.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
    return _SubscriptionRow(
        (*labels, ("subscription", one.name)),
        cursor.backlog() if cursor is not None else 0,
        behind,
        service.rates.of("out", topic.name, one.name),
        sent(one),
        len(one.consumers),
        sum(consumer.unacked for consumer in one.consumers),
        many and bool(one.consumers) and all(consumer.blocked for consumer in one.consumers),
        getattr(one, "expired", 0),
        getattr(one, "expired_ms", 0),
        one.dispatcher.waiting if isinstance(one, Subscription) and one.dispatcher is not None else (0, 0),
        _rate_of_consumers(service, "again", one),
        _rate_of_consumers(service, "acked", one),
        service.rates.of("lost", topic.name, one.name),
        times(one),
    )


def _rate_of_consumers(service: MaintainedBroker, what: str, one: AnySubscription) -> float:
    rates, name = service.rates, one.topic.name
    return sum((rates.of(what, name, one.name, id(consumer)).messages for consumer in one.consumers), 0.0)


def _bytes_ever(rows: list[_TopicRow], cluster: Labels) -> Iterator[Sample]:
    """Yields bytes received and sent since the topics were opened, those of the system's own topics separately."""
    came = sum(row.topic.bytes_in for row in rows)
    own_came = sum(row.topic.bytes_in for row in rows if _is_systems(row))
    went = sum(row.topic.sent_before.size + sum(int(one.ever.size) for one in row.subscriptions) for row in rows)
    own_went = sum(internal_bytes(row.topic) for row in rows)
    for name, label, whole, own in (
        ("pulsar_broker_in_bytes_total", "system_topic", came, own_came),
        ("pulsar_broker_out_bytes_total", "system_subscription", went, own_went),
    ):
        yield Sample(name, "gauge", whole - own, (*cluster, (label, "false")))
        yield Sample(name, "gauge", own, (*cluster, (label, "true")))


def _is_systems(row: _TopicRow) -> bool:
    return row.topic.persistent and internal_topic(row.topic.name)


def _broker(service: MaintainedBroker, rows: list[_TopicRow], cluster: Labels) -> Iterator[Sample]:
    arriving, leaving = service.rates.total("in"), service.rates.total("out")
    hits, misses = service.rates.of("cache", "hits"), service.rates.of("cache", "misses")
    cache = service.backend.context.cache
    every = [one for row in rows for one in row.subscriptions]
    for name, value in (
        ("pulsar_broker_topics_count", len(rows)),
        ("pulsar_broker_subscriptions_count", len(every)),
        ("pulsar_broker_producers_count", sum(len(row.topic.producers.by_name) for row in rows)),
        ("pulsar_broker_consumers_count", sum(one.consumers for one in every)),
        ("pulsar_broker_rate_in", arriving.messages),
        ("pulsar_broker_rate_out", leaving.messages),
        ("pulsar_broker_throughput_in", arriving.size),
        ("pulsar_broker_throughput_out", leaving.size),
        ("pulsar_broker_msg_backlog", sum(one.backlog for one in every)),
        ("pulsar_broker_storage_logical_size", sum(row.size for row in rows)),
        ("pulsar_broker_storage_size", sum(row.size * row.copies for row in rows)),
        ("pulsar_broker_storage_write_rate", sum(row.stored.messages for row in rows)),
        ("pulsar_ml_count", sum(isinstance(row.topic, Topic) for row in rows)),
        ("pulsar_ml_cache_used_size", cache.tail_bytes),
        ("pulsar_ml_cache_hits_rate", hits.messages),
        ("pulsar_ml_cache_misses_rate", misses.messages),
    ):
        yield Sample(name, "gauge", value, cluster)
    yield from _bytes_ever(rows, cluster)
    for kind, count in service.upkeep.evictions.items():
        name = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
        yield Sample(name, "gauge", count, (*cluster, ("quota_type", kind)))
    here = (*cluster, ("broker", service.config.host))
    connected = (*here, ("metric", "broker_connection"))
    yield Sample("pulsar_active_connections", "gauge", len(service.server.connections), connected)
    yield Sample("bkctl_broker_unfinished_frame_bytes", "gauge", service.server.unfinished.size, cluster)
    balance = (*here, ("metric", "loadBalancing"))
    yield Sample("pulsar_lb_cpu_usage", "gauge", service.meter.cpu, balance)
    yield Sample("pulsar_lb_bandwidth_in_usage", "gauge", arriving.size * 8 / 1000, balance)
    yield Sample("pulsar_lb_bandwidth_out_usage", "gauge", leaving.size * 8 / 1000, balance)
    yield Sample("bkctl_lb_bundles_split_total", "counter", service.balancer.split, cluster)
    yield Sample("bkctl_lb_bundles_unloaded_total", "counter", service.balancer.unloaded, cluster)
    for kind, count in service.watch.stalls.items():
        yield Sample("bkctl_broker_stalls_total", "counter", count, (*cluster, ("kind", kind)))
    yield Sample("bkctl_broker_standing_still", "gauge", service.watch.still, cluster)
    yield Sample("bkctl_ml_cache_hits_total", "counter", cache.hits, cluster)
    yield Sample("bkctl_ml_skipped_entries_total", "counter", cache.skipped, cluster)
    yield Sample("bkctl_ml_cache_misses_total", "counter", cache.misses, cluster)
    yield Sample("bkctl_ml_catch_up_cache_size", "gauge", cache.catch_up_bytes, cluster)
    yield Sample("bkctl_broker_bundles_owned", "gauge", len(service.backend.ownership.owned), cluster)


def _compactions(service: MaintainedBroker, rows: list[_TopicRow]) -> Iterator[Sample]:
    """Yields the metrics of topics that were compacted since they were opened, as Java does."""
    compacted = [row for row in rows if isinstance(row.topic, Topic) and row.topic.compaction.record.ran]
    yield from _table(compacted, COMPACTION_FIGURES)
    for way in ("read", "write"):
        for row in compacted:
            flow = service.rates.of(f"compaction {way}", row.topic.name)
            yield Sample(f"pulsar_compaction_{way}_throughput", "gauge", flow.size, row.labels)
    taken = [(_record(row).take_latencies(), row.labels) for row in compacted]
    for index, bound in enumerate(COMPACTION_LATENCIES):
        for latencies, labels in taken:
            yield Sample(f"pulsar_compaction_latency_{bound}", "gauge", latencies.buckets[index], labels)
    for latencies, labels in taken:
        yield Sample("pulsar_compaction_latency_sum", "gauge", latencies.total_us, labels)
    for latencies, labels in taken:
        yield Sample("pulsar_compaction_latency_count", "gauge", sum(latencies.buckets), labels)


def _record(row: _TopicRow) -> CompactionRecord:
    assert isinstance(row.topic, Topic)
    return row.topic.compaction.record


def _backlog_age_s(row: _TopicRow) -> int:
    """Returns the age of the oldest backlog in seconds; -1 if it is not known."""
    assert isinstance(row.topic, Topic)
    oldest = oldest_of(row.topic)
    return -1 if oldest is None else oldest.age_s(row.topic.now_ms())


def _compacted(row: _TopicRow) -> tuple[int, int]:
    """Returns entries and bytes of the compacted ledger."""
    found = row.topic.compaction.opened if isinstance(row.topic, Topic) else None
    return (found.entries, found.size) if found is not None else (0, 0)


COMPACTION_FIGURES: Final[dict[str, Callable[[_TopicRow], float]]] = {
    "pulsar_compaction_removed_event_count": lambda row: _record(row).removed_total,
    "pulsar_compaction_succeed_count": lambda row: _record(row).succeeded,
    "pulsar_compaction_failed_count": lambda row: _record(row).failed,
    "pulsar_compaction_duration_time_in_mills": lambda row: _record(row).duration_total_ms,
    "pulsar_compaction_compacted_entries_count": lambda row: _compacted(row)[0],
    "pulsar_compaction_compacted_entries_size": lambda row: _compacted(row)[1],
}
COMPACTION_LATENCIES: Final = (*(f"le_{us / 1000:g}".replace(".", "_") for us in LATENCIES_US), "overflow")
TOPIC_FIGURES: Final[dict[str, Callable[[_TopicRow], float]]] = {
    "pulsar_subscriptions_count": lambda row: len(row.subscriptions),
    "pulsar_producers_count": lambda row: len(row.topic.producers.by_name),
    "pulsar_consumers_count": lambda row: row.consumers,
    "pulsar_rate_in": lambda row: row.flow.messages,
    "pulsar_rate_out": lambda row: row.out.messages,
    "pulsar_throughput_in": lambda row: row.flow.size,
    "pulsar_throughput_out": lambda row: row.out.size,
    "pulsar_average_msg_size": lambda row: row.flow.average_size,
    "pulsar_in_messages_total": lambda row: row.topic.messages_in,
    "pulsar_in_bytes_total": lambda row: row.topic.bytes_in,
    "pulsar_msg_backlog": lambda row: sum(one.backlog for one in row.subscriptions),
    "pulsar_storage_logical_size": lambda row: row.size,
    "pulsar_storage_size": lambda row: row.size * row.copies,
    "pulsar_storage_backlog_size": lambda row: max((one.backlog_bytes for one in row.subscriptions), default=0),
    "pulsar_publish_rate_limit_times": lambda row: row.topic.limits.publish_waits,
    "pulsar_delayed_message_index_size_bytes": (
        lambda row: DELAYED_BYTES * sum(one.waiting[0] for one in row.subscriptions)
    ),
}
STORED_FIGURES: Final[dict[str, Callable[[_TopicRow], float]]] = {
    "pulsar_storage_backlog_age_seconds": _backlog_age_s,
    "pulsar_storage_write_rate": lambda row: row.stored.messages,
}
"""Of topics that store something."""
SUBSCRIPTION_FIGURES: Final[dict[str, Callable[[_SubscriptionRow], float]]] = {
    "pulsar_subscription_back_log": lambda row: row.backlog,
    "pulsar_subscription_back_log_no_delayed": lambda row: row.backlog - row.waiting[0],
    "pulsar_subscription_delayed": lambda row: row.waiting[0],
    "pulsar_subscription_delayed_message_index_size_bytes": lambda row: row.waiting[0] * DELAYED_BYTES,
    "pulsar_subscription_in_replay": lambda row: row.waiting[1],
    "pulsar_subscription_msg_rate_redeliver": lambda row: row.again,
    "pulsar_subscription_msg_ack_rate": lambda row: row.acked,
    "pulsar_subscription_msg_rate_expired": lambda row: row.lost.messages,
    "pulsar_subscription_msg_drop_rate": lambda row: row.lost.size,
    "pulsar_subscription_last_acked_timestamp": lambda row: row.times["lastAckedTimestamp"],
    "pulsar_subscription_last_consumed_timestamp": lambda row: row.times["lastConsumedTimestamp"],
    "pulsar_subscription_last_consumed_flow_timestamp": lambda row: row.times["lastConsumedFlowTimestamp"],
    "pulsar_subscription_last_mark_delete_advanced_timestamp": (
        lambda row: row.times["lastMarkDeleteAdvancedTimestamp"]
    ),
    "pulsar_subscription_consumers_count": lambda row: row.consumers,
    "pulsar_subscription_unacked_messages": lambda row: row.unacked,
    "pulsar_subscription_blocked_on_unacked_messages": lambda row: row.blocked,
    "pulsar_subscription_msg_rate_out": lambda row: row.flow.messages,
    "pulsar_subscription_msg_throughput_out": lambda row: row.flow.size,
    "pulsar_subscription_total_msg_expired": lambda row: row.expired,
    "pulsar_subscription_last_expire_timestamp": lambda row: row.expired_ms,
    "pulsar_out_messages_total": lambda row: row.ever.messages,
    "pulsar_out_bytes_total": lambda row: row.ever.size,
}
