"""One connection to one bookie: sends batches, dispatches replies and time-outs, and reconnects after failures.

    state        a request                                    leaves it by
    idle         starts to connect                            the first request
    connecting   waits                                        connected, refused, too slow
    open         goes out with all others of this loop turn   the peer, an error, close()
    resting      fails at once: UNREACHABLE                   the end of the back-off

Failures are reported as negative statuses (UNREACHABLE, TIMED_OUT), never as exceptions, and always from the event
loop, never from within the call that sent. A Java bookie opens its port before it is ready and resets what comes too
early: a connection that breaks before its first answer is made again, and all that was sent on it is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias, cast

from bkctl.codec.wire import FRAME_SIZE_MAX, Reply
from bkctl.errors import BadBytes, BkctlError
from bkctl.model.ids import BookieId
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.protocol.quorum import TIMED_OUT, UNREACHABLE
from bkctl.world import Network

BACK_OFF_FIRST_S: Final = 0.1
BACK_OFF_MAX_S: Final = 5.0
UNPROVEN_RETRIES_MAX: Final = 5
"""How often a connection that breaks before its first answer is made again."""
JOIN_MAX: Final = 16 * 1024
"""Parts that are shorter than this on average are joined before they are written; longer ones are not copied."""
UNPROVEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes kept to be sent again on such a connection."""

_log = logging.getLogger(__name__)
Request: TypeAlias = Callable[[BookieConversation], tuple[int, bytes]]
Address: TypeAlias = Callable[[], Awaitable[tuple[str, int]]]


class Batch:
    """Requests that went out together; one object however many they are.

    Args:
        entry_ids: one a request, in order; () for a request that is about no entry.
        answered: called with the replies of one read of the socket.
        failed: called with the entries (or -1) without a reply, and the status.
    """

    __slots__ = ("answered", "entry_ids", "failed", "first_token", "sent_at", "timeout_s")

    def __init__(
        self,
        entry_ids: Sequence[int],
        timeout_s: float,
        answered: Callable[[list[Reply]], None],
        failed: Callable[[list[int], int], None],
    ) -> None:
        self.entry_ids = entry_ids
        self.timeout_s = timeout_s
        self.answered = answered
        self.failed = failed
        self.first_token = 0
        self.sent_at = 0.0


class _Link(asyncio.Protocol):
    """A TCP connection; notifies its owner, as long as it is the current one."""

    def __init__(self, owner: BookieConnection) -> None:
        self._owner = owner
        self.transport: asyncio.Transport | None = None
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opens."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not of asyncio's class

    def data_received(self, data: bytes) -> None:
        """Hands bytes on."""
        self._owner.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports the end."""
        self._owner.lost(self, str(exc) if exc else "closed by the bookie")

    def pause_writing(self) -> None:
        """The socket is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self.paused = False
        self._owner.flush()


class BookieConnection:
    """A connection in one protocol version, made on demand and made again after it broke.

    Args:
        address: resolves the bookie's host and port; called before every connection.
        on_health: called with True after a first reply, False after a failed or broken connection.
    """

    def __init__(
        self,
        bookie: BookieId,
        version: int,
        network: Network,
        address: Address,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        connect_timeout_s: float = 10.0,
        on_health: Callable[[BookieId, bool], None] = lambda _bookie, _well: None,
    ) -> None:
        self.bookie = bookie
        self.version = version
        self.last_used = 0.0
        self._network = network
        self._address = address
        self._frame_size_max = frame_size_max
        self._connect_timeout_s = connect_timeout_s
        self._on_health = on_health
        self._loop = asyncio.get_running_loop()
        self._conversation = self._new_conversation()
        self._waiting: dict[int, Batch] = {}  # token -> batch, in the order sent
        self._out: list[bytes] = []
        self._flush_planned = False
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._back_off_s = 0.0
        self._rest_until = 0.0
        self._unproven: list[bytes] | None = []  # what was sent before the first answer
        self._unproven_size = 0
        self._retries = 0

    # -- requests -------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> int:
        """Requests without an answer."""
        return len(self._waiting)

    def send_adds(
        self, ledger_id: int, master_key: bytes, entry_ids: Sequence[int], entries: Sequence[bytes], flags: int,
        batch: Batch,
    ) -> None:  # fmt: skip
        """Adds many entries of one ledger."""
        pairs = zip(entry_ids, entries, strict=True)
        tokens, parts = self._conversation.add_parts(ledger_id, master_key, pairs, flags)
        self._submit(batch, tokens, parts)

    def send_reads(
        self, ledger_id: int, entry_ids: Sequence[int], batch: Batch, flags: int = 0, master_key: bytes | None = None
    ) -> None:
        """Reads many entries of one ledger, one request each."""
        tokens, frames = self._conversation.read_many(ledger_id, entry_ids, flags, master_key)
        self._submit(batch, tokens, (frames,))

    def send_reads_each(self, entries: Sequence[tuple[int, int]], batch: Batch) -> None:
        """Reads many entries of many ledgers: (ledger id, entry id), one request each."""
        tokens, frames = self._conversation.read_each(entries)
        self._submit(batch, tokens, (frames,))

    def send(self, request: Request, batch: Batch) -> None:
        """Sends whatever request makes of the conversation."""
        token, frame = request(self._conversation)
        self._submit(batch, (token,), (frame,))

    async def call(self, request: Request, timeout_s: float) -> Reply:
        """One request, one reply; a reply with a negative status if none came."""
        future: asyncio.Future[Reply] = self._loop.create_future()

        def answered(replies: list[Reply]) -> None:
            if not future.done():
                future.set_result(replies[0])

        def failed(_: list[int], status: int) -> None:
            if not future.done():
                future.set_result(Reply(0, status))

        self.send(request, Batch((), timeout_s, answered, failed))
        return await future

    def _submit(self, batch: Batch, tokens: Sequence[int], parts: Sequence[bytes]) -> None:
        batch.first_token = tokens[0]
        batch.sent_at = self.last_used = self._loop.time()
        if len(tokens) == 1:
            self._waiting[tokens[0]] = batch
        else:
            self._waiting.update(dict.fromkeys(tokens, batch))
        self._out += parts
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes what is waiting to go out, or sees to it that there is a connection."""
        self._flush_planned = False
        if not self._out:
            return
        if self._closed or (self._link is None and self._loop.time() < self._rest_until):
            self._fail_all(UNREACHABLE)
        elif self._link is None:
            if self._connecting is None:
                self._connecting = self._loop.create_task(self._connect(0.0), name=f"connect to {self.bookie}")
        elif not self._link.paused and self._link.transport is not None:
            parts, self._out = self._out, []
            size = sum(map(len, parts))
            if self._unproven is not None:
                self._keep(parts, size)
            if size <= JOIN_MAX * len(parts):
                self._link.transport.write(b"".join(parts))
            else:
                self._link.transport.writelines(parts)

    def _keep(self, parts: list[bytes], size: int) -> None:
        assert self._unproven is not None
        self._unproven += parts
        self._unproven_size += size
        if self._unproven_size > UNPROVEN_BYTES_MAX:
            self._unproven = None

    # -- the connection -------------------------------------------------------------------------------------------

    def _new_conversation(self) -> BookieConversation:
        return BookieConversation(self.version, self._frame_size_max, source=f"bookie {self.bookie}")

    async def _connect(self, delay_s: float) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
        link = _Link(self)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                host, port = await self._address()
                await self._network.connect(host, port, lambda: link)
        except (OSError, TimeoutError, BkctlError) as e:
            _log.debug("bookie %s: no connection: %s", self.bookie, e)
            self._connecting = None
            self._broken()
            return
        self._connecting = None
        if self._closed:
            assert link.transport is not None
            link.transport.abort()
            return
        self._link = link
        self.flush()

    def received(self, link: _Link, data: bytes) -> None:
        """Replies, perhaps in part, of the current link."""
        if link is not self._link:
            return
        try:
            replies = self._conversation.receive(data)
        except BadBytes as e:
            self._drop(f"it sent an invalid reply: {e}")
            return
        if not replies:
            return
        if self._back_off_s or self._unproven is not None:
            self._back_off_s, self._unproven, self._retries = 0.0, None, 0
            self._on_health(self.bookie, True)
        pop = self._waiting.pop
        batch: Batch | None = None
        group: list[Reply] = []
        for reply in replies:
            owner = pop(reply[0], None)
            if owner is not batch:
                if batch is not None:
                    batch.answered(group)
                batch, group = owner, []
            group.append(reply)
        if batch is not None:
            batch.answered(group)

    def lost(self, link: _Link, why: str) -> None:
        """The current link broke."""
        if link is self._link:
            self._drop(why)

    def _drop(self, why: str) -> None:
        link, self._link = self._link, None
        if link is not None and link.transport is not None:
            link.transport.abort()
        _log.debug("bookie %s: connection lost: %s", self.bookie, why)
        if self._unproven and self._retries < UNPROVEN_RETRIES_MAX and not self._closed and self._waiting:
            self._retries += 1
            self._out[:0] = self._unproven
            self._unproven, self._unproven_size = [], 0
            delay_s = min(BACK_OFF_FIRST_S * 2 ** (self._retries - 1), BACK_OFF_MAX_S)
            self._connecting = self._loop.create_task(self._connect(delay_s), name=f"connect to {self.bookie}")
            return
        self._broken()

    def _broken(self) -> None:
        """Fails all requests in flight and delays the next attempt; an idle connection may end without an error."""
        if not self._waiting:
            self._fail_all(UNREACHABLE)  # no listener is left; the next connection starts from scratch
            return
        self._back_off_s = min(max(self._back_off_s * 2, BACK_OFF_FIRST_S), BACK_OFF_MAX_S)
        self._rest_until = self._loop.time() + self._back_off_s
        self._retries = 0
        if not self._closed:
            self._on_health(self.bookie, False)
        self._fail_all(UNREACHABLE)

    def _fail_all(self, status: int) -> None:
        waiting, self._waiting = self._waiting, {}
        self._out.clear()
        self._conversation = self._new_conversation()
        self._unproven, self._unproven_size = [], 0
        _tell(waiting.items(), status)

    # -- time -----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> None:
        """Fails requests that are too old. Called about once a second, for all requests at once."""
        late = [(token, batch) for token, batch in self._waiting.items() if now - batch.sent_at > batch.timeout_s]
        if not late:
            return
        for token, _ in late:
            del self._waiting[token]
        self._conversation.forget([token for token, _ in late])
        _log.debug("bookie %s: %d requests without an answer", self.bookie, len(late))
        self._on_health(self.bookie, False)
        _tell(late, TIMED_OUT)

    def close(self) -> None:
        """Closes the connection; pending requests fail. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._drop("closed by the client")


def _tell(waiting: Iterable[tuple[int, Batch]], status: int) -> None:
    """Notifies each batch, once, of its requests without a reply."""
    by_batch: dict[Batch, list[int]] = {}
    for token, batch in waiting:
        by_batch.setdefault(batch, []).append(token)
    for batch, tokens in by_batch.items():
        if batch.entry_ids:
            first = batch.first_token
            batch.failed([batch.entry_ids[token - first] for token in tokens], status)
        else:
            batch.failed([-1], status)


def split_replies(replies: list[Reply]) -> tuple[list[int], list[tuple[int, int]]]:
    """The entry ids that went well, and (entry id, status) of the others."""
    if not any(reply[1] for reply in replies):  # Status.OK is 0
        return [reply[3] for reply in replies], []
    good = [reply.entry_id for reply in replies if reply.status == Status.OK]
    return good, [(reply.entry_id, reply.status) for reply in replies if reply.status != Status.OK]
