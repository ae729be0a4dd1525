"""Rate limits: a rate of bytes, and growing pauses after failures.

    failure of a ledger   0      1      2      3      4      5 and more
    pause                 P/32   P/16   P/8    P/4    P/2    P               P = lockReleaseOfFailedLedgerGracePeriod

With the default of five minutes: 9.4 s, 18.8 s, 37.5 s, 75 s, 150 s, 300 s. The pause is spent holding the ledger's
lock, so it holds for all workers of the cluster. Source: ReplicationWorker.java (deferLedgerLockReleaseOfFailedLedger).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

DOUBLINGS: Final = 5
REMEMBERED_MAX: Final = 2000
"""Failed ledgers remembered; the one that failed longest ago is forgotten first."""
PIECE_MIN: Final = 16 * 1024
BURST_S: Final = 0.25
"""The burst of a rate after an idle time, in seconds of the rate."""


class FailurePauses:
    """Counts the failures of each ledger; the count outlives a success, as in Java."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._failures: OrderedDict[int, int] = OrderedDict()

    def next_s(self, ledger_id: int) -> float:
        """The pause after one more failure of this ledger."""
        count = self._failures.pop(ledger_id, 0)
        self._failures[ledger_id] = count + 1
        if len(self._failures) > REMEMBERED_MAX:
            self._failures.popitem(last=False)
        return self._period_s / (1 << DOUBLINGS - min(count, DOUBLINGS))


class ByteRate:
    """Lets bytes pass at a rate; asks loop.time(), so the simulator's clock will do. Rates <= 0 mean no limit.

    Bytes go when their own time is over, not when that of those before them is: a large piece causes no burst.
    """

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self._changed = asyncio.Event()

    def change(self, now: float, bytes_per_s: float) -> None:
        """Changes the rate, for waiting callers too: their remaining time is recomputed."""
        before, self.bytes_per_s = self.bytes_per_s, bytes_per_s
        if before > 0:
            left_s = max(self._free_at - now, 0.0) * before / bytes_per_s if bytes_per_s > 0 else 0.0
            self._free_at = now + left_s
        self._changed.set()
        self._changed = asyncio.Event()

    def reserve(self, now: float, size: int) -> float:
        """Books size bytes; returns the seconds to wait before they may go."""
        if self.bytes_per_s <= 0:
            return 0.0
        self._free_at = max(self._free_at, now - BURST_S) + size / self.bytes_per_s
        return max(self._free_at - now, 0.0)

    def piece(self, size: int) -> int:
        """The bytes to take at a time instead of size: a quarter of a second's worth, within limits."""
        return size if self.bytes_per_s <= 0 else min(size, max(PIECE_MIN, int(self.bytes_per_s * BURST_S)))

    async def take(self, size: int) -> None:
        """Waits until size bytes may go."""
        loop = asyncio.get_running_loop()
        wait_s = self.reserve(loop.time(), size)
        while wait_s > 0:
            rate, start = self.bytes_per_s, loop.time()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                return
            left_s = wait_s - (loop.time() - start)
            wait_s = left_s * rate / self.bytes_per_s if self.bytes_per_s > 0 else 0.0


class ByteBudget:
    """Bytes that may be in memory at a time, shared by all that copy. First come, first served.

    Something larger than the whole budget passes alone.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def take(self, size: int) -> int:
        """Waits for size bytes; returns what to give back."""
        size = min(size, self._size)
        if not self._waiting and self._free >= size:
            self._free -= size
            return size
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, future)
        self._waiting.append(entry)
        try:
            await future
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            if not future.cancelled():  # it was granted at the same moment
                self._free += size
            self._wake()
            raise
        return size

    def give_back(self, size: int) -> None:
        """Frees bytes that were taken."""
        self._free += size
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, future = self._waiting.pop(0)
            if not future.done():
                self._free -= size
                future.set_result(None)
