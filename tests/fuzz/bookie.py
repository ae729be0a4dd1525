"""Sends hostile requests to a bookie of its own and reports what it does to it: `python -m tests.fuzz.bookie`.

    python -m tests.fuzz.bookie --port v2 --seconds 300 --seed 1      # also v3, http; at most --cases requests

A ZooKeeper and a bookie are started in a temporary directory. WORKERS connections at a time send damaged copies of
captured frames (v2, v3) or of HTTP requests, random bytes, half requests and requests whose answers are not read. A
monitor requests /heartbeat all the time and adds and reads an entry beside the hostile clients. The last line is a
JSON object: requests, resident memory in MB at the start, at most and at the end, latencies in ms. Exit 1 if the
bookie ended, a health request or an entry failed, or the bookie logged a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from bkdaemon.local.cluster import LocalCluster, Service

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.uri import parse_uri
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.world import real_world
from tests.unit.golden_wire import frames

WORKERS: Final = 24
HELD_S: Final = 3.0
"""How long a client keeps a half request, or an answer that it does not read."""
ANSWER_S: Final = 0.2
HEALTH_S: Final = 0.25
PATIENCE_S: Final = 30.0
KEY: Final = bytes(20)
LEDGER_ID: Final = 900_000_007
"""No captured frame names it."""
NUMBERS: Final = (b"\0\0\0\0", b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\x50\0\0")
PATHS: Final = (
    *("/metrics", "/heartbeat", "/none", "/api/v1/bookie/gc", "/api/v1/bookie/state", "/api/v1/bookie/list_disk_file"),
    *("/api/v1/ledger/list?print_metadata=true&page=", "/api/v1/ledger/metadata?ledger_id=", "/api/v1/bookie/info"),
    *("/api/v1/ledger/read?ledger_id=", "/api/v1/autorecovery/lost_bookie_recovery_delay", "/api/v1/bookie/gc_details"),
)
HEADERS: Final = (
    *("Content-Length: 3", "Content-Length: 4", "Content-Length: " + "9" * 5000, "Content-Length: -1"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Expect: 100-continue", "Upgrade: websocket"),
    *("Connection: keep-alive", "no colon", "X: " + "y" * 9000, "X: \0\x1b", "Host: y", " folded"),
)
BODIES: Final = (
    b"",
    b"abc",
    b"{}",
    b"[" * 60_000,
    b'{"a": ' + b"9" * 5000 + b"}",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"1\r\na\r\n" * 3000,
)
BODIES_LONG: Final = (b"ffffff\r\n" + bytes(1 << 20), bytes(1 << 20), b"-1\r\n", b"9" * 4000)


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


def http_request(random: Random) -> bytes:
    """A request over HTTP, whole or not, valid or not."""
    method = random.choice(("GET", "GET", "PUT", "POST", "DELETE", "HEAD", "get", "\0", ""))
    path = random.choice(PATHS) + random.choice(("", "0", "-1", "x", "9" * 5000, "%00", "%ff&&=&"))
    lines = [f"{method} {path} HTTP/{random.choice(('1.1', '1.1', '1.0', '2.0', ''))}", "Host: x"]
    lines += random.sample(HEADERS, random.randrange(4))
    body = random.choice(BODIES if random.random() < 0.95 else BODIES_LONG)
    if random.random() < 0.4:
        lines.append(f"Content-Length: {len(body)}")
    data = "\r\n".join((*lines, "\r\n")).encode() + body
    match random.randrange(6):
        case 0:
            return data[: random.randrange(1, len(data))]
        case 1:
            damaged = bytearray(data)
            for _ in range(random.randrange(1, 6)):
                damaged[random.randrange(min(len(damaged), 300))] = random.randrange(256)
            return bytes(damaged)
    return data


@dataclass
class Report:
    """What was sent and seen."""

    requests: int = 0
    bytes_sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    health_ms: list[float] = field(default_factory=list)
    entry_ms: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Fuzz:
    """One run against one port.

    Args:
        ledger_id: of the entries that are added beside the hostile clients; metadata has it.
        make: makes the bytes of one hostile client.
        ends: when to stop: loop time, and number of requests.
    """

    def __init__(
        self,
        service: Service,
        ledger_id: int,
        port: int,
        make: Callable[[Random], bytes],
        seed: int,
        ends: tuple[float, int],
    ) -> None:
        self.report = Report()
        self._service = service
        self._ledger_id = ledger_id
        self._port = port
        self._make = make
        self._random = Random(seed)
        self._until, self._cases = ends

    @property
    def _over(self) -> bool:
        return time.monotonic() >= self._until or self.report.requests >= self._cases or not self._service.running

    async def run(self) -> None:
        """Runs all clients and the monitor to the end."""
        self.report.memory_mb.append(memory_mb(self._service.pid))
        beside = asyncio.create_task(self._monitor())
        await asyncio.gather(*(self._worker(Random(self._random.random())) for _ in range(WORKERS)))
        await beside
        if not self._service.running:
            self.report.failures.append("the bookie ended")

    async def _worker(self, random: Random) -> None:
        while not self._over:
            self.report.requests += 1
            try:
                self.report.ends[await self._client(random)] += 1
            except OSError as error:
                self.report.ends[type(error).__name__] += 1

    async def _client(self, random: Random) -> str:
        """One hostile client; returns how it ended."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            data = self._make(random)
            step = random.choice((1, 100, 1 << 16, 1 << 20)) if len(data) < 5000 else random.choice((1 << 16, 1 << 20))
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                if step == 1 and at % 50 == 0:
                    await asyncio.sleep(0)
            self.report.bytes_sent += len(data)
            if random.random() < 0.03:  # reads nothing
                await asyncio.sleep(HELD_S * random.random())
                return "held"
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
                while await reader.read(1 << 16):
                    pass
            return "closed by the bookie"
        except TimeoutError:
            return "kept open"
        finally:
            writer.transport.abort()

    async def _monitor(self) -> None:
        entry_id = 0
        while not self._over:
            begun = time.monotonic()
            await self._timed("a health request", self.report.health_ms, self._health())
            await self._timed("an entry", self.report.entry_ms, self._entry(entry_id))
            entry_id += 1
            if self._service.running:
                self.report.memory_mb.append(memory_mb(self._service.pid))
            await asyncio.sleep(max(HEALTH_S - (time.monotonic() - begun), 0))

    async def _timed(self, what: str, times: list[float], work: Any) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work
        except (OSError, TimeoutError, AssertionError) as error:
            self.report.failures.append(f"{what}: {error!r}")
        times.append(1000 * (time.monotonic() - begun))

    async def _health(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._service.http_port)
        writer.write(b"GET /heartbeat HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert b" 200 " in answer[:20], answer[:100]

    async def _entry(self, entry_id: int) -> None:
        """Adds an entry and reads it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._service.port)
        say = BookieConversation(2)
        ledger_id = self._ledger_id
        body = encode_entry(ledger_id, entry_id, entry_id - 1, 100, b"beside", digest_for(DigestType.CRC32C))
        for token, frame in (say.add(ledger_id, entry_id, KEY, body), say.read(ledger_id, entry_id)):
            writer.write(frame)
            replies = []
            while not replies:
                data = await reader.read(1 << 16)
                assert data, "connection closed"
                replies = say.receive(data)
            assert replies[0].token == token
            assert replies[0].status == Status.OK, replies[0]
        assert replies[0].body == body
        writer.close()


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def maker(port: str) -> Callable[[Random], bytes]:
    """Makes what hostile clients of a port send."""
    if port == "http":
        return http_request
    captured = [f.data for f in frames() if f.from_client and f.protocol == int(port[1])]
    return lambda random: half_frame(random) if random.random() < 0.02 else wire_request(random, captured)


def summary(report: Report, port: str, log: Path) -> dict[str, Any]:
    """The figures of a run."""

    def spread(times: list[float]) -> dict[str, float]:
        ordered = sorted(times) or [0.0]
        places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return {name: round(ordered[min(int(len(ordered) * at), len(ordered) - 1)], 1) for name, at in places.items()}

    tracebacks = log.read_text(errors="replace").count("Traceback (most recent call last)")
    if tracebacks:
        report.failures.append(f"{tracebacks} tracebacks in the log")
    memory = [round(m) for m in (report.memory_mb[0], max(report.memory_mb), report.memory_mb[-1])]
    return {
        "port": port,
        "requests": report.requests,
        "mb_sent": report.bytes_sent >> 20,
        "ends": dict(report.ends),
        "memory_mb": dict(zip(("start", "most", "end"), memory, strict=True)),
        "memory_mb_by_tenth": [round(m) for m in report.memory_mb[:: len(report.memory_mb) // 10 + 1]],
        "health_ms": spread(report.health_ms),
        "entry_ms": spread(report.entry_ms),
        "health_requests": len(report.health_ms),
        "failures": report.failures[:10],
    }


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
            ledger_id = await new_ledger(cluster.metadata_uri)
            run = Fuzz(service, ledger_id, number, maker(port), seed, (time.monotonic() + seconds, cases))
            await run.run()
            found = summary(run.report, port, service.log)
            if found["failures"]:
                print(service.log.read_text(errors="replace"), file=sys.stderr)
            return found
        finally:
            await cluster.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", choices=("v2", "v3", "http"), required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = asyncio.run(fuzz(options.port, options.seconds, options.cases, options.seed))
    print(json.dumps(found))
    sys.exit(1 if found["failures"] else 0)


if __name__ == "__main__":
    main()
