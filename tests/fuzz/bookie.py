"""Hostile clients of a bookie's ports, with a health request and an entry beside them all the time.

They send damaged copies of captured frames (v2, v3) or HTTP requests, random bytes, half frames and half requests. The
monitor requests /heartbeat, and adds an entry and reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from bkdaemon.local.cluster import LocalCluster, Service

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.codec.wire import Reply
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.uri import parse_uri
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.world import real_world
from tests.fuzz.hostile import Fuzz, Report, get, http_request
from tests.unit.golden_wire import frames

KEY: Final = bytes(20)
LEDGER_ID: Final = 900_000_007
"""No captured frame names it."""
NUMBERS: Final = (b"\0\0\0\0", b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\x50\0\0")
PATHS: Final = (
    *("/metrics", "/heartbeat", "/none", "/api/v1/bookie/gc", "/api/v1/bookie/state", "/api/v1/bookie/list_disk_file"),
    *("/api/v1/ledger/list?print_metadata=true&page=", "/api/v1/ledger/metadata?ledger_id=", "/api/v1/bookie/info"),
    *("/api/v1/ledger/read?ledger_id=", "/api/v1/autorecovery/lost_bookie_recovery_delay", "/api/v1/bookie/gc_details"),
)


def wire_request(random: Random, captured: list[bytes]) -> bytes:
    """Frames of the bookie protocol: captured ones, mostly damaged, or random bytes."""
    data = bytearray(b"".join(random.choice(captured) for _ in range(random.randrange(1, 40))))
    match random.randrange(5):
        case 0:
            return random.randbytes(random.randrange(1, 5000))
        case 1:
            at = random.randrange(len(data))
            data[at : at + 4] = random.choice(NUMBERS)
        case 2:
            del data[random.randrange(len(data)) :]
        case _:
            for _ in range(random.randrange(6)):
                data[random.randrange(len(data))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(data)


def half_frame(random: Random) -> bytes:
    """The start of a long frame that never becomes whole: v2's add, with a part of its entry."""
    size = random.randrange(1 << 10, 5 << 20)
    head = size.to_bytes(4, "big") + (2 << 24 | 1 << 16).to_bytes(4, "big")
    return head + bytes(random.randrange(size - 4))


class Monitor:
    """Valid requests beside the hostile clients.

    Args:
        ledger_id: of the entries that are added; metadata has it.
    """

    def __init__(self, service: Service, ledger_id: int) -> None:
        self._service = service
        self._ledger_id = ledger_id
        self._entry_id = 0

    async def once(self, report: Report) -> None:
        """Requests /heartbeat, and adds an entry and reads it."""
        await report.timed("health", get(self._service.http_port, "/heartbeat"))
        await report.timed("entry", self._entry(self._entry_id))
        self._entry_id += 1

    async def _entry(self, entry_id: int) -> None:
        """Adds an entry and reads it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._service.port)
        say = BookieConversation(2)
        ledger_id = self._ledger_id
        body = encode_entry(ledger_id, entry_id, entry_id - 1, 100, b"beside", digest_for(DigestType.CRC32C))
        for token, frame in (say.add(ledger_id, entry_id, KEY, body), say.read(ledger_id, entry_id)):
            writer.write(frame)
            replies: list[Reply] = []
            while not replies:
                data = await reader.read(1 << 16)
                assert data, "connection closed"
                replies = say.receive(data)
            assert replies[0].token == token
            assert replies[0].status == Status.OK, replies[0]
        assert replies[0].body == body
        writer.close()


def maker(port: str) -> Callable[[Random], bytes]:
    """Makes what hostile clients of a port send."""
    if port == "http":
        return lambda random: http_request(random, PATHS)
    captured = [f.data for f in frames() if f.from_client and f.protocol == int(port[1])]
    return lambda random: half_frame(random) if random.random() < 0.02 else wire_request(random, captured)


async def new_ledger(uri: str) -> int:
    """Creates a ledger; returns its id."""
    root = parse_uri(uri).root
    async with contextlib.AsyncExitStack() as stack:
        store = await open_store(uri)
        stack.push_async_callback(store.close)
        ledgers = await open_ledgers(store, root, write=True)
        client = BookKeeper(ledgers, BookieRegistry(store, root), real_world())
        stack.push_async_callback(client.close)
        return (await client.create(1, 1, 1, ledger_id=LEDGER_ID)).ledger_id


async def fuzz(port: str, seconds: float, cases: int, seed: int) -> dict[str, Any]:
    """Starts a bookie, sends hostile requests to one of its ports, and stops it; returns the figures."""
    with tempfile.TemporaryDirectory(prefix="bkctl-fuzz-") as directory:
        cluster = LocalCluster.plan(Path(directory), 1, os.environ)
        try:
            await cluster.up()
            (service,) = cluster.bookies
            number = service.http_port if port == "http" else service.port
            monitor = Monitor(service, await new_ledger(cluster.metadata_uri))
            run = Fuzz(service.pid, number, maker(port), monitor.once, seed=seed, seconds=seconds, cases=cases)
            found = (await run.run()).summary(port, service.log)
            if found["failures"]:
                print(service.log.read_text(errors="replace"), file=sys.stderr)
            return found
        finally:
            await cluster.down()
