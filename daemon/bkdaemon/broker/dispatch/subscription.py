"""What dispatchers see of their subscription and its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bkctl.log.cursor import Cursor
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.compaction.compaction import TopicCompaction
    from bkdaemon.broker.dispatch.consumer import Consumer
    from bkdaemon.broker.dispatch.throttle import Limits, TopicLimits
    from bkdaemon.broker.rules import TopicRules


class DispatchedTopic(Protocol):
    """The topic that is read."""

    name: TopicName
    ledger: ManagedLedger
    compaction: TopicCompaction
    limits: TopicLimits

    @property
    def rules(self) -> TopicRules:
        """What holds for it now."""


class DispatchedSubscription(Protocol):
    """The subscription that is read for.

    Attributes:
        dispatch_limits: the rates that its consumers are sent messages at; throttled: how often each was reached.
        paused: nothing new is read, as more ranges are acknowledged than the cursor stores.
    """

    cursor: Cursor
    dispatch_limits: Limits
    throttled: dict[str, int]
    paused: bool

    @property
    def topic(self) -> DispatchedTopic:
        """Its topic."""

    @property
    def ledger(self) -> ManagedLedger:
        """The topic's log."""

    @property
    def rules(self) -> TopicRules:
        """What holds for the topic."""

    def now_ms(self) -> int:
        """The time of day."""

    def reached_end(self, consumer: Consumer) -> None:
        """Notifies the consumer of a terminated topic once that nothing is left to read."""

    def pauses(self) -> bool:
        """Whether nothing new is read, as more ranges are acknowledged than the cursor stores."""
