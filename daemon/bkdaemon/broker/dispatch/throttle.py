"""Rate limits: token buckets for publishing, dispatching and subscribing.

    spend     takes what was let through; a bucket may go into debt, by one entry as a rule
    wait_s    how long the debt lasts: until then nothing more is let through

Who waits holds nothing but what had arrived already: a connection is read no further, a dispatcher reads nothing.
Source: AsyncTokenBucket.java, PublishRateLimiterImpl.java, DispatchRateLimiter.java, SubscribeRateLimiter.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from bkdaemon.broker.dispatch.unacked import UnackedLimit
from bkdaemon.broker.rules import Rate

if TYPE_CHECKING:
    from bkctl.protocol.broker import Sends
    from bkdaemon.broker.config import BrokerConfig
    from bkdaemon.broker.rules import TopicRules

CONSUMERS_MAX: Final = 10_000
"""Of one topic, whose subscriptions are counted; with more the count restarts."""
UNLIMITED: Final = 1 << 62
CLOCK_S: Final = 0.001
"""The resolution of clocks: no wait is shorter."""
RECHECK_S: Final = 1.0
"""A waiting caller checks again after this time, as the rate may have changed."""


class Bucket:
    """Holds one rate; full at first, and never fuller than one period's worth.

    Attributes:
        rate: the limit.
        whose: Topic, Subscription, Broker, as statistics name it.
    """

    __slots__ = ("_at", "_clock", "_messages", "_size", "rate", "whose")

    def __init__(self, rate: Rate, clock: Callable[[], float], whose: str = "Topic") -> None:
        self.rate = rate
        self.whose = whose
        self._clock = clock
        self._at = clock()
        self._messages, self._size = rate.messages, rate.size

    def _fill(self) -> None:
        now = self._clock()
        periods = max(now - self._at, 0.0) / max(self.rate.period_s, 0.001)
        self._at = now
        self._messages = min(self._messages + periods * self.rate.messages, self.rate.messages)
        self._size = min(self._size + periods * self.rate.size, self.rate.size)

    def spend(self, messages: int, size: int) -> None:
        """Takes what was let through."""
        self._fill()
        if self.rate.messages > 0:
            self._messages -= messages
        if self.rate.size > 0:
            self._size -= size

    @property
    def wait_s(self) -> float:
        """Seconds until something may pass, 0 for now."""
        self._fill()
        rate, wait = self.rate, 0.0
        if rate.messages > 0 and self._messages < 1:
            wait = (1 - self._messages) / rate.messages
        if rate.size > 0 and self._size < 1:
            wait = max(wait, (1 - self._size) / rate.size)
        return wait * rate.period_s

    @property
    def left(self) -> tuple[int, int]:
        """Messages and bytes that may pass now."""
        self._fill()
        rate = self.rate
        messages = max(int(self._messages), 0) if rate.messages > 0 else UNLIMITED
        return messages, max(int(self._size), 0) if rate.size > 0 else UNLIMITED


Limits = tuple[Bucket, ...]


def limited(old: Limits, rates: Iterable[Rate | None], clock: Callable[[], float], whose: str = "Topic") -> Limits:
    """Returns buckets for the limits; a bucket with the same rate is kept, with its debt."""
    known = {bucket.rate: bucket for bucket in old}
    wanted = [rate for rate in rates if rate is not None and rate.limits]
    return tuple(known.get(rate) or Bucket(rate, clock, whose) for rate in wanted)


def wait_s(limits: Limits, counted: dict[str, int] | None = None) -> float:
    """Returns the seconds until the next check, 0 if all buckets allow a message now.

    A wait is counted, by what was reached: "MsgEventsByTopicLimit" and so on.
    """
    longest = 0.0
    for bucket in limits:
        wait = bucket.wait_s
        if wait > 0:
            longest = max(longest, wait)
            if counted is not None:
                messages, size = bucket.left
                for what in ("Msg",) * (messages < 1) + ("Bytes",) * (size < 1):
                    key = f"{what}EventsBy{bucket.whose}Limit"
                    counted[key] = counted.get(key, 0) + 1
    return min(max(longest, CLOCK_S), RECHECK_S) if longest else 0.0


def take(limits: Limits, event: Sends) -> tuple[Sends, Sends]:
    """Splits a producer's sends into those allowed now, which are spent, and those that have to wait."""
    sends, count, size = event.sends, 0, 0
    for send in sends:
        if any(bucket.wait_s > 0 for bucket in limits):
            break
        for bucket in limits:
            bucket.spend(max(send[2], 1), len(send[3]))
        count += 1
        size += len(send[3])
    passing = event._replace(sends=sends[:count], size=size)
    return passing, event._replace(sends=sends[count:], size=event.size - size)


def readable(limits: Limits, entries: int, size: int, messages_per_entry: float) -> tuple[int, int]:
    """Entries and bytes that a dispatcher is to read at most: as many as may pass, but one."""
    for bucket in limits:
        messages, left = bucket.left
        entries = min(entries, max(int(messages / messages_per_entry), 1))
        size = min(size, max(left, 1))
    return entries, size


class Subscribing:
    """How often each consumer may subscribe to a topic: so many times a period."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def admit(self, rate: Rate | None, consumer: str) -> bool:
        """False for a consumer that comes too often."""
        if rate is None or not rate.limits:
            self._buckets.clear()
            return True
        bucket = self._buckets.get(consumer)
        if bucket is None or bucket.rate != rate:
            if len(self._buckets) >= CONSUMERS_MAX:
                self._buckets.clear()
            bucket = self._buckets[consumer] = Bucket(rate, self._clock)
        if bucket.wait_s > 0:
            return False
        bucket.spend(1, 0)
        return True


class BrokerLimits:
    """The limits of all topics of a broker together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.publish: Limits = ()
        self.dispatch: Limits = ()
        self.unacked = UnackedLimit(clock)
        self._clock = clock

    def apply(self, config: BrokerConfig) -> None:
        """Takes the rates of a configuration."""
        publish = Rate(config.broker_publish_messages, config.broker_publish_bytes)
        dispatch = Rate(config.broker_dispatch_messages, config.broker_dispatch_bytes)
        self.publish = limited(self.publish, (publish,), self._clock)
        self.dispatch = limited(self.dispatch, (dispatch,), self._clock, "Broker")
        self.unacked.apply(config)


class TopicLimits:
    """The limits of one topic, its subscriptions and their consumers.

    Attributes:
        publish: its own, and the broker's.
        publish_waits: how often producers had to wait.
        subscribing: how often consumers came.
        unacked: what consumers of all topics may hold; it is the broker's.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.publish: Limits = ()
        self.publish_waits = 0
        self.unacked = UnackedLimit(clock)
        self.subscribing = Subscribing(clock)
        self._clock = clock
        self._own_publish: Limits = ()
        self._dispatch: Limits = ()
        self._broker_dispatch: Limits = ()
        self._of: dict[str, Limits] = {}

    def apply(self, rules: TopicRules, broker: BrokerLimits | None, published: tuple[float, float]) -> None:
        """Takes the rates of its rules; published are its messages and bytes a second, for rates relative to them."""

        def absolute(rate: Rate) -> Rate:
            if not (rate.relative and rate.limits):
                return rate
            own = (rate.messages, published[0]), (rate.size, published[1])
            messages, size = (mine + theirs * rate.period_s if mine > 0 else 0 for mine, theirs in own)
            return Rate(messages, size, rate.period_s)

        self._own_publish = limited(self._own_publish, (rules.publish_rate,), self._clock)
        self._dispatch = limited(self._dispatch, (absolute(rules.dispatch_rate),), self._clock)
        if broker is not None:
            self.unacked = broker.unacked
        self._broker_dispatch = broker.dispatch if broker is not None else ()
        self.publish = self._own_publish + (broker.publish if broker is not None else ())

    def of_subscription(self, name: str, rules: TopicRules) -> Limits:
        """Returns the dispatch limits of a subscription: its own, the topic's, the broker's."""
        rate = rules.subscription_rates.get(name, rules.subscription_rate)
        own = self._of[name] = limited(self._of.get(name, ()), (rate,), self._clock, "Subscription")
        return own + self._dispatch + self._broker_dispatch

    def forget(self, name: str) -> None:
        """Removes the limits of a deleted subscription."""
        self._of.pop(name, None)
