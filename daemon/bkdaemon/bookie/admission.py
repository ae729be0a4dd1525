"""Admission of adds: the reasons why a bookie is read-only, and back-pressure.

    reasons     why it is read-only, by kind: configuration, manual, disk, journal, storage, session, stopping
    throttled   servers should stop reading sockets: data arrive faster than they are written to disk
    status      the reply to adds now: None (accepted), READ_ONLY, TOO_MANY_REQUESTS

Source: BookieStateManager.java; SingleDirectoryDbLedgerStorage.java (triggerFlushAndAddEntry).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bkctl.model.status import Status

logger = logging.getLogger(__name__)


class Admission:
    """Keeps the reasons and the back-pressure; calls on_read_only and on_throttle when these change.

    Args:
        throttle_s: how long sockets are paused before adds are rejected instead.
    """

    def __init__(self, throttle_s: float) -> None:
        self.reasons: dict[str, str] = {"starting": "the bookie is starting"}
        self.status: int | None = Status.READ_ONLY
        self.throttled = False
        self.takes_high_priority = False
        self.on_read_only: Callable[[bool], None] = lambda _: None
        self.on_throttle: Callable[[bool], None] = lambda _: None
        self._throttle_s = throttle_s
        self._beyond = self._too_long = False
        self._timer: asyncio.TimerHandle | None = None

    def add_reason(self, kind: str, text: str) -> None:
        """Adds a reason why the bookie is read-only."""
        if self.reasons.get(kind) == text:
            return
        logger.warning("read-only (%s): %s", kind, text)
        before = bool(self.reasons)
        self.reasons[kind] = text
        self._decide()
        if not before:
            self.on_read_only(True)

    def drop_reason(self, kind: str) -> None:
        """Removes a reason; the bookie is writable when none remains."""
        if self.reasons.pop(kind, None) is None:
            return
        logger.info("no longer read-only because of: %s", kind)
        self._decide()
        if not self.reasons:
            self.on_read_only(False)

    def press(self, *, full: bool, beyond: bool) -> None:
        """Reports memory use. full: servers pause. beyond: the reserve for pending adds is full too, reject adds."""
        self._beyond = beyond
        if full and self._timer is None and not self._too_long:
            self._timer = asyncio.get_running_loop().call_later(self._throttle_s, self._timed_out)
        elif not full:
            self.close()
            self._too_long = False
        self._decide()
        throttled = full and not self._too_long
        if throttled != self.throttled:
            self.throttled = throttled
            self.on_throttle(throttled)

    def close(self) -> None:
        """Cancels the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self) -> None:
        """Rejects adds, because the pause is too long."""
        self._timer = None
        self._too_long = True
        logger.warning("the disk is too slow; rejecting adds")
        self.press(full=True, beyond=self._beyond)

    def _decide(self) -> None:
        if self.reasons:
            self.status = Status.READ_ONLY
        else:
            self.status = Status.TOO_MANY_REQUESTS if self._beyond or self._too_long else None
