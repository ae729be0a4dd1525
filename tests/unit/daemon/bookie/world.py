"""Tools for tests of a bookie: directories, entries, and calls that wait for their reply."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.config import DB_LEDGER_STORAGE, BookieConfig
from bkdaemon.bookie.identity import make_directories
from bkdaemon.bookie.index import Batch, IndexFactory, MemoryIndex, memory_index

from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.entry import encode_entry
from bkctl.model.ledger import DigestType
from bkctl.world import Disk, World, real_world
from tests.sim.disk import SimDisk
from tests.sim.trace import Trace

DIGEST = digest_for(DigestType.CRC32C)
KEY = master_key(b"secret")
OTHER_KEY = master_key(b"wrong")
OK, NO_LEDGER, NO_ENTRY, BAD_REQUEST, IO_ERROR, UNAUTHORIZED = 0, 1, 2, 100, 101, 102
FENCED, READ_ONLY, TOO_MANY = 104, 105, 106
HERE = Path("/bookie")
"""The directory of a bookie on a simulated disk."""


class Unsure(MemoryIndex):
    """An index that may report a failure of a batch that it has written, as a failing disk does."""

    fails = False

    def commit(self, batch: Batch, *, sync: bool = True) -> None:
        super().commit(batch, sync=sync)
        if self.fails:
            raise OSError(errno.EIO, "input/output error")


def sim_disk(seed: int = 1) -> SimDisk:
    """A disk in memory that forgets what was not synced."""
    return SimDisk(Random(seed), Trace(lambda: 0.0), "m")


def world_on(disk: Disk) -> World:
    """The real world with another disk."""
    return replace(real_world(1), disk=disk)


def config_in(directory: Path, **settings: Any) -> BookieConfig:
    """One journal and one ledger directory, small caches."""
    values: dict[str, Any] = {
        "journal_directories": (str(directory / "journal"),),
        "ledger_dirs": (str(directory / "ledgers"),),
        "write_cache_mb": 8,
        "journal_prealloc_size_mb": 1,
        "flush_interval_ms": 3_600_000,
        "metadata_service_uri": "zk://nowhere:2181/ledgers",
        "allow_loopback": True,
        "disk_usage_threshold": 0.999,
        "disk_usage_warn_threshold": 0.998,
        "storage_class": DB_LEDGER_STORAGE,
    }
    return BookieConfig(**(values | settings))


def entry(ledger_id: int, entry_id: int, payload: bytes = b"payload", lac: int | None = None) -> bytes:
    """Entry bytes as a client seals them."""
    confirmed = entry_id - 1 if lac is None else lac
    return encode_entry(ledger_id, entry_id, confirmed, len(payload) * (entry_id + 1), payload, DIGEST)


class Calls:
    """A bookie's calls as awaitables."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie

    async def add(
        self, ledger_id: int, entry_ids: Iterable[int], *, key: bytes = KEY, flags: int = 0, payload: bytes = b"payload"
    ) -> list[int]:
        """The status of each add, in order."""
        return await self.add_raw([(ledger_id, e, key, entry(ledger_id, e, payload), flags, None) for e in entry_ids])

    async def add_raw(self, adds: list[Any]) -> list[int]:
        """The status of each add, in order."""
        answers: dict[int, int] = {}
        done = asyncio.Event()

        def durable(accepted: list[Any], status: int) -> None:
            answers.update((id(add), int(status)) for add in accepted)
            if len(answers) == len(adds):
                done.set()

        for status, add in self.bookie.add_batch(adds, durable):
            answers[id(add)] = int(status)
        if len(answers) < len(adds):
            await done.wait()
        return [answers[id(add)] for add in adds]

    async def read(self, ledger_id: int, *entry_ids: int) -> list[tuple[int, bytes | None]]:
        """(status, entry) of each read, in order."""
        answers: dict[int, tuple[int, bytes | None]] = {}
        done = asyncio.Event()

        def took(some: list[Any]) -> None:
            answers.update((token, (int(status), body)) for status, body, token in some)
            if len(answers) == len(entry_ids):
                done.set()

        took(self.bookie.read_batch([(ledger_id, e, number) for number, e in enumerate(entry_ids)], took))
        if entry_ids:
            await done.wait()
        return [answers[number] for number in range(len(entry_ids))]

    async def has(self, ledger_id: int, entry_ids: Iterable[int], payload: bytes = b"payload") -> bool:
        """True if all these entries are served, with these bytes."""
        ids = list(entry_ids)
        found = await self.read(ledger_id, *ids)
        return [body for _, body in found] == [entry(ledger_id, e, payload) for e in ids]

    async def fence(self, ledger_id: int, key: bytes = KEY) -> int:
        """The status in the end."""
        return await self._durable(lambda done: self.bookie.fence(ledger_id, key, done))

    async def write_lac(self, ledger_id: int, packet: bytes, key: bytes = KEY) -> int:
        """The status in the end."""
        return await self._durable(lambda done: self.bookie.write_lac(ledger_id, key, packet, done))

    async def _durable(self, call: Callable[[Callable[[int], None]], int]) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        status = call(future.set_result)
        return int(status) if status != OK else int(await future)


@asynccontextmanager
async def running(
    config: BookieConfig, world: World, factory: IndexFactory | None = None, *, crash: bool = False
) -> AsyncIterator[Calls]:
    """A started bookie; it is stopped at the end, or, with crash, left as a killed process leaves it."""
    make_directories(world.disk, config)
    bookie = Bookie(config, world, factory or memory_index(world.disk))
    await bookie.start()
    try:
        yield Calls(bookie)
    finally:
        if crash:
            bookie.abort()
        else:
            await bookie.stop()


def each_cut(data: bytes) -> Iterator[bytes]:
    """The data cut at every byte."""
    for size in range(len(data)):
        yield data[:size]


async def flushed(calls: Calls) -> None:
    """Flushes, and retries if a running attempt fails."""
    while True:
        try:
            await calls.bookie.flush()
        except OSError:
            continue
        return
