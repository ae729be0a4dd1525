"""What the fuzz of every port shares: hostile clients, a monitor beside them, and the figures of a run.

WORKERS connections at a time send what `make` makes; some do not read the answers. `monitor` sends valid requests
every HEALTH_S meanwhile.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

WORKERS: Final = 24
HELD_S: Final = 3.0
"""How long a client keeps a half request, or an answer that it does not read, at most."""
ANSWER_S: Final = 0.2
HEALTH_S: Final = 0.25
PATIENCE_S: Final = 30.0
HEADERS: Final = (
    *("Content-Length: 3", "Content-Length: 4", "Content-Length: " + "9" * 5000, "Content-Length: -1"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Expect: 100-continue", "Upgrade: websocket"),
    *("Content-Type: application/json", "Connection: keep-alive", "no colon", "X: " + "y" * 9000, "X: \0\x1b"),
    *("Host: y", " folded"),
)
BODIES: Final = (
    *(b"", b"abc", b"{}", b"[]", b"null", b"[" * 60_000, b'{"a": ' + b"9" * 5000 + b"}", b"1e999"),
    *(b'"\\ud800"', b"3\r\nabc\r\n0\r\n\r\n", b"1\r\na\r\n" * 3000),
)
BODIES_LONG: Final = (b"ffffff\r\n" + bytes(1 << 20), bytes(3 << 20), b"-1\r\n", b"9" * 4000)


def http_request(random: Random, paths: Sequence[str], bodies: Sequence[bytes] = BODIES) -> bytes:
    """A request over HTTP, whole or not, valid or not."""
    method = random.choice(("GET", "GET", "PUT", "POST", "DELETE", "HEAD", "get", "\0", ""))
    path = random.choice(paths) + random.choice(("", "0", "-1", "x", "9" * 5000, "%00", "%ff&&=&"))
    lines = [f"{method} {path} HTTP/{random.choice(('1.1', '1.1', '1.0', '2.0', ''))}", "Host: x"]
    lines += random.sample(HEADERS, random.randrange(4))
    body = random.choice(bodies if random.random() < 0.95 else BODIES_LONG)
    if random.random() < 0.5:
        lines.append(f"Content-Length: {len(body)}")
    data = "\r\n".join((*lines, "\r\n")).encode() + body
    match random.randrange(6):
        case 0:
            return data[: random.randrange(1, len(data))]
        case 1:
            bad = bytearray(data)
            for _ in range(random.randrange(1, 6)):
                bad[random.randrange(min(len(bad), 300))] = random.randrange(256)
            return bytes(bad)
    return data


@dataclass
class Report:
    """What was sent and seen; times in ms, memory in MB."""

    requests: int = 0
    bytes_sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def timed(self, what: str, work: Awaitable[None]) -> None:
        """Awaits a valid request; one that fails, or takes PATIENCE_S, is a failure."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work
        except (OSError, TimeoutError, AssertionError) as error:
            self.failures.append(f"{what}: {error!r}"[:300])
        self.times.setdefault(what, []).append(1000 * (time.monotonic() - begun))

    def summary(self, port: str, log: Path) -> dict[str, Any]:
        """The figures of a run; tracebacks in the server's log are failures."""
        tracebacks = log.read_text(errors="replace").count("Traceback (most recent call last)")
        if tracebacks:
            self.failures.append(f"{tracebacks} tracebacks in the log")
        memory = self.memory
        settled = sorted(memory[len(memory) // 10 : len(memory) // 5]) or memory
        shown = {
            "start": memory[0],
            "after_a_tenth": settled[len(settled) // 2],
            "most": max(memory),
            "end": memory[-1],
        }
        return {
            "port": port,
            "requests": self.requests,
            "mb_sent": self.bytes_sent >> 20,
            "ends": dict(self.ends),
            "memory_mb": {name: round(size) for name, size in shown.items()},
            **{f"{what} ms": _spread(times) for what, times in self.times.items()},
            "failures": self.failures[:10],
        }


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {name: round(ordered[min(int(len(ordered) * at), len(ordered) - 1)], 1) for name, at in places.items()}
    return found | {"count": len(ordered)}


class Fuzz:
    """One run against one port of a server.

    Args:
        pid: the server's process.
        make: makes the bytes of one hostile client.
        monitor: sends valid requests once; called every HEALTH_S.
        seconds, cases: when to stop, and the number of hostile connections at most.
    """

    def __init__(
        self,
        pid: int,
        port: int,
        make: Callable[[Random], bytes],
        monitor: Callable[[Report], Awaitable[None]],
        *,
        seed: int,
        seconds: float,
        cases: int,
    ) -> None:
        self.report = Report()
        self._pid = pid
        self._port = port
        self._make = make
        self._monitor = monitor
        self._random = Random(seed)
        self._until_s = time.monotonic() + seconds
        self._cases = cases

    async def run(self) -> Report:
        """Runs all clients and the monitor to the end, or until the server has ended."""
        self.report.memory.append(memory_mb(self._pid))
        beside = asyncio.create_task(self._watch())
        await asyncio.gather(*(self._worker(Random(self._random.random())) for _ in range(WORKERS)))
        await beside
        if not memory_mb(self._pid):
            self.report.failures.append("the server ended")
        return self.report

    @property
    def _over(self) -> bool:
        over = time.monotonic() >= self._until_s or self.report.requests >= self._cases
        return over or not self.report.memory[-1]

    async def _watch(self) -> None:
        while not self._over:
            begun = time.monotonic()
            await self._monitor(self.report)
            self.report.memory.append(memory_mb(self._pid))
            await asyncio.sleep(max(HEALTH_S - (time.monotonic() - begun), 0))

    async def _worker(self, random: Random) -> None:
        while not self._over:
            self.report.requests += 1
            try:
                self.report.ends[await self._client(random)] += 1
            except OSError as error:
                self.report.ends[type(error).__name__] += 1
                await asyncio.sleep(0.01)

    async def _client(self, random: Random) -> str:
        """One hostile client; returns how it ended."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            data = self._make(random)
            step = random.choice((1, 100, 1 << 16)) if len(data) < 5000 else 1 << 16
            for at in range(0, len(data), step):
                if writer.transport.is_closing():  # asyncio logs each further write
                    return "closed by the server"
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
            return "closed by the server"
        except TimeoutError:
            return "kept open"
        finally:
            writer.transport.abort()


async def get(port: int, path: str) -> None:
    """A valid GET request that must succeed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert b" 200 " in answer[:20], answer[:100]


def memory_mb(pid: int) -> float:
    """Resident memory of a process; 0 if it has ended."""
    with suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0
