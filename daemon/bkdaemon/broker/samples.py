"""Figures of a broker in Prometheus' text format, with Pulsar's names where Pulsar has the figure.

Everything is read from counters that the parts keep anyway. Source: PrometheusMetricsGenerator.java, TopicStats.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkdaemon.broker.topic import Topic
from bkdaemon.metrics import Sample, process_samples

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService


def broker_samples(service: BrokerService) -> Iterator[Sample]:
    """Everything known of one broker."""
    cluster = ("cluster", service.config.cluster)
    topics = [topic for topic in service.server.topics.open.values() if isinstance(topic, Topic)]
    cache = service.backend.context.cache
    yield Sample("pulsar_topics_count", "gauge", len(service.server.topics.open), (cluster,))
    yield Sample("pulsar_active_connections", "gauge", len(service.server.connections), (cluster,))
    yield Sample("pulsar_ml_cache_used_size", "gauge", cache.tail_bytes, (cluster,))
    yield Sample("pulsar_ml_cache_hits", "counter", cache.hits, (cluster,))
    yield Sample("pulsar_ml_cache_misses", "counter", cache.misses, (cluster,))
    yield Sample("bkctl_ml_catch_up_cache_size", "gauge", cache.catch_up_bytes, (cluster,))
    yield Sample("bkctl_broker_bundles_owned", "gauge", len(service.backend.ownership.owned), (cluster,))
    yield from _per_topic(topics, cluster)
    yield from process_samples()


def _per_topic(topics: list[Topic], cluster: tuple[str, str]) -> Iterator[Sample]:
    labels = {
        topic: (cluster, ("namespace", topic.name.namespace_name), ("topic", str(topic.name))) for topic in topics
    }
    for topic in topics:
        yield Sample("pulsar_subscriptions_count", "gauge", len(topic.subscriptions), labels[topic])
    for topic in topics:
        yield Sample("pulsar_producers_count", "gauge", len(topic.producers.by_name), labels[topic])
    for topic in topics:
        consumers = sum(len(s.consumers) for s in topic.subscriptions.values())
        yield Sample("pulsar_consumers_count", "gauge", consumers, labels[topic])
    for topic in topics:
        yield Sample("pulsar_in_messages_total", "counter", topic.messages_in, labels[topic])
    for topic in topics:
        yield Sample("pulsar_in_bytes_total", "counter", topic.bytes_in, labels[topic])
    for topic in topics:
        yield Sample("pulsar_storage_size", "gauge", topic.ledger.ledgers.size_total, labels[topic])
    for topic in topics:
        yield Sample("pulsar_storage_backlog_size", "gauge", _backlog(topic), labels[topic])
    for topic in topics:
        for name, subscription in topic.subscriptions.items():
            label = (*labels[topic], ("subscription", name))
            yield Sample("pulsar_subscription_back_log", "gauge", subscription.cursor.backlog(), label)


def _backlog(topic: Topic) -> int:
    """Bytes behind the slowest subscription, by the share of its entries."""
    ledgers = topic.ledger.ledgers
    entries = max((s.cursor.backlog() for s in topic.subscriptions.values()), default=0)
    return ledgers.size_total * entries // max(1, ledgers.entries_total)
