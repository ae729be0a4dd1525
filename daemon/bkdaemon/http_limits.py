"""An HTTP listener whose limits are enforced while requests are read: uvicorn's h11 protocol on the caller's network.

    limits = ListenerLimits(connections_max=1000, reserved=100)
    server = LimitedServer(app, limits, reserved_paths=frozenset({"/metrics"}), body_limit=None)
    port = await server.start(world.network, "127.0.0.1", 0)    # OSError where the port is taken
    await server.stop()

`app` is any ASGI 3 application; nothing but uvicorn and h11 is needed. The limits of a connection, in the order in
which a client meets them:

    connections     at most connections_max + reserved; when they are all open, the oldest without a request is closed
    head            head_bytes_max (431) within head_seconds_max, from the connection or the head's first byte on
    requests        at most connections_max at a time (503); those of reserved_paths are answered beyond that
    body            body_bytes_max, or what body_limit(method, path) returns (413), within body_seconds_max;
                    bodies_bytes_max for all requests together (503)
    response        the client reads PROGRESS_BYTES in each stall_seconds_max
    keep-alive      keep_alive_seconds_max without a request

A response to an unfinished request closes the connection: the client may send LINGER_BYTES_MAX more in LINGER_S, which
are discarded, so that it reads the response before the connection is reset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from bkctl.world import Listener, Network

KIB: Final = 1024
MIB: Final = 1024 * KIB
STOP_S: Final = 2.0
"""The time that requests have to finish while the listener stops."""
LINGER_S: Final = 2.0
LINGER_BYTES_MAX: Final = 8 * MIB
PROGRESS_BYTES: Final = 64 * KIB
CHUNK_BYTES_MIN: Final = 256
"""Average size of a chunked body's chunks, once it has more than SMALL_CHUNKS_MAX: each costs the loop a step."""
SMALL_CHUNKS_MAX: Final = 256
WARN_S: Final = 60.0

BodyLimit = Callable[[str, str], int]
"""Returns the limit of a body in bytes for (method, path)."""
Receive = Callable[[], Any]
Send = Callable[[Any], Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one HTTP listener.

    Attributes:
        connections_max: connections, and requests in progress.
        reserved: connections beyond connections_max, for requests of reserved paths.
        head_bytes_max: bytes of a request line and its headers.
        head_seconds_max: time in which a head arrives.
        body_bytes_max: bytes of a request's body, unless its route has its own limit.
        body_seconds_max: time in which a body arrives.
        bodies_bytes_max: bytes of the bodies of all requests in progress.
        keep_alive_seconds_max: time a connection stays open without a request.
        stall_seconds_max: time without progress while a client reads a response.
    """

    connections_max: int = 1000
    reserved: int = 100
    head_bytes_max: int = 16 * KIB
    head_seconds_max: float = 10.0
    body_bytes_max: int = MIB
    body_seconds_max: float = 60.0
    bodies_bytes_max: int = 64 * MIB
    keep_alive_seconds_max: int = 30
    stall_seconds_max: float = 10.0


class LimitedServer:
    """Serves one ASGI application on one port.

    Attributes:
        open: connections.
        requests: requests in progress, except those of reserved paths.
        evicted: connections without a request that were closed to admit others, so far.
        refused: connections and requests that were refused because too many were open, so far.
    """

    def __init__(
        self,
        app: Any,
        limits: ListenerLimits,
        *,
        reserved_paths: frozenset[str] = frozenset(),
        body_limit: BodyLimit | None = None,
    ) -> None:
        self.app = app
        self.limits = limits
        self.reserved_paths = reserved_paths
        self.body_limit = body_limit or (lambda method, path: limits.body_bytes_max)
        self.requests = self.evicted = self.refused = self.body_bytes = 0
        self.idle: dict[_Connection, None] = {}
        self.stalled: dict[_Connection, None] = {}
        self.state = ServerState()
        self._listener: Listener | None = None
        self._warned_at = float("-inf")
        self._config = uvicorn.Config(
            self._bounded,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.keep_alive_seconds_max,
            h11_max_incomplete_event_size=limits.head_bytes_max,
        )
        self._config.load()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each request that is not valid

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self.state.connections)

    async def start(self, network: Network, host: str, port: int) -> int:
        """Opens the port and returns it; 0 picks a free one. Raises: OSError, the port is not available."""
        self._listener = await network.listen(host, port, self.protocol)
        return self._listener.port

    async def stop(self) -> None:
        """Closes the port and idle connections; requests in progress have STOP_S to finish."""
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self.idle):
            connection.abort()
        for active in self.state.connections:
            cast("_Connection", active).close_after_response()
        if self.state.tasks:
            await asyncio.wait(list(self.state.tasks), timeout=STOP_S)
        for task in list(self.state.tasks):
            task.cancel()
        for active in list(self.state.connections):
            cast("_Connection", active).abort()

    def protocol(self) -> asyncio.Protocol:
        """Returns the protocol of a new connection: the factory for a listener."""
        return _Connection(self, self._config)

    def admit(self) -> bool:
        """Makes room for one more connection; False if every open one has a request that makes progress."""
        if self.open < self.limits.connections_max + self.limits.reserved:
            return True
        victim = next(iter(self.idle), None) or next(iter(self.stalled), None)
        if victim is None:
            self.refuse("every connection has a request in progress; refusing connections")
            return False
        victim.abort()
        self.evicted += 1
        return True

    def refuse(self, text: str) -> None:
        """Counts a refusal and logs it, at most once in WARN_S."""
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._warned_at >= WARN_S:
            self._warned_at = now
            _log.warning("HTTP listener: %s; connections=%d refused=%d", text, self.open, self.refused)

    async def _bounded(self, scope: Any, receive: Receive, send: Send) -> None:
        """Runs the application for a request that is within the limits, and reports one that is not."""
        ordinary = scope["path"] not in self.reserved_paths
        if refusal := self._refusal(scope, ordinary=ordinary):
            await _respond(send, *refusal)
            return
        body = _Body(self, receive, self.body_limit(scope["method"], scope["path"]))
        started = False

        async def guarded(message: Any) -> None:
            nonlocal started
            if body.refusal is None or started:
                if message["type"] == "http.response.start":
                    started, message = True, {**message, "headers": [*message.get("headers", []), _date()]}
                await send(message)

        self.requests += ordinary
        try:
            await self.app(scope, body.receive, guarded)
        except Exception:
            if body.refusal is None or started:
                raise
        finally:
            self.requests -= ordinary
            self.body_bytes -= body.size
        if body.refusal is not None and not started:
            await _respond(send, *body.refusal)

    def _refusal(self, scope: Any, *, ordinary: bool) -> tuple[int, str] | None:
        """Status and reason of a head that is not served; None for one that is."""
        headers = scope["headers"]
        head = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) + 4 for n, v in headers)
        if head > self.limits.head_bytes_max:
            return 431, f"request head of {head} bytes; at most {self.limits.head_bytes_max} are allowed"
        if ordinary and self.requests >= self.limits.connections_max:
            self.refuse("too many requests in progress; refusing requests")
            return 503, f"{self.requests} requests in progress; at most {self.limits.connections_max} are allowed"
        declared = next((value for name, value in headers if name == b"content-length"), b"0").lstrip(b"0")
        limit = self.body_limit(scope["method"], scope["path"])
        if len(declared) > len(str(limit)) or int(declared or b"0") > limit:
            return 413, f"request body of {declared[:20].decode()} bytes; at most {limit} are allowed"
        return None


class _Body:
    """Counts a request's body as it arrives."""

    def __init__(self, server: LimitedServer, receive: Receive, limit: int) -> None:
        self.size = 0
        self.refusal: tuple[int, str] | None = None
        self._server = server
        self._receive = receive
        self._limit = limit

    async def receive(self) -> Any:
        """Returns the next part; a disconnect from the part on that exceeds a limit."""
        message = await self._receive() if self.refusal is None else {"type": "http.disconnect"}
        size = len(message.get("body", b""))
        self.size += size
        self._server.body_bytes += size
        if self.size > self._limit:
            self.refusal = 413, f"request body of more than {self._limit} bytes"
        elif size and self._server.body_bytes > self._server.limits.bodies_bytes_max:
            self._server.refuse("too many bytes of request bodies; refusing requests")
            self.refusal = 503, "too many bytes of request bodies in progress; retry later"
        return message if self.refusal is None else {"type": "http.disconnect"}


class _Parser(h11.Connection):
    """h11's parser, which also refuses a body in many small chunks and keeps status and reason of a refusal."""

    def __init__(self, head_bytes_max: int) -> None:
        super().__init__(h11.SERVER, head_bytes_max)
        self.refused: tuple[int, str] | None = None
        self._chunks = self._bytes = 0

    def next_event(self) -> Any:
        """Returns the next event. Raises: h11.RemoteProtocolError, the client's bytes are not valid."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._chunks = self._bytes = 0
            elif isinstance(event, h11.Data):
                self._chunks += 1
                self._bytes += len(event.data)
                if self._chunks > SMALL_CHUNKS_MAX and self._bytes < self._chunks * CHUNK_BYTES_MIN:
                    raise h11.RemoteProtocolError("too many small chunks", error_status_hint=400)
        except h11.RemoteProtocolError as error:
            self.refused = error.error_status_hint, str(error)
            error.__traceback__ = None  # h11's frames refer to the error
        else:
            return event
        raise h11.RemoteProtocolError(self.refused[1], self.refused[0])


class _Closing:
    """A transport whose close() lets a client that still sends its request read the response first."""

    def __init__(self, connection: _Connection, transport: asyncio.Transport) -> None:
        self.inner = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_closing(self) -> bool:
        """True once close() was called."""
        return self._connection.lingering or self.inner.is_closing()

    def close(self) -> None:
        """Closes the connection after what is written has been sent."""
        if self.is_closing():
            return
        if self._connection.unfinished and self.inner.can_write_eof():
            self._connection.linger()
            self.inner.write_eof()
        else:
            self.inner.close()
        self._connection.check_progress()


class _Connection(H11Protocol):
    """uvicorn's protocol with deadlines. Attributes: lingering: bytes are discarded until the client closes."""

    def __init__(self, server: LimitedServer, config: uvicorn.Config) -> None:
        super().__init__(config, server.state, {})
        self.conn: _Parser = _Parser(server.limits.head_bytes_max)
        self.lingering = False
        self._server = server
        self._limits = server.limits
        self._phase = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._progress: asyncio.TimerHandle | None = None
        self._discarded = self._unsent = 0

    @property
    def unfinished(self) -> bool:
        """True while a part of the request is still to come."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = cast("asyncio.Transport", _Closing(self, transport))
        if self._server.admit():
            super().connection_made(self.transport)
            self._enter("head")
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self.flow is not None:
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
            # A reference cycle would keep what the connection received until a garbage collection; a bookie's are rare.
            self.transport = self.flow._transport = cast("_Closing", self.transport).inner
            self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.lingering:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self.abort()
            return
        super().data_received(data)
        self._enter(self._phase_now())

    def on_response_complete(self) -> None:
        if self.unfinished:
            self.transport.close()
        super().on_response_complete()
        phase = self._phase_now()
        self._enter("idle" if phase == "head" and not self.conn.trailing_data[0] else phase)
        self.check_progress()

    def send_400_response(self, msg: str) -> None:
        """Reports a request that is not valid and closes; closes without a report if a response has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        status, text = self.conn.refused or (400, msg)
        body = text.encode("latin-1", "replace") + b"\n"
        headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
        of_head = self.conn.our_state is h11.SEND_RESPONSE and self.cycle.scope["method"] == "HEAD"
        content = b"" if of_head else body
        events = h11.Response(status_code=status, headers=headers), h11.Data(data=content), h11.EndOfMessage()
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._server.stalled[self] = None
        self.check_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._server.stalled.pop(self, None)
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, unless its last response is still being sent."""
        if self.transport.get_write_buffer_size():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def close_after_response(self) -> None:
        """Ends keep-alive."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def abort(self) -> None:
        """Closes the connection now; bytes that are not sent are dropped."""
        self._forget()
        self.connections.discard(self)
        self.transport.abort()

    def linger(self) -> None:
        """Discards what the client still sends, for LINGER_S."""
        self.lingering = True
        self.flow.resume_reading()
        self._forget()
        self._deadline = self.loop.call_later(LINGER_S, self.abort)

    def check_progress(self) -> None:
        """Starts to measure how fast the client reads a response, if a part of it is not sent yet."""
        if self._progress is None and (left := self.transport.get_write_buffer_size()):
            self._unsent = left
            self._progress = self.loop.call_later(self._limits.stall_seconds_max, self._check_again)

    def _check_again(self) -> None:
        self._progress, left = None, self.transport.get_write_buffer_size()
        if left and left > self._unsent - PROGRESS_BYTES:
            self.abort()
        else:
            self.check_progress()

    def _phase_now(self) -> str:
        return {h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state, "response")

    def _enter(self, phase: str) -> None:
        """Starts the deadline of a phase, unless the connection is in that phase already."""
        if phase == self._phase or self.transport.is_closing():
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        seconds = {"head": self._limits.head_seconds_max, "body": self._limits.body_seconds_max}.get(phase)
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self.abort)
        self._server.idle.pop(self, None)
        if phase in ("head", "idle"):
            self._server.idle[self] = None

    def _forget(self) -> None:
        for timer in (self._deadline, self._progress):
            if timer is not None:
                timer.cancel()
        self._deadline = self._progress = None
        self._server.idle.pop(self, None)
        self._server.stalled.pop(self, None)


def _date() -> tuple[bytes, bytes]:
    return b"date", formatdate(usegmt=True).encode()


async def _respond(send: Send, status: int, text: str) -> None:
    """Sends a refusal and closes the connection."""
    body = text.encode() + b"\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), _date()]
    start = {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
