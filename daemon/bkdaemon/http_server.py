"""The HTTP port of a bookie: pages that are ready at once (/metrics, /heartbeat) and routes that need the loop.

An ASGI application on the bookie's event loop, within the limits of `bkdaemon.http_limits`: pages and the routes of a
bookie's state are answered although all other requests are in progress. Pages are read-only; a route decides which
methods it supports, as Java's services do. One request a connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from bkctl.errors import BkctlError

if TYPE_CHECKING:
    from bkctl.world import World
    from bkdaemon.http_limits import LimitedServer

CONNECTIONS_MAX: Final = 100
RESERVED: Final = 20
"""Connections beyond those, for pages and the routes of RESERVED_PATHS."""
RESERVED_PATHS: Final = frozenset({"/api/v1/bookie/is_ready", "/api/v1/bookie/state"})
BODY_BYTES_MAX: Final = 64 * 1024
"""Bytes of any route's body: a JSON object of a few fields, which is parsed on the event loop."""
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of the long answers that clients have not read yet; above it a long answer is a 503."""
LONG_ANSWER: Final = 64 * 1024
ROUTE_S: Final = 60.0
"""The time that a route may need, and a client to read its answer."""
METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE"})
Page = Callable[[], tuple[str, str]]
"""Returns (content type, text)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a route; body: None if the request has none."""

    method: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


class Answer(NamedTuple):
    """The answer of a route: its text and its status."""

    text: str
    code: int = 200


Route = Callable[[Request], Awaitable[Answer]]


def json_text(value: object) -> str:
    """Returns a value as JSON, a field a line, with the spaces of Java's printer: scripts search for `"a" : 1`."""
    return json.dumps(value, ensure_ascii=False, indent=2, separators=(",", " : "))


class HttpServer:
    """Serves a few pages and routes."""

    def __init__(self, world: World, pages: Mapping[str, Page], routes: Mapping[str, Route] | None = None) -> None:
        self.pages = pages
        self.routes = routes or {}
        self._network = world.network
        self._answer_bytes = 0
        self._server: LimitedServer | None = None

    async def start(self, host: str, port: int) -> int:
        """Opens the port and returns it."""
        from bkdaemon.http_limits import LimitedServer, ListenerLimits  # uvicorn takes 40 ms and 4 MB

        limits = ListenerLimits(connections_max=CONNECTIONS_MAX, reserved=RESERVED, body_bytes_max=BODY_BYTES_MAX)
        self._server = LimitedServer(self._serve, limits, reserved_paths=RESERVED_PATHS | self.pages.keys())
        return await self._server.start(self._network, host, port)

    async def stop(self) -> None:
        """Closes the port and its connections."""
        if self._server is not None:
            await self._server.stop()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request, as ASGI has it."""
        code, kind, text = 404, "text/plain", f"there is: {' '.join(sorted({*self.pages, *self.routes}))}\n"
        method, path = scope["method"], scope["path"]
        page, route = self.pages.get(path), self.routes.get(path)
        if route is not None and method in METHODS:
            if (body := await _body(receive)) is None:
                return
            parameters = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            answer = await _while_connected(_routed(route, Request(method, parameters, body or None)), receive)
            if answer is None:
                return
            text, code = answer
            kind = "application/json" if text[:1] in ("{", "[", '"') else "text/plain"
        elif route is not None or method not in ("GET", "HEAD"):
            code, text = 405, "only GET\n" if route is None else "not with this method\n"
        elif page is not None:
            code, (kind, text) = 200, page()
        await self._send(code, kind, text.encode("utf-8", "replace"), send)

    async def _send(self, code: int, kind: str, data: bytes, send: Any) -> None:
        """Sends an answer in parts, so that memory holds the parts that its client does not read for ROUTE_S only."""
        if (size := len(data)) > LONG_ANSWER and self._answer_bytes + size > ANSWER_BYTES_MAX:
            code, kind, data = 503, "text/plain", b"too many long answers in progress; retry later\n"
            size = len(data)
        headers = [
            (b"content-type", f"{kind}; charset=utf-8".encode()),
            (b"content-length", str(size).encode()),
            (b"connection", b"close"),
        ]
        self._answer_bytes += size
        try:
            async with asyncio.timeout(ROUTE_S):
                await send({"type": "http.response.start", "status": code, "headers": headers})
                for at in range(0, size, LONG_ANSWER):
                    part = data[at : at + LONG_ANSWER]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body"})
        except TimeoutError:
            _log.warning("an HTTP client did not take its answer of %d bytes within %g s", size, ROUTE_S)
        finally:
            self._answer_bytes -= size


async def _body(receive: Any) -> str | None:
    """A request's body as text; None if the client does not send it completely, or more than is allowed."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts).decode("utf-8", "replace")


async def _while_connected(work: Coroutine[Any, Any, Answer], receive: Any) -> Answer | None:
    """The result of work, which ends early (None) when the client disconnects."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _routed(route: Route, request: Request) -> Answer:
    """Returns the answer of a route; an error that it raises is a 500, as in Java's services."""
    try:
        async with asyncio.timeout(ROUTE_S):
            return await route(request)
    except TimeoutError:
        return Answer(f"no result within {ROUTE_S:g} s", 503)
    except (BkctlError, OSError, ValueError, RecursionError) as error:
        _log.warning("an HTTP request failed: %s", error)
    except Exception:  # noqa: BLE001 - a bug is logged, and the port continues
        _log.exception("an HTTP request failed, by a bug")
    return Answer("Internal Server Error", 500)
