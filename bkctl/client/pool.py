"""Connections to all bookies, by bookie id; their addresses; quarantine of failing bookies.

A connection is opened by its first request and closed when it was not used for a while. One timer polls all of them for
requests that are too old. A bookie whose connections fail again and again, or that refuses adds, is put in quarantine:
new ensembles do without it for a time, if they can.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bkctl.client.bookie import BookieConnection
from bkctl.client.config import ClientConfig
from bkctl.errors import NotFound, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.model.ids import BookieId
from bkctl.world import World

POLL_S: Final = 0.5
IDLE_CLOSE_S: Final = 300.0
ADDRESS_KEPT_S: Final = 30.0
ADDRESSES_MAX: Final = 10_000
QUARANTINE_FAILURES: Final = 3
"""So many failures, none of them older than FAILURE_KEPT_S, put a bookie in quarantine."""
FAILURE_KEPT_S: Final = 60.0
QUARANTINE_SHARE_MAX: Final = 0.5
"""No more of the writable bookies than this are left out at a time."""
REPLY_ROOM: Final = 10_240
"""A v3 reply is longer than the add that brought the entry; what Pulsar leaves for it."""

_log = logging.getLogger(__name__)


class BookiePool:
    """All connections of one client.

    Attributes:
        without_batch_read: bookies whose connection ended at a batch read, as of those before 4.17: not asked again.

    Args:
        registry: provides the addresses of bookies.
        world: its network is used.
    """

    def __init__(self, registry: BookieRegistry, world: World, config: ClientConfig) -> None:
        self._registry = registry
        self._world = world
        self._config = config
        self._connections: dict[tuple[BookieId, int, int], BookieConnection] = {}
        self.without_batch_read: set[BookieId] = set()
        self._addresses: dict[BookieId, tuple[tuple[str, int], float]] = {}
        self._failures: dict[BookieId, list[float]] = {}  # when
        self._slow: dict[BookieId, float] = {}  # when
        self._quarantined: dict[BookieId, float] = {}  # until when
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def connection(self, bookie: BookieId, version: int | None = None, ledger_id: int = 0) -> BookieConnection:
        """The connection for a ledger's requests to a bookie; version None is the configured one.

        Raises:
            Unavailable: the client is closed.
        """
        if self._closed:
            raise Unavailable("the client is closed")
        key = (bookie, version or self._config.version, ledger_id % self._config.channels_per_bookie)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = BookieConnection(
                bookie,
                key[1],
                self._world.network,
                lambda: self._address(bookie),
                frame_size_max=self._config.frame_size_max + REPLY_ROOM,
                connect_timeout_s=self._config.connect_timeout_s,
                on_health=self._on_health,
            )
            connection.last_used = asyncio.get_running_loop().time()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)
        return connection

    async def _address(self, bookie: BookieId) -> tuple[str, int]:
        """Where a bookie listens: as registered; if it is not, as its id says, for old ids are host:port."""
        now = asyncio.get_running_loop().time()
        known = self._addresses.get(bookie)
        if known is not None and now - known[1] < ADDRESS_KEPT_S:
            return known[0]
        try:
            address = await self._registry.address(bookie)
        except NotFound:
            host, _, port = bookie.rpartition(":")
            if not host or not port.isdecimal():
                raise
            address = host, int(port)
        if len(self._addresses) >= ADDRESSES_MAX:
            self._addresses.clear()
        self._addresses[bookie] = address, now
        return address

    # -- health ---------------------------------------------------------------------------------------------------

    def _on_health(self, bookie: BookieId, well: bool) -> None:
        if well:
            self._failures.pop(bookie, None)
        else:
            self._addresses.pop(bookie, None)  # it may have moved
            self.note_failure(bookie)

    def note_failure(self, bookie: BookieId) -> None:
        """A connection broke, or an add was refused."""
        now = asyncio.get_running_loop().time()
        recent = [at for at in self._failures.get(bookie, ()) if now - at < FAILURE_KEPT_S][-QUARANTINE_FAILURES:]
        self._failures[bookie] = [*recent, now]
        if len(recent) + 1 >= QUARANTINE_FAILURES and self._config.quarantine_s:
            if bookie not in self._quarantined:
                _log.warning("bookie %s in quarantine for %g s after repeated failures", bookie,
                             self._config.quarantine_s)  # fmt: skip
            self._quarantined[bookie] = now + self._config.quarantine_s

    def note_slow(self, bookie: BookieId) -> None:
        """Another replica had to be asked, as this one did not answer in time."""
        self._slow[bookie] = asyncio.get_running_loop().time()

    def quarantined(self, writable: set[BookieId]) -> set[BookieId]:
        """The writable bookies that new ensembles should avoid; never more than half of them."""
        now = asyncio.get_running_loop().time()
        for bookie in [b for b, until in self._quarantined.items() if until <= now]:
            del self._quarantined[bookie]
            self._failures.pop(bookie, None)
        chosen = sorted(
            (b for b in self._quarantined if b in writable), key=self._quarantined.__getitem__, reverse=True
        )
        return set(chosen[: int(len(writable) * QUARANTINE_SHARE_MAX)])

    def suspicious(self, bookie: BookieId) -> bool:
        """True for a while after a bookie failed, or was slow: others are asked first."""
        if not self._failures and not self._slow:
            return False
        since = asyncio.get_running_loop().time() - FAILURE_KEPT_S
        failures = self._failures.get(bookie)
        return (failures is not None and failures[-1] > since) or self._slow.get(bookie, since) > since

    # -- time -----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for key, connection in list(self._connections.items()):
            connection.poll(now)
            if not connection.busy and now - connection.last_used > IDLE_CLOSE_S:
                del self._connections[key]
                connection.close()
        if self._connections and not self._closed:
            self._timer = loop.call_later(POLL_S, self._poll)

    def close(self) -> None:
        """Closes every connection; pending requests fail. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
