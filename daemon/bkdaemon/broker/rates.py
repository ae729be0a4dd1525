"""Messages and bytes a second, of topics and of who uses them: counters compared every STATS_S, as Java does.

Source: PulsarStats.java, Rate.java.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from bkdaemon.broker.nonpersistent import NonPersistentSubscription
    from bkdaemon.broker.subscription import Subscription
    from bkdaemon.broker.topic import AnyTopic
    from bkdaemon.broker.topics import Topics

    AnySubscription: TypeAlias = Subscription | NonPersistentSubscription

STATS_S: Final = 60.0
"""As statsUpdateFrequencyInSecs."""


class Flow(NamedTuple):
    """A second's messages and bytes; or how many there were at all."""

    messages: float = 0.0
    size: float = 0.0

    @property
    def average_size(self) -> float:
        """Bytes a message, 0 where there was none."""
        return self.size / self.messages if self.messages else 0.0


NOTHING: Final = Flow()
NONE: Final[Mapping[Hashable, Flow]] = {}


class Rates:
    """What flowed between the last two looks; `of` what was not there then is nothing."""

    def __init__(self) -> None:
        self._at_ms = 0
        self._before: dict[Hashable, Flow] = {}
        self._rates: dict[Hashable, Flow] = {}

    def of(self, *key: Hashable) -> Flow:
        """The rate of ("in", topic), ("out", topic, subscription), ("producer", topic, name), ("consumer", …).

        Also ("again", topic, subscription, consumer), redeliveries; and ("lost", topic, subscription), whose messages
        are those that expired, and whose size those that a topic without storage dropped.
        """
        return self._rates.get(key, NOTHING)

    def look(self, topics: Topics, now_ms: int, others: Mapping[Hashable, Flow] = NONE) -> None:
        """Compares all counters, and others by their keys, with those of the look before."""
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
        """All topics' `in`, or `out`."""
        flows = [flow for key, flow in self._rates.items() if isinstance(key, tuple) and key[0] == way]
        return Flow(sum((f.messages for f in flows), 0.0), sum((f.size for f in flows), 0.0))


def _counters(topics: Topics) -> Iterator[tuple[Hashable, Flow]]:
    for name, topic in topics.open.items():
        yield ("in", name), Flow(topic.messages_in, topic.bytes_in)
        for producer in topic.producers.by_name.values():
            yield ("producer", name, producer.name), Flow(producer.messages_in, producer.bytes_in)
        for subscription in subscriptions_of(topic):
            yield ("out", name, subscription.name), sent(subscription)
            lost = Flow(getattr(subscription, "expired", 0), getattr(subscription, "dropped", 0))
            yield ("lost", name, subscription.name), lost
            for consumer in subscription.consumers:
                key = ("consumer", name, subscription.name, id(consumer))
                yield key, Flow(consumer.messages_out, consumer.bytes_out)
                yield ("again", *key[1:]), Flow(consumer.redelivered)


def subscriptions_of(topic: AnyTopic) -> list[AnySubscription]:
    """The subscriptions of a topic of either kind."""
    return list(topic.subscriptions.values())


def sent(subscription: AnySubscription) -> Flow:
    """What a subscription's consumers were sent since its topic was opened, those that left too."""
    left = getattr(subscription, "left", NOTHING)
    consumers = subscription.consumers
    return Flow(
        left[0] + sum(consumer.messages_out for consumer in consumers),
        left[1] + sum(consumer.bytes_out for consumer in consumers),
    )
