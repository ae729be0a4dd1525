"""The HTTP port of a bookie: GET /metrics for Prometheus, GET /heartbeat for load balancers. Nothing else.

One request a connection, small and read-only; on the bookie's event loop, through World's network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from bkctl.world import Listener, World

REQUEST_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 100
IDLE_S: Final = 10.0
Page = Callable[[], tuple[str, str]]
"""Makes (content type, text)."""


class HttpServer:
    """Serves a few pages."""

    def __init__(self, world: World, pages: Mapping[str, Page]) -> None:
        self.pages = pages
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

    def answer(self, request: bytes) -> bytes:
        """The whole answer to the head of a request."""
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _reply("400 Bad Request", "text/plain", "this is no HTTP request\n")
        if words[0] not in ("GET", "HEAD"):
            return _reply("405 Method Not Allowed", "text/plain", "only GET\n")
        page = self.pages.get(words[1].split("?", 1)[0])
        if page is None:
            return _reply("404 Not Found", "text/plain", f"there is: {' '.join(sorted(self.pages))}\n")
        kind, text = page()
        return _reply("200 OK", kind, text, head_only=words[0] == "HEAD")


class _Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None

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

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._data += data
        if b"\r\n\r\n" in self._data:
            self._transport.write(self._server.answer(self._data))
            self._transport.close()
        elif len(self._data) > REQUEST_BYTES_MAX:
            self._transport.abort()

    def end(self) -> None:
        """Nobody waits for the rest."""
        if self._transport is not None:
            self._transport.abort()


def _reply(status: str, kind: str, text: str, *, head_only: bool = False) -> bytes:
    body = text.encode("utf-8")
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode("latin-1") + (b"" if head_only else body)
