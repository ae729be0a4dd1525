"""Bounds for the memory that connections hold of frames that have not arrived completely.

    UnfinishedFrames    admission of long frames: a connection whose frame does not fit waits, and is not read
    BoundedFrames       also ends connections: the oldest frames above a hard bound, and frames without progress

Short frames are never kept waiting. A long frame is admitted with all its missing bytes when there is room for them,
or as one of the few that continue without room. An admitted frame that makes no progress while others wait for its
memory ends its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of unfinished frames of all connections; above, connections with a long frame wait."""
SHORT_FRAME: Final = 32 * 1024
"""Bytes of a frame that a connection may always hold."""
FINISHING_MAX: Final = 8
"""Connections that are read to the end of their frames when memory is full, so that some always finish."""
POLL_S: Final = 1.0
"""Interval at which waiting connections are checked."""
PROGRESS_S: Final = 10.0
PROGRESS_BYTES: Final = 64 * 1024
"""While others wait, an admitted frame grows by so many bytes in that time, or its connection ends."""
STALL_TIMEOUT_S: Final = 60.0
"""A frame without progress for so long ends its connection."""
SWEEPS: Final = 12
"""Checks of every unfinished frame in STALL_TIMEOUT_S."""
ADMITTED_SHARE: Final = 0.5
"""Share of the hard bound up to which long frames are admitted; the rest is for short ones, and for the first read of
those that wait."""


class UnfinishedFrame(Protocol):
    """The parser of one connection, as far as it concerns an unfinished frame."""

    @property
    def unfinished(self) -> tuple[int, int]:
        """Bytes held of an unfinished frame, and bytes missing; 0, 0 without one."""


class FrameConnection(Protocol):
    """A connection whose frames are bounded."""

    @property
    def conversation(self) -> UnfinishedFrame:
        """The parser."""

    @property
    def reading(self) -> bool:
        """False while the connection is not read."""

    def balance(self) -> None:
        """Pauses or resumes reading; asks `holds`."""

    def end(self, why: str) -> None:
        """Ends the connection."""


@dataclass(slots=True)
class _Admitted:
    """An admitted frame: its missing bytes, and from when and how many bytes on its progress is checked."""

    missing: int
    since: float
    held: int


class UnfinishedFrames:
    """Admits long frames of all connections of a server while there is room for them.

    Args:
        unconfirmed: bytes that arrived completely and are not stored yet; they take room too.
        most: bytes there is room for.
        finishing_max: connections that are read to the end of their frames without room; None for FINISHING_MAX.

    Attributes:
        size: bytes held now.
        promised: missing bytes of the admitted frames.
    """

    def __init__(
        self,
        unconfirmed: Callable[[], int] = lambda: 0,
        most: Callable[[], int] = lambda: UNFINISHED_BYTES_MAX,
        *,
        finishing_max: int | None = None,
    ) -> None:
        self.size = self.promised = 0
        self._most = most
        self._unconfirmed = unconfirmed
        self._finishing_max = FINISHING_MAX if finishing_max is None else finishing_max
        self._let_in: dict[FrameConnection, _Admitted] = {}
        self._beyond: set[FrameConnection] = set()  # admitted without room
        self._waiting: dict[FrameConnection, None] = {}  # in order of arrival
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, connection: FrameConnection, before: int, now: int, *, whole: bool) -> None:
        """Counts the bytes a connection holds of a frame; whole: a frame is complete, or the connection has ended."""
        self.size += now - before
        if connection in self._let_in:
            if not whole:
                self._let_in[connection].missing -= now - before
                self.promised -= now - before
                return
            self.promised -= self._let_in.pop(connection).missing
            self._beyond.discard(connection)
        elif whole:
            self._waiting.pop(connection, None)
        if now > SHORT_FRAME:
            self._waiting[connection] = None
        if self._waiting:
            self._admit()

    def holds(self, connection: FrameConnection) -> bool:
        """True while a connection must not be read."""
        return connection in self._waiting

    def _admit(self) -> None:
        while self._waiting:
            connection = next(iter(self._waiting))
            held, missing = connection.conversation.unfinished
            unconfirmed, most = self._unconfirmed(), self._most()
            if self.size + self.promised + missing + unconfirmed > most:
                if len(self._beyond) >= self._finishing_max or unconfirmed > most // 2:  # unconfirmed gets less
                    break
                self._beyond.add(connection)
            del self._waiting[connection]
            self._let_in[connection] = _Admitted(missing, asyncio.get_running_loop().time(), held)
            self.promised += missing
            connection.balance()
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        """Ends connections that hold memory which others wait for, and make no progress."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection, frame in list(self._let_in.items()) if self._waiting else ():
            held = connection.conversation.unfinished[0]
            if not connection.reading or held - frame.held >= PROGRESS_BYTES:  # paused by the server, or progress
                frame.since, frame.held = now, held
            elif now - frame.since >= PROGRESS_S:
                connection.end(f"{held} bytes of a frame, no more in {PROGRESS_S:g} s, and others wait for memory")
        self._admit()


@dataclass(slots=True)
class _Watch:
    """Progress of one connection: bytes received, checks since its last progress, checks since it is read again."""

    received: int
    stalled: int = 0
    readable: int = 0


class ReceivedFrame(UnfinishedFrame, Protocol):
    """A parser that counts the bytes it received."""

    @property
    def received(self) -> int:
        """Bytes received since the connection began."""


class WatchedConnection(FrameConnection, Protocol):
    """A connection that `BoundedFrames` may end."""

    @property
    def conversation(self) -> ReceivedFrame:
        """The parser."""

    def end(self, why: str) -> None:
        """Ends the connection at once: `changed` is called with now=0 before it returns."""


class BoundedFrames:
    """Bounds unfinished frames in bytes and in time: above the bound the oldest ones end, and those without progress.

    Time is counted in checks, so that a process that was stopped for a while ends no connection. A frame is complete,
    or grows, within the timeout; time in which the server did not read counts, but bytes that arrived in it do not
    count as progress, and the connection was read again for two checks before it ends.

    Args:
        bytes_max: hard bound of the bytes held.
        frame_size_max: the longest frame.
        stall_timeout_s: how long a frame may make no progress.
    """

    def __init__(self, bytes_max: int, frame_size_max: int, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        self.bytes_max = bytes_max
        finishing = int(bytes_max * (1 - ADMITTED_SHARE)) // (2 * frame_size_max)
        self._admission = UnfinishedFrames(
            most=lambda: int(bytes_max * ADMITTED_SHARE), finishing_max=min(max(finishing, 1), FINISHING_MAX)
        )
        self._stall_timeout_s = stall_timeout_s
        self._holders: dict[WatchedConnection, None] = {}  # the oldest frame first
        self._watches: dict[WatchedConnection, _Watch] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """Bytes held now."""
        return self._admission.size

    def changed(self, connection: WatchedConnection, before: int, now: int, *, whole: bool) -> None:
        """Counts the bytes a connection holds of a frame; whole: a frame is complete, or the connection has ended."""
        holders = self._holders
        if whole or not now:
            holders.pop(connection, None)
        if now:
            holders[connection] = None
            if self._timer is None:
                self._arm()
        if before > SHORT_FRAME or now > SHORT_FRAME:
            self._admission.changed(connection, before, now, whole=whole)
        else:  # most reads end inside of a short frame
            self._admission.size += now - before
        while self._admission.size > self.bytes_max and holders:
            self._end(next(iter(holders)), f"all unfinished frames exceed {self.bytes_max} bytes")

    def holds(self, connection: WatchedConnection) -> bool:
        """True while a connection must not be read."""
        return self._admission.holds(connection)

    def close(self) -> None:
        """Stops the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stall_timeout_s / SWEEPS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        watches, self._watches = self._watches, {}
        for connection in list(self._holders):
            received = connection.conversation.received
            watch = watches.get(connection)
            if watch is None:
                watch = _Watch(received)
            elif received != watch.received and watch.readable:
                watch.received, watch.stalled = received, 0
            else:
                watch.received, watch.stalled = received, watch.stalled + 1
            watch.readable = watch.readable + 1 if connection.reading else 0
            if watch.stalled >= SWEEPS and watch.readable >= 2:
                self._end(connection, f"no progress in {self._stall_timeout_s:g} s")
            else:
                self._watches[connection] = watch
        if self._holders:
            self._arm()

    def _end(self, connection: WatchedConnection, why: str) -> None:
        self._holders.pop(connection, None)
        connection.end(f"{connection.conversation.unfinished[0]} bytes of an unfinished frame: {why}")
