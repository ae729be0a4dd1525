"""One watch at a server, shared by all local callers that wait for the same node.

A watch at the server cannot be removed, so it stays while callers come and go; it keeps no reference to callers that
left.
"""

from __future__ import annotations

import asyncio

from bkctl.meta.store import Cancel, WatchCallback, WatchEvent


class SharedWatch:
    """One watch at the server, and its callbacks."""

    def __init__(self) -> None:
        self.over = False
        self._callbacks: list[WatchCallback] = []
        self._early: WatchEvent | None = None

    def join(self, callback: WatchCallback) -> Cancel:
        """Adds a callback; one that comes after the event, as can happen to the first, is called soon."""
        if self._early is not None:
            handle = asyncio.get_running_loop().call_soon(callback, self._early)
            return handle.cancel
        self._callbacks.append(callback)

        def cancel() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return cancel

    def fire(self, watches: dict[str, SharedWatch], path: str, event: WatchEvent) -> None:
        """Calls all callbacks, once."""
        self.over, self._early = True, event
        if watches.get(path) is self:
            del watches[path]
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(event)
