"""Finds marked ledgers that nobody works on, and knows when to look again: watches on what was read, no polling.

A marker appears in a directory that was listed, or makes a new one below it; a lock that is given back disappears from
the list of locks. So a watch on every directory listed hears of everything. There is a bound on watches; past it, and
in case one was lost, the next look comes after LOOK_AGAIN_S. Source: SubTreeCache.java.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bkctl.codec.underreplication import LEVELS, is_marker_directory, parse_marker_name
from bkctl.errors import NotFound
from bkctl.meta.store import Cancel, WatchCallback, WatchEvent
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import LedgerId

WATCHES_MAX: Final = 1_000
LIST_IN_FLIGHT_MAX: Final = 64
LOOK_AGAIN_S: Final = 15.0


class QueueWatch:
    """The queue as one worker sees it."""

    def __init__(self, underreplication: Underreplication) -> None:
        self._store = underreplication.store
        self._ledgers = f"{underreplication.base}/ledgers"
        self._locks = f"{underreplication.base}/locks"
        self._cancels: dict[str, Cancel] = {}
        self._changed = asyncio.Event()

    async def free(self) -> list[LedgerId]:
        """Marked ledgers without a lock, ascending, as of now; `changed` tells when to ask again."""
        self._changed.clear()
        locked = set(await self._names(self._locks))
        names: list[str] = []
        directories = [self._ledgers]
        for level in range(LEVELS + 1):
            below: list[str] = []
            for start in range(0, len(directories), LIST_IN_FLIGHT_MAX):
                group = directories[start : start + LIST_IN_FLIGHT_MAX]
                for directory, found in zip(group, await asyncio.gather(*map(self._names, group)), strict=True):
                    if level == LEVELS:
                        names += found
                    else:
                        below += [f"{directory}/{name}" for name in found if is_marker_directory(name)]
            directories = below
        ledger_ids = (parse_marker_name(name) for name in names if name not in locked)
        return sorted(ledger_id for ledger_id in ledger_ids if ledger_id is not None)

    async def changed(self) -> None:
        """Returns when something has changed since the last look, or it is time to look anyway."""
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    def look_again(self) -> None:
        """Wakes whoever waits for a change."""
        self._changed.set()

    async def _names(self, path: str) -> list[str]:
        try:
            if path not in self._cancels and len(self._cancels) < WATCHES_MAX:
                self._cancels[path] = lambda: None  # the watch may fire before its answer is here
                try:
                    cancel = await self._store.watch_children(path, self._fired(path))
                except BaseException:
                    self._cancels.pop(path, None)
                    raise
                if path in self._cancels:
                    self._cancels[path] = cancel
            return await self._store.children(path)
        except NotFound:
            return []

    def _fired(self, path: str) -> WatchCallback:
        def fired(_: WatchEvent) -> None:
            self._cancels.pop(path, None)
            self._changed.set()

        return fired

    def close(self) -> None:
        """Takes the watches off."""
        cancels, self._cancels = self._cancels, {}
        for cancel in cancels.values():
            cancel()
