"""What all subscriptions of a broker together may hold unacknowledged: maxUnackedMessagesPerBroker.

Where that much is reached, each Shared or Key_Shared subscription that holds more than its part
(maxUnackedMessagesPerSubscriptionOnBrokerBlocked of it) gets nothing new, until it has acknowledged down to half of its
part, or all together down to half of the whole. What was given back is sent again meanwhile. All together are looked at
every CHECK_S, first at FIRST_CHECK_S; one of them, while the broker is at its limit, with all it gets and acknowledges.
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
        held_back: nothing new is read for its consumers.
    """

    held_back: bool

    @property
    def subscription(self) -> object:
        """Whose it is, for log lines."""

    @property
    def unacked(self) -> int:
        """Messages that all its consumers together hold."""

    def wake(self) -> None:
        """Something may be possible that was not before."""


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
        """A dispatcher under this limit."""
        self._dispatchers.add(dispatcher)

    def remove(self, dispatcher: HeldBack) -> None:
        """It is closed."""
        self._dispatchers.discard(dispatcher)

    def check(self) -> None:
        """Looks at all of them together."""
        if self.most <= 0 or self._clock() < self._first_s:
            return
        total = sum(dispatcher.unacked for dispatcher in self._dispatchers)
        if not self.reached and total >= self.most:
            logger.warning(
                "%d messages are not acknowledged, as many as may be (maxUnackedMessagesPerBroker %d):"
                " subscriptions with more than %d get nothing new",
                total,
                self.most,
                self.each,
            )
            self.reached = True
            for dispatcher in list(self._dispatchers):
                self.check_dispatcher(dispatcher)
        elif self.reached and total < self.most // 2:
            logger.info("%d messages are not acknowledged: subscriptions get new ones again", total)
            self.reached = False
            for dispatcher in list(self._dispatchers):
                self._resume_dispatch(dispatcher)

    def check_dispatcher(self, dispatcher: HeldBack) -> None:
        """Looks at one of them, as long as the limit is reached."""
        if not self.reached:
            return
        unacked = dispatcher.unacked
        if dispatcher.held_back:
            if unacked < self.each // 2:
                self._resume_dispatch(dispatcher)
        elif unacked > self.each:
            logger.info("%s holds %d messages: it gets nothing new", dispatcher.subscription, unacked)
            dispatcher.held_back = True

    def _resume_dispatch(self, dispatcher: HeldBack) -> None:
        if dispatcher.held_back:
            dispatcher.held_back = False
            dispatcher.wake()
