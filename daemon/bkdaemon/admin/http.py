"""The HTTP port of a bookie: pages that are ready at once (/metrics, /heartbeat) and routes that need the loop.

One small request a connection, on the bookie's event loop, through World's network. Pages are read-only; a route
decides by itself which methods it takes, as Java's services do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import parse_qsl

from bkctl.errors import BkctlError

if TYPE_CHECKING:
    from bkctl.world import Listener, World

REQUEST_BYTES_MAX: Final = 8192
"""Of a request's head and body together."""
CONNECTIONS_MAX: Final = 100
IDLE_S: Final = 10.0
ROUTE_S: Final = 60.0
"""How long a route may take until its answer is with the client."""
METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE"})
Page = Callable[[], tuple[str, str]]
"""Makes (content type, text)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """What a route is asked; body is None where none was sent."""

    method: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


class Answer(NamedTuple):
    """What a route answers."""

    text: str
    code: int = 200


Route = Callable[[Request], Awaitable[Answer]]


class HttpServer:
    """Serves a few pages and routes."""

    def __init__(self, world: World, pages: Mapping[str, Page], routes: Mapping[str, Route] | None = None) -> None:
        self.pages = pages
        self.routes = routes or {}
        self.open: set[_Connection] = set()
        self._network = world.network
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> int:
        """Opens the port and returns it."""
        self._listener = await self._network.listen(host, port, lambda: _Connection(self))
        return self._listener.port

    async def stop(self) -> None:
        """Closes the port and what is open."""
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self.open):
            connection.end()

    def answer(self, head: bytes, body: bytes) -> bytes | Awaitable[bytes]:
        """The whole answer to a request, or what will give it."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _reply(400, "text/plain", "this is no HTTP request\n")
        method = words[0]
        path, _, query = words[1].partition("?")
        if (route := self.routes.get(path)) is not None and method in METHODS:
            parameters = dict(parse_qsl(query, keep_blank_values=True))
            return _routed(route, Request(method, parameters, body.decode("utf-8", "replace") or None))
        if method not in ("GET", "HEAD") or route is not None:
            return _reply(405, "text/plain", "only GET\n" if route is None else "not with this method\n")
        page = self.pages.get(path)
        if page is None:
            return _reply(404, "text/plain", f"there is: {' '.join(sorted({*self.pages, *self.routes}))}\n")
        kind, text = page()
        return _reply(200, kind, text, head_only=method == "HEAD")


async def _routed(route: Route, request: Request) -> bytes:
    """What a route answers; what it raises is a 500, as where a service of Java's throws."""
    text, code = "Internal Server Error", 500
    try:
        text, code = await route(request)
    except (BkctlError, OSError, ValueError) as error:
        _log.warning("an HTTP request failed: %s", error)
    except Exception:  # noqa: BLE001 - a bug of ours: it is told, and the port goes on
        _log.exception("an HTTP request failed, by a bug")
    return _reply(code, "application/json" if text[:1] in ("{", "[", '"') else "text/plain", text)


class _Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None
        self._work: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._server.open) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._server.open.add(self)
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self.end)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._work is not None:
            return
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if len(self._data) > REQUEST_BYTES_MAX:
            self._transport.abort()
        elif end and len(body) >= (length := _content_length(head)):
            self._answer(self._server.answer(head, body[:length]))

    def _answer(self, answer: bytes | Awaitable[bytes]) -> None:
        assert self._transport is not None
        if isinstance(answer, bytes):
            self._transport.write(answer)
            self._transport.close()
            return
        self._work = asyncio.ensure_future(answer)
        self._work.add_done_callback(self._done)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(ROUTE_S, self.end)

    def _done(self, work: asyncio.Future[bytes]) -> None:
        if self._transport is not None and not work.cancelled():
            self._transport.write(work.result())
            self._transport.close()

    def end(self) -> None:
        """Nobody waits for the rest."""
        if self._transport is not None:
            self._transport.abort()


def _content_length(head: bytes) -> int:
    """Bytes of the body; one that cannot be, or is sent in chunks, counts as none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return 0


def _reply(code: int, kind: str, text: str, *, head_only: bool = False) -> bytes:
    body = text.encode("utf-8", "replace")
    lines = (
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        f"Content-Type: {kind}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode("latin-1") + (b"" if head_only else body)
