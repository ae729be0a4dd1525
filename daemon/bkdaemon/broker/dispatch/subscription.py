"""The parts of a subscription and its topic that dispatchers use."""

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
        """The rules in effect now."""


class DispatchedSubscription(Protocol):
    """The subscription that is read for.

    Attributes:
        dispatch_limits: the dispatch rates of its consumers; throttled: how often each was reached.
        paused: no new entries are read, as more ranges are acknowledged than the cursor stores.
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
        """The rules of the topic."""

    def now_ms(self) -> int:
        """Returns the time of day."""

    def reached_end(self, consumer: Consumer) -> None:
        """Notifies a consumer, once, that it has read all of a terminated topic."""

    def pauses(self) -> bool:
        """Updates and returns `paused`."""
