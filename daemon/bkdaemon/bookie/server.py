"""The bookie's port: a protocol object per connection, a batch of requests per read, one write per batch of replies.

    bytes ─► ServerConversation ─► adds     ─► Bookie.add_batch   ─► one callback when the journal has them ─┐
                                   reads    ─► Bookie.read_batch  ─► from memory at once, from disk later ────┼─► write
                                   others   ─► Requests.answer    ─────────────────────────────────────────────┘

Tasks, futures and writes are per batch and not per entry. Memory is bounded: reading pauses while too many bytes of
adds are not durable (of one connection, or of all), while reads are queued, and while the client does not read its
replies; reads are started in slices whose size is estimated from the last ones. Frames that have not arrived completely
are bounded over all connections, in bytes and in time. Bytes that are not valid close their connection, after the
replies to earlier requests.
Source: BookieNettyServer.java, BookieRequestProcessor.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from bkctl.codec.wire import FRAME_SIZE_MAX
from bkctl.protocol.bookie_server import (
    Add,
    Answer,
    Read,
    ServerConversation,
    encode_add_replies,
    encode_read_replies,
)
from bkdaemon.bookie.requests import Requests
from bkdaemon.unfinished_frames import STALL_TIMEOUT_S, UNFINISHED_BYTES_MAX, BoundedFrames

if TYPE_CHECKING:
    from bkctl.world import Listener, World
    from bkdaemon.bookie.bookie import Bookie

logger = logging.getLogger(__name__)

MIB: Final = 1 << 20
CONNECTIONS_MAX: Final = 10_000
ADD_BYTES_PER_CONNECTION_MAX: Final = 32 * MIB
ADD_BYTES_MAX: Final = 128 * MIB
"""Bytes of pending adds, of one connection and of all."""
WRITE_BUFFER_HIGH: Final = 4 * MIB
WRITE_BUFFER_LOW: Final = 1 * MIB
"""Replies that a client has not read: above it, its connection is not read."""
READ_BYTES_MAX: Final = 8 * MIB
READS_MAX: Final = 4096
"""Pending reads of one connection: by number, and by bytes estimated from the last ones."""
READ_SIZE_GUESS: Final = 64 * 1024
WRITE_BYTES: Final = 512 * 1024
"""Replies to reads that are packed and written at once: about the size of the processor's cache."""


class BookieServer:
    """Listens, and serves one bookie to many connections.

    Attributes:
        connections: the open connections.
        add_bytes: bytes of pending adds.
        throttled: True while no connection is read; pass `throttle` to Admission.on_throttle.
        unfinished: bounds the frames that have not arrived completely.
        ended_unfinished: connections that were closed because of such a frame.
    """

    def __init__(
        self,
        bookie: Bookie,
        world: World,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        batch_read_size_max: int = FRAME_SIZE_MAX,
        unfinished_bytes_max: int = UNFINISHED_BYTES_MAX,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        self.bookie = bookie
        self.requests = Requests(bookie, world.clock, batch_read_size_max=batch_read_size_max)
        self.frame_size_max = frame_size_max
        self.connections: set[Connection] = set()
        self.add_bytes = 0
        self.throttled = False
        self.refused_connections = 0
        self.unfinished = BoundedFrames(unfinished_bytes_max, frame_size_max, stall_timeout_s)
        self.ended_unfinished = 0
        self._paused: set[Connection] = set()
        self._network = world.network
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> None:
        """Opens the port; 0 picks a free one."""
        self._listener = await self._network.listen(host, port, lambda: Connection(self))

    @property
    def port(self) -> int:
        """The open port."""
        if self._listener is None:
            raise RuntimeError("the server was not started")
        return self._listener.port

    async def stop(self) -> None:
        """Closes the port and every connection; unsent replies are dropped."""
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self.connections):
            connection.abort()
        self.unfinished.close()

    def throttle(self, on: bool) -> None:
        """Pauses or resumes all connections; the bookie pauses them while its write cache or a journal is full."""
        self.throttled = on
        if on:
            for connection in self.connections:
                connection.balance()
        else:
            self._resume()

    def full(self, connection: Connection) -> bool:
        """Returns True while all connections together have too many pending bytes; `balance` is called afterwards."""
        full = self.throttled or self.add_bytes > ADD_BYTES_MAX
        if full:
            self._paused.add(connection)
        return full

    def answered(self, size: int) -> None:
        """Notes that adds of `size` bytes were replied to."""
        self.add_bytes -= size
        if self._paused and self.add_bytes <= ADD_BYTES_MAX // 2:
            self._resume()

    def _resume(self) -> None:
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.balance()

    def gone(self, connection: Connection) -> None:
        """Removes a closed connection."""
        self.connections.discard(connection)
        self._paused.discard(connection)


class Connection(asyncio.Protocol):
    """One client's connection: bytes in, batches of requests to the bookie, replies in one write."""

    def __init__(self, server: BookieServer) -> None:
        self.parked: set[Callable[[], None]] = set()
        self.conversation = ServerConversation(frame_size_max=server.frame_size_max)
        self.reading = True
        self._server = server
        self._bookie = server.bookie
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._add_bytes = 0
        self._reads: deque[Read] = deque()
        self._reads_open = 0
        self._read_size = READ_SIZE_GUESS
        self._writable = True
        self._unfinished = 0  # bytes of a frame that has not arrived completely

    # -- callbacks of asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        server = self._server
        if len(server.connections) >= CONNECTIONS_MAX:
            server.refused_connections += 1
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH, low=WRITE_BUFFER_LOW)
        server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; its requests are finished, and their replies dropped."""
        self._transport = None
        self._reads.clear()
        self._drop_unfinished()
        self._server.gone(self)
        for cancel in list(self.parked):
            cancel()

    def pause_writing(self) -> None:
        """The client does not read its replies."""
        self._writable = False
        self.balance()

    def resume_writing(self) -> None:
        """The client reads its replies again."""
        self._writable = True
        self._start_reads()
        self.balance()

    def data_received(self, data: bytes) -> None:
        """Processes all bytes that have arrived."""
        batches = self.conversation.feed(data)
        before, self._unfinished = self._unfinished, self.conversation.unfinished[0]
        if before or self._unfinished:
            self._server.unfinished.changed(self, before, self._unfinished, whole=bool(batches))
        for adds, reads, request, size in batches:
            if adds:
                self._take_adds(adds, size)
            if reads:
                self._reads.extend(reads)
                self._start_reads()
            if request is not None:
                self._server.requests.answer(request, self)
        failed = self.conversation.failed
        if failed is not None:
            logger.warning("%s: closing: %s", self._peer, failed.message)
            self.close()
            return
        self.balance()

    # -- requests and replies --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Sends, or drops the bytes if the connection is closed."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Closes the connection after the replies have been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def end(self, why: str) -> None:
        """Closes the connection at once, because of an unfinished frame."""
        logger.warning("%s: closing: %s", self._peer, why)
        self._server.ended_unfinished += 1
        self._drop_unfinished()
        self.abort()

    def _drop_unfinished(self) -> None:
        before, self._unfinished = self._unfinished, 0
        self.conversation.drop_unfinished()
        self._server.unfinished.changed(self, before, 0, whole=True)

    def _take_adds(self, adds: list[Add], size: int) -> None:
        self._add_bytes += size
        self._server.add_bytes += size
        left = len(adds)

        def answered(count: int) -> None:
            nonlocal left
            left -= count
            if not left:
                self._added(size)

        def durable(accepted: list[Add], status: int) -> None:
            self.send(encode_add_replies(accepted, status))
            answered(len(accepted))

        refused = self._bookie.add_batch(adds, durable)
        if refused:
            self.send(b"".join([encode_add_replies((add,), status) for status, add in refused]))
            answered(len(refused))

    def _added(self, size: int) -> None:
        self._add_bytes -= size
        self._server.answered(size)
        if not self.reading:
            self.balance()

    def _start_reads(self) -> None:
        """Starts queued reads as long as their replies probably fit the bounds."""
        waiting = self._reads
        while waiting and self._writable and self._transport is not None:
            room = min(READS_MAX, READ_BYTES_MAX // self._read_size) - self._reads_open
            if room <= 0 and self._reads_open:
                return
            count = min(max(room, 1), len(waiting))
            if count == len(waiting):
                reads = list(waiting)
                waiting.clear()
            else:
                reads = [waiting.popleft() for _ in range(count)]
            self._reads_open += count
            self._answer_reads(self._bookie.read_batch(reads, self._reads_done))

    def _reads_done(self, answers: list[Answer]) -> None:
        """Sends the replies to reads from disk."""
        self._answer_reads(answers)
        self._start_reads()
        if not self.reading:
            self.balance()

    def _answer_reads(self, answers: list[Answer]) -> None:
        if not answers:
            return
        self._reads_open -= len(answers)
        step = max(WRITE_BYTES // self._read_size, 1)
        sent = 0
        for first in range(0, len(answers), step):
            data = b"".join(encode_read_replies(answers[first : first + step], self._bookie.last_confirmed))
            sent += len(data)
            self.send(data)
        self._read_size = max(sent // len(answers), 1)

    def balance(self) -> None:
        """Pauses or resumes reading, depending on the bounds."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        full = self._add_bytes > ADD_BYTES_PER_CONNECTION_MAX or self._server.full(self)
        full = full or self._server.unfinished.holds(self)
        go = self._writable and not self._reads and not full
        if go and not self.reading:
            self.reading = True
            transport.resume_reading()
        elif not go and self.reading:
            self.reading = False
            transport.pause_reading()
