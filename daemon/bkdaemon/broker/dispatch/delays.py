"""Entries of a Shared subscription that wait for their time, as Java's broker keeps it.

    cutoff   now, and a tick more unless isDelayedDeliveryDeliverAtTimeStrict is set: whose time is before goes out
    timer    for the first one's time, and no sooner than a tick after the last; other reads find who is due, too
    full     delayedDeliveryFixedDelayDetectionLookahead wait, each no sooner than those before it, but for a tick:
             what comes behind them is due behind them, and need not be read yet

Source: AbstractDelayedDeliveryTracker.java, InMemoryDelayedDeliveryTracker.java.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.subscription import DispatchedSubscription


DELAYED_MAX: Final = 1_000_000
"""Entries of one subscription that wait for their time: above, nothing new is read."""


class Delays:
    """Positions by their times. The owner adds none while they are `full`.

    Args:
        on_due: called when the time of some has come.

    Attributes:
        in_order: since there are some, nothing came that was due, or is sooner than what was before it.
    """

    def __init__(self, subscription: DispatchedSubscription, on_due: Callable[[], None]) -> None:
        self._subscription = subscription
        self._on_due = on_due
        self._heap: list[tuple[int, Position]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._target_ms = -1  # what the timer waits for
        self._ticked_ms = 0  # when it rang last
        self._latest_ms = 0
        self.in_order = True

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def full(self) -> bool:
        """True while nothing new needs to be read, or must not be."""
        count, enough = len(self._heap), self._subscription.rules.fixed_delay_entries
        if count >= DELAYED_MAX:
            return True
        return self.in_order and 0 < enough <= count and self._heap[0][0] > self._cutoff_ms()

    def _cutoff_ms(self) -> int:
        rules = self._subscription.rules
        return self._subscription.now_ms() + (0 if rules.delayed_strict else rules.delayed_tick_ms)

    def hold(self, at_ms: int, position: Position) -> bool:
        """Keeps an entry until its time; false if that has come."""
        if at_ms <= self._cutoff_ms():
            self.in_order = False
            return False
        if not self._heap:
            self.in_order, self._latest_ms = True, at_ms
        heapq.heappush(self._heap, (at_ms, position))
        if at_ms < self._latest_ms - self._subscription.rules.delayed_tick_ms:
            self.in_order = False
        self._latest_ms = max(self._latest_ms, at_ms)
        self._set_timer()
        return True

    def take_due(self) -> list[Position]:
        """Those whose time has come; they are kept no more."""
        if not self._heap:
            return []
        found: list[Position] = []
        cutoff_ms = self._cutoff_ms()
        while self._heap and self._heap[0][0] <= cutoff_ms:
            found.append(heapq.heappop(self._heap)[1])
        self._set_timer()
        return found

    def clear(self) -> None:
        """Cancels the timer."""
        self._heap.clear()
        self._set_timer()

    close = clear

    def _set_timer(self) -> None:
        target_ms = self._heap[0][0] if self._heap else -1
        if target_ms == self._target_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._target_ms = target_ms
        if target_ms < 0:
            return
        ready_ms = max(target_ms, self._ticked_ms + self._subscription.rules.delayed_tick_ms)
        wait_s = max(ready_ms - self._subscription.now_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._target_ms = None, -1
        self._ticked_ms = self._subscription.now_ms()
        self._on_due()
