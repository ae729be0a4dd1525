"""The maximum of unacknowledged messages of all subscriptions of a broker: maxUnackedMessagesPerBroker.

At this limit, each Shared or Key_Shared subscription with more than its part of it
(maxUnackedMessagesPerSubscriptionOnBrokerBlocked) gets no new messages, until it has at most half of its part, or all
together at most half of the limit. Redeliveries continue meanwhile. All subscriptions are checked every CHECK_S, first
after FIRST_CHECK_S; while the limit is reached, each one is also checked when it is sent messages or acknowledges.
Source: BrokerService.java (checkUnAckMessageDispatching, addUnAckedMessages).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from bkdaemon.broker.config import BrokerConfig

FIRST_CHECK_S: Final = 600.0
CHECK_S: Final = 30.0

logger = logging.getLogger(__name__)


class HeldBack(Protocol):
    """A dispatcher under this limit.

    Attributes:
        held_back: no new entries are read for its consumers.
    """

    held_back: bool

    @property
    def subscription(self) -> object:
        """Its subscription, for log messages."""

    @property
    def unacked(self) -> int:
        """Unacknowledged messages of all its consumers."""

    def wake(self) -> None:
        """Starts the dispatcher, as it may be able to send now."""


class UnackedLimit:
    """The limit of one broker.

    Attributes:
        most: messages of all subscriptions; 0 for no limit.
        each: of one subscription while the broker is at its limit.
        reached: the broker is at its limit, or was and is not down to half of it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.most = self.each = 0
        self.reached = False
        self._clock = clock
        self._first_s = clock() + FIRST_CHECK_S
        self._dispatchers: WeakSet[HeldBack] = WeakSet()

    def apply(self, config: BrokerConfig) -> None:
        """Takes the limit of a configuration."""
        part = config.unacked_part_when_blocked
        self.most = config.unacked_per_broker if part > 0 else 0
        self.each = int(self.most * part)

    def add(self, dispatcher: HeldBack) -> None:
        """Adds a dispatcher."""
        self._dispatchers.add(dispatcher)

    def remove(self, dispatcher: HeldBack) -> None:
        """Removes a closed dispatcher."""
        self._dispatchers.discard(dispatcher)

    def check(self) -> None:
        """Compares the total of all dispatchers with the limit."""
        if self.most <= 0 or self._clock() < self._first_s:
            return
        total = sum(dispatcher.unacked for dispatcher in self._dispatchers)
        if not self.reached and total >= self.most:
            logger.warning(
                "%d messages are unacknowledged (maxUnackedMessagesPerBroker=%d):"
                " pausing subscriptions with more than %d",
                total,
                self.most,
                self.each,
            )
            self.reached = True
            for dispatcher in list(self._dispatchers):
                self.check_dispatcher(dispatcher)
        elif self.reached and total < self.most // 2:
            logger.info("%d messages are unacknowledged: resuming all subscriptions", total)
            self.reached = False
            for dispatcher in list(self._dispatchers):
                self._resume_dispatch(dispatcher)

    def check_dispatcher(self, dispatcher: HeldBack) -> None:
        """Holds back or resumes one dispatcher, while the limit is reached."""
        if not self.reached:
            return
        unacked = dispatcher.unacked
        if dispatcher.held_back:
            if unacked < self.each // 2:
                self._resume_dispatch(dispatcher)
        elif unacked > self.each:
            logger.info("%s: pausing dispatch: %d messages are unacknowledged", dispatcher.subscription, unacked)
            dispatcher.held_back = True

    def _resume_dispatch(self, dispatcher: HeldBack) -> None:
        if dispatcher.held_back:
            dispatcher.held_back = False
            dispatcher.wake()
