"""Hostile clients of a broker's two ports, with health requests and a message beside them all the time.

They send damaged copies of captured frames, frames that never become whole, patterns, or damaged HTTP requests. The
monitor requests /admin/v2/brokers/health and /metrics, and publishes a message and takes it.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from bkctl.codec.pulsar import Command, encode_command
from tests.broker.many import connect
from tests.broker.raw import RawClient
from tests.broker.scenarios import damaged_frame
from tests.fuzz.hostile import BODIES, Fuzz, Report, get, http_request
from tests.interop.broker_cluster import BrokerProcess, bookies
from tests.unit.codec.pulsar_frames import frames

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
POLICIES: Final = (
    b'{"retentionTimeInMinutes": ' + b"9" * 5000 + b"}",
    b'{"allowedClusters": ["test"], "adminRoles": [1]}',
    b'{"namespaces": ["(a+)+b"], "primary": ["("], "secondary": [], "auto_failover_policy": {}}',
)


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
    every = b"".join(damaged_frame(random, random.choice(captured)) for _ in range(random.randrange(1, 40)))
    return start + every[: random.choice((len(every), random.randrange(1, len(every) + 1)))]


class Monitor:
    """Valid requests beside the hostile clients."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._client: list[RawClient] = []
        self._count = 0

    async def once(self, report: Report) -> None:
        """Requests health and metrics, and publishes a message and takes it."""
        for path in ("/admin/v2/brokers/health", "/metrics"):
            await report.timed(path, get(self._broker.web_port, path))
        await report.timed("message", self._message())
        self._count += 1

    def close(self) -> None:
        """Ends the client's connection."""
        for client in self._client:
            client.cut()

    async def _message(self) -> None:
        """Publishes a message and takes it; the client connects once more where it was disconnected."""
        client = self._client
        if not client or client[0].ended:
            client[:] = [await connect(self._broker.port)]
            lookup = await client[0].ask(
                Command.LOOKUP, Command.LOOKUP_RESPONSE, Command.ERROR, topic=TOPIC, authoritative=True
            )
            assert not lookup.HasField("error"), lookup
            for answer in (await client[0].produce(TOPIC), await client[0].subscribe(TOPIC)):
                assert not hasattr(answer, "message"), answer
            client[0].flow(1_000_000)
        client[0].publish(self._count)
        await client[0].next(Command.SEND_RECEIPT)
        client[0].ack(await client[0].next(Command.MESSAGE))


def maker(port: str) -> Callable[[Random], bytes]:
    """Makes what hostile clients of a port send."""
    if port == "rest":
        return lambda random: http_request(random, PATHS, (*BODIES, *POLICIES))
    captured = [frame.raw for frame in frames() if frame.sender == "C" and frame.command not in ("CONNECT", "PONG")]
    return lambda random: pulsar_request(random, captured)


async def fuzz(port: str, seconds: float, cases: int, seed: int) -> dict[str, Any]:
    """Starts a broker, sends hostile requests to one of its ports, and stops it; returns the figures."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients write to closed connections
    with tempfile.TemporaryDirectory(prefix="bkctl-fuzz-") as directory:
        home = Path(directory)
        quorums = {f"managedLedgerDefault{what}": 1 for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
        with bookies(home, 1) as uri:
            broker = BrokerProcess(uri, home / "broker.log", quorums)
            monitor = Monitor(broker)
            try:
                number = broker.web_port if port == "rest" else broker.port
                run = Fuzz(broker.pid, number, maker(port), monitor.once, seed=seed, seconds=seconds, cases=cases)
                report = await run.run()
                monitor.close()
            finally:
                broker.stop()
            found = report.summary(port, broker.log)
            if found["failures"]:
                text = broker.log.read_text(errors="replace")
                (Path(tempfile.gettempdir()) / f"bkctl-fuzz-{port}.log").write_text(text)
            return found
