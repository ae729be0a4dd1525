"""The broker's HTTP port: uvicorn on the broker's own event loop, without its signals and logs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import uvicorn

from bkctl.errors import Unavailable

if TYPE_CHECKING:
    from starlette.applications import Starlette

STOP_S: Final = 2.0
START_POLL_S: Final = 0.01
CONNECTIONS_MAX: Final = 1_000


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process has its own."""
        yield


class WebServer:
    """Serves one application."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=int(STOP_S),
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Opens the port and returns it; 0 picks a free one.

        Raises:
            Unavailable: the port cannot be had.
        """
        try:
            listener = socket.create_server((host, port), backlog=1024)
        except OSError as e:
            raise Unavailable(f"cannot listen on {host}:{port}: {e}") from e
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="web server")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(START_POLL_S)
        if self._task.done():
            self._task.result()
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Closes the port, and what is open after STOP_S."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
