"""How many messages and bytes the consumers of a subscription were sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from bkctl.codec.managed_ledger import COMPACTION_CURSOR

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.consumer import Consumer
    from bkdaemon.broker.rules import TopicRules

SYSTEM_READER: Final = "__system_reader"


class Flow(NamedTuple):
    """Messages and bytes, in a second or in total."""

    messages: float = 0.0
    size: float = 0.0

    @property
    def average_size(self) -> float:
        """Bytes a message, 0 without messages."""
        return self.size / self.messages if self.messages else 0.0


@dataclass(slots=True)
class SentBefore:
    """Counters of consumers that are closed, or of subscriptions that are deleted.

    Attributes:
        messages, size: of all of them.
        internal_size: bytes of the system's own subscriptions.
    """

    messages: int = 0
    size: int = 0
    internal_size: int = 0

    def add_consumer(self, consumer: Consumer) -> None:
        """Adds what a consumer that leaves was sent."""
        self.messages += consumer.messages_out
        self.size += consumer.bytes_out

    def add_subscription(self, subscription: SentSubscription) -> None:
        """Adds what the consumers of a subscription that is deleted were sent."""
        total = sent(subscription)
        self.messages += int(total.messages)
        self.size += int(total.size)
        self.internal_size += int(total.size) if internal(subscription) else 0


class RuledTopic(Protocol):
    """The topic of a subscription."""

    @property
    def rules(self) -> TopicRules:
        """The rules in effect now."""


class SentSubscription(Protocol):
    """A subscription of a persistent or non-persistent topic.

    Attributes:
        sent_before: messages and bytes of consumers that are closed.
    """

    name: str
    sent_before: SentBefore

    @property
    def topic(self) -> RuledTopic:
        """Its topic."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The attached consumers."""


def sent(subscription: SentSubscription) -> Flow:
    """Returns what a subscription's consumers were sent since its topic was opened, also the closed ones."""
    before, consumers = subscription.sent_before, subscription.consumers
    return Flow(
        before.messages + sum(consumer.messages_out for consumer in consumers),
        before.size + sum(consumer.bytes_out for consumer in consumers),
    )


def internal(subscription: SentSubscription) -> bool:
    """Returns whether a subscription is one of the system's own."""
    name = subscription.name
    return (
        name == COMPACTION_CURSOR or name.startswith(SYSTEM_READER) or name in subscription.topic.rules.system_cursors
    )
