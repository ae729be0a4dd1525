"""Hostile clients of a broker's two ports, with a health request and a message beside them all the time.

WORKERS connections at a time send damaged copies of captured frames, frames that never become whole, patterns, or
damaged HTTP requests; some do not read the answers. The monitor asks /admin/v2/brokers/health and /metrics, and
publishes a message and takes it, every HEALTH_S.
"""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from bkctl.codec.pulsar import Command, encode_command
from tests.broker.many import connect
from tests.broker.raw import RawClient
from tests.interop.broker_cluster import BrokerProcess, bookies
from tests.unit.codec.test_pulsar import frames
from tests.unit.daemon.broker.test_fuzz import damaged

WORKERS: Final = 24
HELD_S: Final = 2.0
"""How long a client keeps a half request, or an answer that it does not read."""
ANSWER_S: Final = 0.2
HEALTH_S: Final = 0.25
PATIENCE_S: Final = 30.0
TOPIC: Final = "persistent://public/default/fuzz-beside"
NAMESPACE: Final = "public/default"
PATTERNS: Final = ("(a+)+b", "(.*a){20}b", ".{1,1000}", "(", "public/default/.*", "(?=a)b", "x" * 60)
PATHS: Final = (
    *("/metrics", "/admin/v2/tenants/fuzz", "/admin/v2/namespaces/public/fuzz", "/admin/v2/clusters/test", "/none"),
    *("/admin/v2/persistent/public/default/t/stats", "/admin/v2/persistent/public/default/t/subscription/s/skip/"),
    *("/admin/v2/persistent/public/default/t/examinemessage?messagePosition=", "/admin/v2/bookies/racks-info/b:1"),
    *("/admin/v2/schemas/public/default/t/schema", "/admin/v2/namespaces/public/default/retention"),
    *("/lookup/v2/topic/persistent/public/default/t", "/admin/v2/clusters/test/namespaceIsolationPolicies/p"),
    *("/admin/v2/persistent/public/default/", "/admin/v2/namespaces/public/default/backlogQuota?backlogQuotaType="),
)
HEADERS: Final = (
    *("Content-Length: 3", "Content-Length: 4", "Content-Length: " + "9" * 5000, "Content-Length: -1"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Expect: 100-continue", "Upgrade: websocket"),
    *("Content-Type: application/json", "no colon", "X: " + "y" * 9000, "X: \0\x1b", "Host: y", " folded"),
)
BODIES: Final = (
    *(b"", b"abc", b"{}", b"[]", b"null", b"[" * 60_000, b'{"retentionTimeInMinutes": ' + b"9" * 5000 + b"}", b"1e999"),
    *(
        b'{"allowedClusters": ["test"], "adminRoles": [1]}',
        b'"\\ud800"',
        b"3\r\nabc\r\n0\r\n\r\n",
        b"1\r\na\r\n" * 3000,
    ),
    b'{"namespaces": ["(a+)+b"], "primary": ["("], "secondary": [], "auto_failover_policy": {}}',
)
BODIES_LONG: Final = (b"ffffff\r\n" + bytes(1 << 20), bytes(3 << 20), b"-1\r\n", b"9" * 4000)


def pulsar_request(random: Random, captured: list[bytes]) -> bytes:
    """A CONNECT, then frames of Pulsar's protocol: captured ones, mostly damaged, half ones, patterns, random bytes."""
    start = encode_command(Command.CONNECT, client_version="fuzz", protocol_version=19)
    match random.randrange(8):
        case 0:
            return random.randbytes(random.randrange(1, 5000))
        case 1:
            size = random.randrange(1 << 10, 5 << 20)
            return start + size.to_bytes(4, "big") + bytes(random.randrange(min(size - 4, 1 << 20)))
        case 2:
            fields: dict[str, Any] = {"namespace": NAMESPACE, "topics_pattern": random.choice(PATTERNS)}
            asked = encode_command(Command.GET_TOPICS_OF_NAMESPACE, request_id=1, **fields)
            watched = encode_command(Command.WATCH_TOPIC_LIST, request_id=2, watcher_id=1, **fields)
            return start + asked * random.randrange(20) + watched
    every = b"".join(damaged(random, random.choice(captured)) for _ in range(random.randrange(1, 40)))
    return start + every[: random.choice((len(every), random.randrange(1, len(every) + 1)))]


def http_request(random: Random) -> bytes:
    """A request over HTTP, whole or not, valid or not."""
    method = random.choice(("GET", "GET", "PUT", "POST", "DELETE", "HEAD", "get", "\0", ""))
    path = random.choice(PATHS) + random.choice(("", "0", "-1", "x", "9" * 5000, "%00", "%ff&&=&"))
    lines = [f"{method} {path} HTTP/{random.choice(('1.1', '1.1', '1.0', '2.0', ''))}", "Host: x"]
    lines += random.sample(HEADERS, random.randrange(4))
    body = random.choice(BODIES if random.random() < 0.95 else BODIES_LONG)
    if random.random() < 0.6:
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


class Fuzz:
    """One run against one port of a broker.

    Args:
        make: makes the bytes of one hostile client.
        until_s, cases: when to stop: monotonic time, and number of hostile connections.
    """

    def __init__(
        self, broker: BrokerProcess, port: int, make: Callable[[Random], bytes], seed: int, until_s: float, cases: int
    ) -> None:
        self.report = Report()
        self._broker = broker
        self._port = port
        self._make = make
        self._random = Random(seed)
        self._until_s = until_s
        self._cases = cases

    @property
    def _over(self) -> bool:
        return time.monotonic() >= self._until_s or self.report.requests >= self._cases

    async def run(self) -> None:
        """Runs all clients and the monitor to the end."""
        self.report.memory.append(memory_mb(self._broker.pid))
        monitor = asyncio.create_task(self._monitor())
        await asyncio.gather(*(self._worker(Random(self._random.random())) for _ in range(WORKERS)))
        await monitor

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
            return "closed by the broker"
        except TimeoutError:
            return "kept open"
        finally:
            writer.transport.abort()

    async def _monitor(self) -> None:
        client: list[RawClient] = []
        count = 0
        while not self._over:
            begun = time.monotonic()
            for path in ("/admin/v2/brokers/health", "/metrics"):
                await self._timed(path, self._get(path))
            await self._timed("message", self._message(client, count))
            count += 1
            with suppress(OSError):
                self.report.memory.append(memory_mb(self._broker.pid))
            await asyncio.sleep(max(HEALTH_S - (time.monotonic() - begun), 0))
        for one in client:
            one.cut()

    async def _timed(self, what: str, work: Awaitable[None]) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work
        except (OSError, TimeoutError, AssertionError) as error:
            self.report.failures.append(f"{what}: {error!r}"[:300])
        self.report.times.setdefault(what, []).append(1000 * (time.monotonic() - begun))

    async def _get(self, path: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._broker.web_port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert b" 200 " in answer[:20], answer[:100]

    async def _message(self, client: list[RawClient], count: int) -> None:
        """Publishes a message and takes it; the client connects once more where it was disconnected."""
        if not client or client[0].ended:
            client[:] = [await connect(self._broker.port)]
            lookup = await client[0].ask(
                Command.LOOKUP, Command.LOOKUP_RESPONSE, Command.ERROR, topic=TOPIC, authoritative=True
            )
            assert not lookup.HasField("error"), lookup
            for answer in (await client[0].produce(TOPIC), await client[0].subscribe(TOPIC)):
                assert not hasattr(answer, "message"), answer
            client[0].flow(1_000_000)
        client[0].publish(count)
        await client[0].next(Command.SEND_RECEIPT)
        client[0].ack(await client[0].next(Command.MESSAGE))


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def maker(port: str) -> Callable[[Random], bytes]:
    """Makes what hostile clients of a port send."""
    if port == "rest":
        return http_request
    captured = [frame.raw for frame in frames() if frame.sender == "C" and frame.command not in ("CONNECT", "PONG")]
    return lambda random: pulsar_request(random, captured)


def summary(report: Report, port: str, log: Path) -> dict[str, Any]:
    """The figures of a run: times in ms, memory in MB."""

    def spread(times: list[float]) -> dict[str, float]:
        ordered = sorted(times) or [0.0]
        places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return {name: round(ordered[min(int(len(ordered) * at), len(ordered) - 1)], 1) for name, at in places.items()}

    tracebacks = log.read_text(errors="replace").count("Traceback (most recent call last)")
    if tracebacks:
        report.failures.append(f"{tracebacks} tracebacks in the log")
    memory = report.memory
    settled = sorted(memory[len(memory) // 10 : len(memory) // 5]) or memory
    return {
        "port": port,
        "requests": report.requests,
        "mb_sent": report.bytes_sent >> 20,
        "ends": dict(report.ends),
        "memory_mb": {
            "start": round(memory[0]),
            "after_a_tenth": round(settled[len(settled) // 2]),
            "most": round(max(memory)),
            "end": round(memory[-1]),
        },
        **{f"{what} ms": spread(times) | {"count": len(times)} for what, times in report.times.items()},
        "failures": report.failures[:10],
    }


async def fuzz(port: str, seconds: float, cases: int, seed: int) -> dict[str, Any]:
    """Starts a broker, sends hostile requests to one of its ports, and stops it; returns the figures."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients write to closed connections
    with tempfile.TemporaryDirectory(prefix="bkctl-fuzz-") as directory:
        home = Path(directory)
        quorums = {f"managedLedgerDefault{what}": 1 for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
        with bookies(home, 1) as uri:
            broker = BrokerProcess(uri, home / "broker.log", quorums)
            try:
                number = broker.web_port if port == "rest" else broker.port
                run = Fuzz(broker, number, maker(port), seed, time.monotonic() + seconds, cases)
                await run.run()
            finally:
                broker.stop()
            found = summary(run.report, port, broker.log)
            if found["failures"]:
                text = broker.log.read_text(errors="replace")
                (Path(tempfile.gettempdir()) / f"bkctl-fuzz-{port}.log").write_text(text)
            return found
