"""Messages and bytes a second of topics and their clients: differences of counters, as in Java.

Source: PulsarStats.java, Rate.java.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from bkdaemon.broker.topic.sent import Flow, sent

if TYPE_CHECKING:
    from bkdaemon.broker.topic.nonpersistent import NonPersistentSubscription
    from bkdaemon.broker.topic.subscription import Subscription
    from bkdaemon.broker.topic.topic import Topic
    from bkdaemon.broker.topic.topics import AnyTopic, Topics

    AnySubscription: TypeAlias = Subscription | NonPersistentSubscription

NOTHING: Final = Flow()
NONE: Final[Mapping[Hashable, Flow]] = {}


class Rates:
    """The rates between the last two updates; 0 for what did not exist then.

    Args:
        since_ms: when all counters were 0; 0 if that is unknown, so that only the second update has rates.
    """

    def __init__(self, since_ms: int = 0) -> None:
        self._at_ms = since_ms
        self._before: dict[Hashable, Flow] = {}
        self._rates: dict[Hashable, Flow] = {}

    def of(self, *key: Hashable) -> Flow:
        """Returns the rate of ("in", topic), ("out", topic, subscription), ("producer", topic, name), ("consumer", …).

        Also ("again", topic, subscription, consumer), redeliveries; and ("lost", topic, subscription), whose messages
        have expired, and whose size are messages that a non-persistent topic dropped; ("acked", topic,
        subscription, consumer), whose messages were acknowledged, and whose size are chunks that the consumer was sent;
        ("chunked", topic, producer); ("stored", topic), whose messages are entries.
        """
        return self._rates.get(key, NOTHING)

    def update(self, topics: Topics, now_ms: int, others: Mapping[Hashable, Flow] = NONE) -> None:
        """Compares all counters, and others by their keys, with those of the last update."""
        counters = {**dict(_counters(topics)), **others}
        elapsed_s = (now_ms - self._at_ms) / 1000
        if elapsed_s > 0 and self._at_ms:
            self._rates = {
                key: Flow(
                    max(0.0, (now.messages - before.messages) / elapsed_s),
                    max(0.0, (now.size - before.size) / elapsed_s),
                )
                for key, now in counters.items()
                for before in (self._before.get(key, NOTHING),)
            }
        self._before, self._at_ms = counters, now_ms

    def total(self, way: str) -> Flow:
        """Returns the sum of all topics' "in" or "out"."""
        flows = [flow for key, flow in self._rates.items() if isinstance(key, tuple) and key[0] == way]
        return Flow(sum((f.messages for f in flows), 0.0), sum((f.size for f in flows), 0.0))


def _counters(topics: Topics) -> Iterator[tuple[Hashable, Flow]]:
    for name, topic in topics.open.items():
        yield ("in", name), Flow(topic.messages_in, topic.bytes_in)
        if topic.persistent:
            yield ("stored", name), Flow(cast("Topic", topic).ledger.added)
        for producer in topic.producers.by_name.values():
            yield ("producer", name, producer.name), Flow(producer.messages_in, producer.bytes_in)
            yield ("chunked", name, producer.name), Flow(producer.chunks_in)
        for subscription in subscriptions_of(topic):
            yield ("out", name, subscription.name), sent(subscription)
            lost = Flow(getattr(subscription, "expired", 0), getattr(subscription, "dropped", 0))
            yield ("lost", name, subscription.name), lost
            for consumer in subscription.consumers:
                key = ("consumer", name, subscription.name, id(consumer))
                yield key, Flow(consumer.messages_out, consumer.bytes_out)
                yield ("again", *key[1:]), Flow(consumer.redelivered)
                yield ("acked", *key[1:]), Flow(consumer.messages_acked, consumer.chunks_out)


def subscriptions_of(topic: AnyTopic) -> list[AnySubscription]:
    """Returns the subscriptions of a topic, persistent or not."""
    return list(topic.subscriptions.values())
