"""The gate before adds: why a bookie takes none, and when it asks for a pause.

    reasons     why it is read-only, by kind: configuration, manual, disk, journal, storage, session, stopping
    throttled   servers should stop reading sockets: memory fills faster than the disk takes it
    status      what an add is answered now: None (come in), READ_ONLY, TOO_MANY_REQUESTS

Source: BookieStateManager.java; SingleDirectoryDbLedgerStorage.java (triggerFlushAndAddEntry).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bkctl.model.status import Status

logger = logging.getLogger(__name__)


class Gate:
    """Keeps the reasons and the pressure; calls on_read_only and on_throttle when an answer changes.

    Args:
        throttle_s: how long sockets may be paused before adds are refused instead.
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
        """From now on the bookie is read-only, because of this too."""
        if self.reasons.get(kind) == text:
            return
        logger.warning("read-only (%s): %s", kind, text)
        before = bool(self.reasons)
        self.reasons[kind] = text
        self._decide()
        if not before:
            self.on_read_only(True)

    def drop_reason(self, kind: str) -> None:
        """This reason is gone; without another one the bookie is writable."""
        if self.reasons.pop(kind, None) is None:
            return
        logger.info("no longer read-only because of: %s", kind)
        self._decide()
        if not self.reasons:
            self.on_read_only(False)

    def press(self, *, full: bool, beyond: bool) -> None:
        """full: pause, please. beyond: the room for what was under way is used up too; refuse."""
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
        """The pause lasts too long: clients had better hear a no."""
        self._timer = None
        self._too_long = True
        logger.warning("the disk is too slow: adds are refused")
        self.press(full=True, beyond=self._beyond)

    def _decide(self) -> None:
        if self.reasons:
            self.status = Status.READ_ONLY
        else:
            self.status = Status.TOO_MANY_REQUESTS if self._beyond or self._too_long else None
