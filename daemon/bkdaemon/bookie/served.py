"""The interface of a bookie for its HTTP and gRPC ports and its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bkctl.model.ids import BookieId
    from bkctl.world import World
    from bkdaemon.bookie.bookie import Bookie
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.disks import DiskMonitor
    from bkdaemon.bookie.gc import GarbageCollector
    from bkdaemon.bookie.server import BookieServer
    from bkdaemon.prometheus import Sample


class ServedBookie(Protocol):
    """A bookie that is started; `bkdaemon.bookie.service` has the implementation and the meaning of each attribute."""

    config: BookieConfig
    world: World
    version: str
    bookie_id: BookieId
    instance_id: str | None
    registered: bool
    started_ms: int
    lost: asyncio.Event
    bookie: Bookie
    server: BookieServer
    disks: DiskMonitor
    samples_beside: list[Callable[[], Iterator[Sample]]]

    @property
    def garbage(self) -> GarbageCollector:
        """Garbage collection."""

    @property
    def address(self) -> str:
        """Its address for clients, host:port."""

    def set_manual_read_only(self, text: str | None) -> None:
        """Makes the bookie read-only for the reason in text, or writable (None)."""
