"""The broker's port: accepts clients, and has the state that their connections share.

    Connection ─► handlers ─► Topics ─► Topic ─► ManagedLedger
                          └─► Backend (owners, rules, names), Schemas

Source: PulsarService.java, BrokerService.java, PulsarChannelInitializer.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import Command
from bkctl.errors import BkctlError
from bkctl.log.workers import Workers
from bkdaemon.broker.protocol import consuming, producing, requests, transactions
from bkdaemon.broker.protocol.connection import Connection
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.topic.compatibility import Schemas
from bkdaemon.broker.topic.topics import Topics
from bkdaemon.unfinished_frames import UnfinishedFrames

if TYPE_CHECKING:
    from bkctl.world import Listener, Worker, World
    from bkdaemon.broker.topic.backend import Backend

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 10_000
"""Maximum, also with a larger limit in the configuration."""
DEFAULT_LIMITS: Final = ServerLimits()
RECONNECT_S: Final = 0.2
"""Lookups are answered for this time after the last topic is closed: official clients reconnect after 0.1 s."""
LAST_LOOKUPS_S: Final = 1.0
"""Maximum wait for lookups that are pending then."""
POLL_S: Final = 0.01


class BrokerServer:
    """Listens and serves topics to clients.

    Attributes:
        connections: open connections.
        topics: topics served by this broker.
        limits: limits of connections and requests.
        lookups: pending lookups.
        unfinished: bytes of partial frames of all connections.
        handlers: handlers of commands, by command number.
    """

    def __init__(
        self,
        backend: Backend,
        world: World,
        *,
        expose_broker_metadata: bool = False,
        limits: ServerLimits | None = None,
    ) -> None:
        self.backend = backend
        self.limits = limits = limits or DEFAULT_LIMITS
        self.expose_broker_metadata = expose_broker_metadata
        self.now_ms = world.clock.now_ms
        self.topics = Topics(
            backend, self.now_ms, loads_max=limits.topic_loads_max, load_timeout_s=limits.topic_load_timeout_s
        )
        self.schemas = Schemas(backend)
        self.connections: set[Connection] = set()
        self.unfinished = UnfinishedFrames(lambda: backend.unconfirmed_bytes, lambda: self.limits.unfinished_bytes_max)
        self.lookups = 0
        self.refused_connections = 0
        self._by_address: Counter[str] = Counter()
        self.handlers: dict[int, requests.Handler] = {
            **dict.fromkeys(map(int, Command), requests.unexpected),
            **requests.HANDLERS,
            **producing.HANDLERS,
            **consuming.HANDLERS,
            **transactions.HANDLERS,
        }
        self._world = world
        self._workers = Workers()
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Opens the port; 0 selects a free one."""
        self._listener = await self._world.network.listen(host, port, lambda: Connection(self))

    @property
    def matcher(self) -> Worker:
        """The worker that matches topic patterns outside the event loop."""
        return self._workers.get(self._world, "patterns")

    @property
    def decoder(self) -> Worker:
        """The worker that decompresses single messages outside the event loop."""
        return self._workers.get(self._world, "payloads")

    @property
    def port(self) -> int:
        """The port of the listener."""
        if self._listener is None:
            raise RuntimeError("the server was not started")
        return self._listener.port

    async def stop(self) -> None:
        """Stops listening, closes the topics, answers the last lookups, then closes every connection."""
        if self._listener is not None:
            await self._listener.close()
        await self.topics.close()
        await self._answer_last_lookups()
        for connection in list(self.connections):
            connection.end("the broker is shutting down")
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._workers.close()

    async def _answer_last_lookups(self) -> None:
        """Answers lookups of clients whose topics were closed; without a reply they would retry ever later."""
        if not self.connections:
            return
        await asyncio.sleep(RECONNECT_S)
        for _ in range(int(LAST_LOOKUPS_S / POLL_S)):
            if not self.lookups:
                return
            await asyncio.sleep(POLL_S)

    def welcome(self, connection: Connection) -> str | None:
        """Counts a new connection; returns why it is refused if there are too many, "" to close it without an error."""
        limits, count = self.limits, len(self.connections)
        why = "" if count >= CONNECTIONS_MAX else None
        if 0 < limits.connections_max <= count:
            why = "Reached the maximum number of connections"
        elif 0 < limits.connections_per_address_max <= self._by_address[connection.address]:
            why = f"Reached the maximum number of connections on address/{connection.peer}"
        if why is None:
            self.connections.add(connection)
            self._by_address[connection.address] += 1
        else:
            self.refused_connections += 1
        return why

    def gone(self, connection: Connection) -> None:
        """Removes a closed connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work that continues when its connection is closed."""
        task = asyncio.get_running_loop().create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BkctlError as error:
            logger.warning("%s", error.message)
        except Exception:  # a bug in the broker
            logger.exception("background task failed with an internal error")
