"""How much the consumers of a subscription were sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from bkctl.codec.managed_ledger import COMPACTION_CURSOR

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.consumer import Consumer
    from bkdaemon.broker.rules import TopicRules

SYSTEM_READER: Final = "__system_reader"


class Flow(NamedTuple):
    """A second's messages and bytes; or how many there were at all."""

    messages: float = 0.0
    size: float = 0.0

    @property
    def average_size(self) -> float:
        """Bytes a message, 0 where there was none."""
        return self.size / self.messages if self.messages else 0.0


class RuledTopic(Protocol):
    """The topic of a subscription."""

    @property
    def rules(self) -> TopicRules:
        """What holds for it now."""


class SentSubscription(Protocol):
    """A subscription of either kind.

    Attributes:
        left: messages and bytes that consumers were sent which are gone.
    """

    name: str
    left: list[int]

    @property
    def topic(self) -> RuledTopic:
        """Its topic."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Who is attached."""


def sent(subscription: SentSubscription) -> Flow:
    """What a subscription's consumers were sent since its topic was opened, those that left too."""
    left, consumers = subscription.left, subscription.consumers
    return Flow(
        left[0] + sum(consumer.messages_out for consumer in consumers),
        left[1] + sum(consumer.bytes_out for consumer in consumers),
    )


def internal(subscription: SentSubscription) -> bool:
    """True for a subscription of the system's own."""
    name = subscription.name
    return (
        name == COMPACTION_CURSOR or name.startswith(SYSTEM_READER) or name in subscription.topic.rules.system_cursors
    )


def keep_sent(left: list[int], subscription: SentSubscription) -> None:
    """What a subscription that goes was sent, added to what those before it were: messages, bytes, bytes internally."""
    ever = sent(subscription)
    left[0] += int(ever.messages)
    left[1] += int(ever.size)
    left[2] += int(ever.size) if internal(subscription) else 0
