"""Finds marked ledgers that no worker repairs, and knows when to check again: watches on what was read, no polling.

A marker makes a new directory for itself in one that was listed; a lock that is given back disappears from the list of
locks. So a watch on every directory listed hears of everything. There is a bound on watches; past it, and in case one
was lost, the next look comes after LOOK_AGAIN_S. Source: SubTreeCache.java.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bkctl.codec.underreplication import LEVELS, is_marker_directory, marker_ledger, marker_name
from bkctl.errors import NotFound
from bkctl.meta.store import Cancel, WatchCallback, WatchEvent
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import LedgerId
from bkctl.world import Random

WATCHES_MAX: Final = 1_000
LIST_IN_FLIGHT_MAX: Final = 64
LOOK_AGAIN_S: Final = 15.0
LOOK_AT_ALL_MAX: Final = 256
"""Markers; a longer queue is not scanned again for every ledger that is taken from it."""


class QueueWatch:
    """The queue as one worker sees it."""

    def __init__(self, underreplication: Underreplication, random: Random) -> None:
        self._underreplication = underreplication
        self._random = random
        self._backlog: list[LedgerId] = []
        self._looked_s = 0.0
        self._store = underreplication.store
        self._ledgers = f"{underreplication.base}/ledgers"
        self._locks = f"{underreplication.base}/locks"
        self._cancels: dict[str, Cancel] = {}
        self._changed = asyncio.Event()

    @property
    def more(self) -> bool:
        """True while the last scan has found more ledgers than were returned."""
        return bool(self._backlog)

    async def free(self, wanted: int) -> list[LedgerId]:
        """Marked ledgers without a lock; `changed` returns when to call it again.

        All of them, as of now, ascending. In a long queue `wanted` of them at random, of those found at the last look
        at the whole queue: some may be gone or locked by now, which taking the lock will show.
        """
        self._changed.clear()
        now_s = asyncio.get_running_loop().time()
        if not self._backlog or now_s - self._looked_s >= LOOK_AGAIN_S:
            self._backlog = []
            locked = set(await self._names(self._locks))
            leaves = await self._leaves()
            if len(leaves) <= LOOK_AT_ALL_MAX:
                found = await self._underreplication.marked(leaves)
                return [ledger_id for ledger_id in found if marker_name(ledger_id) not in locked]
            ledger_ids = map(marker_ledger, leaves)
            self._backlog = [ledger_id for ledger_id in ledger_ids if marker_name(ledger_id) not in locked]
            self._random.shuffle(self._backlog)
            self._looked_s = now_s
        self._backlog, next_ones = self._backlog[:-wanted], self._backlog[-wanted:]
        return next_ones

    async def _leaves(self) -> list[str]:
        """The directories of all markers."""
        directories = [self._ledgers]
        for _ in range(LEVELS):
            below: list[str] = []
            for start in range(0, len(directories), LIST_IN_FLIGHT_MAX):
                group = directories[start : start + LIST_IN_FLIGHT_MAX]
                for directory, found in zip(group, await asyncio.gather(*map(self._names, group)), strict=True):
                    below += [f"{directory}/{name}" for name in found if is_marker_directory(name)]
            directories = below
        return directories

    async def changed(self) -> None:
        """Returns when the queue has changed since the last scan, or when a periodic scan is due."""
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    def seen(self) -> None:
        """Discards changes so far without a scan, as no more work can be accepted now."""
        self._changed.clear()

    def look_again(self) -> None:
        """Wakes the callers that wait for a change."""
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
        """Removes the watches."""
        cancels, self._cancels = self._cancels, {}
        for cancel in cancels.values():
            cancel()
