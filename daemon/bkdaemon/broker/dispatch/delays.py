"""Delayed entries of a Shared subscription, with the timing of Java's broker.

    cutoff   now, plus a tick unless isDelayedDeliveryDeliverAtTimeStrict is set: entries up to this time are due
    timer    at the first entry's time, at least a tick after the last one; other reads also find due entries
    full     delayedDeliveryFixedDelayDetectionLookahead entries wait in the order of their times, within a tick:
             later entries are due later and need not be read yet

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
"""Delayed entries of one subscription; with more, no new entries are read."""


class Delays:
    """Positions by delivery time. The owner adds none while they are `full`.

    Args:
        on_due: called when entries are due.

    Attributes:
        in_order: since the first entry, every one was delayed, and none was due before an earlier one.
    """

    def __init__(self, subscription: DispatchedSubscription, on_due: Callable[[], None]) -> None:
        self._subscription = subscription
        self._on_due = on_due
        self._heap: list[tuple[int, Position]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._target_ms = -1  # time of the timer
        self._ticked_ms = 0  # when the timer last fired
        self._latest_ms = 0
        self.in_order = True

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def full(self) -> bool:
        """True while no new entries need to be read, or may be."""
        count, enough = len(self._heap), self._subscription.rules.fixed_delay_entries
        if count >= DELAYED_MAX:
            return True
        return self.in_order and 0 < enough <= count and self._heap[0][0] > self._cutoff_ms()

    def _cutoff_ms(self) -> int:
        rules = self._subscription.rules
        return self._subscription.now_ms() + (0 if rules.delayed_strict else rules.delayed_tick_ms)

    def hold(self, at_ms: int, position: Position) -> bool:
        """Adds an entry; returns false if it is due already."""
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
        """Removes and returns the entries that are due."""
        if not self._heap:
            return []
        found: list[Position] = []
        cutoff_ms = self._cutoff_ms()
        while self._heap and self._heap[0][0] <= cutoff_ms:
            found.append(heapq.heappop(self._heap)[1])
        self._set_timer()
        return found

    def clear(self) -> None:
        """Removes all entries and cancels the timer."""
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
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def _fire(self) -> None:
        self._timer, self._target_ms = None, -1
        self._ticked_ms = self._subscription.now_ms()
        self._on_due()
