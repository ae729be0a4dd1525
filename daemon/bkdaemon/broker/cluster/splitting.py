"""Selects the positions at which a bundle is split: by one of Pulsar's four algorithms, by default that of broker.conf.

    range_equally_divide          into halves
    topic_count_equally_divide    between its topics, as many on each side
    specified_positions_divide    at given positions
    flow_or_qps_equally_divide    where the traffic since the last position would exceed the limits of a bundle

Source: NamespaceBundleSplitAlgorithm.java and its implementations, NamespaceService.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bkctl.errors import Refused
from bkctl.model.bundle import hash_of, inside
from bkdaemon.broker.config import MIB, SPLIT_ALGORITHMS
from bkdaemon.broker.topic.rates import subscriptions_of

if TYPE_CHECKING:
    from bkctl.model.bundle import Bundle
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.cluster.broker import Broker

HALVES, BY_TOPICS, AT_PLACES, BY_FLOW = SPLIT_ALGORITHMS


async def places_of(broker: Broker, bundle: Bundle, algorithm: str = "", asked: Sequence[int] = ()) -> Sequence[int]:
    """Returns the positions at which a bundle is to be split; () if it cannot be divided.

    Raises:
        Refused: the algorithm needs given positions, and none is given.
    """
    algorithm = algorithm or broker.config.split_algorithm
    if algorithm == HALVES:
        return (bundle.lower + (bundle.upper - bundle.lower) // 2,)
    if algorithm == AT_PLACES and not asked:
        raise Refused(f"With {AT_PLACES} split algorithm, splitBoundaries must not be empty")
    stored = await broker.backend.meta.topics.topics(bundle.namespace)
    passing = [topic for topic in broker.server.topics.open if topic.namespace_name == bundle.namespace]
    topics = {topic for topic in (*stored, *passing) if inside(topic, bundle)}
    if len(topics) < 2:
        return ()
    if algorithm == BY_FLOW:
        found: Sequence[int] = _by_flow(broker, topics)
    elif algorithm == BY_TOPICS:
        hashes = sorted(hash_of(str(topic)) for topic in topics)
        before, behind = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
        found = (before + (behind - before) // 2,)
    else:
        found = sorted(asked)
    return tuple(place for place in found if bundle.lower < place < bundle.upper)


def _by_flow(broker: Broker, topics: set[TopicName]) -> list[int]:
    config = broker.config
    rate_max, size_max = config.split_message_rate, config.split_mb * MIB
    flows: dict[int, tuple[float, float]] = {}
    for topic in topics:
        rate, size = _flow(broker, topic)
        if rate > 0 or size > 0:
            flows[hash_of(str(topic))] = rate, size
    slack = 1 + config.split_slack_percentage / 100
    total_rate, total_size = (sum(flow[i] for flow in flows.values()) for i in range(2))
    if len(flows) < 2 or (total_rate < rate_max * slack and total_size < size_max * slack):
        return []
    places: list[int] = []
    hashes = sorted(flows)
    rate, size = flows[hashes[0]]
    for before, place in pairwise(hashes):
        more_rate, more_size = flows[place]
        if rate + more_rate > rate_max or size + more_size > size_max:
            places.append(before + (place - before) // 2 + 1)
            rate, size = more_rate, more_size
        else:
            rate, size = rate + more_rate, size + more_size
    return places


def _flow(broker: Broker, name: TopicName) -> tuple[float, float]:
    """Returns messages and bytes a second, to and from a topic; 0 for a topic that is not open here."""
    topic = broker.server.topics.open.get(name)
    if topic is None:
        return 0.0, 0.0
    leaving = [broker.rates.of("out", name, subscription.name) for subscription in subscriptions_of(topic)]
    flows = [broker.rates.of("in", name), *leaving]
    return float(sum(flow.messages for flow in flows)), float(sum(flow.size for flow in flows))
