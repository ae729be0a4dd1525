"""One broker process, and clients that do not take, ask for too much, say nothing, or say nonsense.

Whatever they do, a client beside them is served, and the broker's memory stays within bounds: what it may grow by is
told per client, from the bounds of connection.py and cache.py, with room for what Python's allocator keeps.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from bkctl.codec.pulsar import LOOKUP_CONNECT, Command, ErrorCode, encode_command
from tests.broker.many import connect, resident_mib
from tests.broker.raw import RawClient, entry_of
from tests.broker.scenarios import damaged_frame
from tests.interop.broker_cluster import BrokerProcess, bookies
from tests.unit.codec.pulsar_frames import frames

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
PERMITS_MAX: Final = 2**31 - 1
MIB: Final = 1 << 20
WAIT_S: Final = 120.0
ROUNDS_MAX: Final = 5
SPARE_MIB: Final = 48
"""What a process may grow by for no reason of a test's."""
UNREAD: Final = 40
"""Messages of a MiB."""
CACHES_MIB: Final = 32 + 16 + 16
"""The tail's cache, that of catch-up reads, and what is being read."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("hostile")
    with bookies(home, 2) as uri:
        quorums = {f"managedLedgerDefault{what}": 2 for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
        process = BrokerProcess(uri, home / "broker.log", {"backlogQuotaCheckIntervalInSeconds": 1, **quorums})
        try:
            yield process
        finally:
            process.stop()


class Beside:
    """A client that goes on, one message at a time, and how long each took."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.took: list[float] = []
        self.over = False

    async def run(self) -> None:
        client = await connect(self.port)
        topic = f"persistent://public/default/beside-{random.randrange(1 << 30)}"
        await producing(client, topic)
        await client.subscribe(topic, "s")
        client.flow(1_000_000)
        while not self.over:
            began = time.monotonic()
            client.publish(len(self.took))
            async with asyncio.timeout(WAIT_S):
                await client.next(Command.SEND_RECEIPT)
                said = await client.next(Command.MESSAGE)
            client.ack(said)
            self.took.append(time.monotonic() - began)
            await asyncio.sleep(0.01)
        client.cut()


def served(broker: BrokerProcess, hostile: Callable[[int], Awaitable[None]], grows_mib: float) -> None:
    """Runs a hostile client beside one that is served before, during and after, and bounds the broker's memory."""

    async def main() -> None:
        beside = Beside(broker.port)
        task = asyncio.create_task(beside.run())
        await asyncio.sleep(0.5)
        before, count = resident_mib(broker.pid), len(beside.took)
        for _ in range(ROUNDS_MAX):  # one may be over before the client beside it has taken its next message
            await hostile(broker.port)
            during = len(beside.took)
            if during > count:
                break
        after = resident_mib(broker.pid)
        async with asyncio.timeout(WAIT_S):
            while len(beside.took) < during + 20:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.05)
        beside.over = True
        await task
        print(f"{before:.0f} → {after:.0f} MiB; beside: {during - count} messages, at most {max(beside.took):.2f} s")
        assert during > count, "the client beside it was not served"
        assert after - before < grows_mib + SPARE_MIB

    asyncio.run(main())


async def producing(client: RawClient, topic: str) -> None:
    """Looks a topic up, and makes producer 0 on it."""
    async with asyncio.timeout(WAIT_S):
        found = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=topic, authoritative=True)
        assert found.response == LOOKUP_CONNECT, found
        made = await client.produce(topic)
        assert made.DESCRIPTOR.name == "CommandProducerSuccess", made


async def opened(port: int) -> RawClient:
    """A connection on which nothing is said yet."""
    return cast("RawClient", (await asyncio.get_running_loop().create_connection(RawClient, "127.0.0.1", port))[1])


async def backlog(port: int, topic: str, mib: int) -> None:
    client = await connect(port)
    await producing(client, topic)
    for number in range(mib):
        client.publish(number, bytes(MIB), partition_key=f"k{number % 7}")
        async with asyncio.timeout(WAIT_S):
            await client.next(Command.SEND_RECEIPT)
    client.cut()


def test_who_never_reads_what_it_asked_for(broker: BrokerProcess) -> None:
    """Eight consumers of a backlog, each with permits without end and a socket that is not read."""
    topic = "persistent://public/default/unread"
    asyncio.run(subscribed(broker.port, topic))
    clients: list[RawClient] = []

    async def hostile(port: int) -> None:
        await backlog(port, topic, UNREAD)
        for number in range(8):
            slow = await connect(port)
            clients.append(slow)
            await slow.subscribe(topic, f"s{number}", kind=number % 4)
            cast("Any", slow)._transport.pause_reading()
            slow.flow(PERMITS_MAX)
        await asyncio.sleep(3)
        for slow in clients[:4]:  # half of them read after all: everything comes
            cast("Any", slow)._transport.resume_reading()
        for slow in clients[:4]:
            async with asyncio.timeout(WAIT_S):
                assert len({s.message.message_id.entryId for s in await slow.messages(UNREAD)}) == UNREAD
        for slow in clients:
            slow.cut()

    served(broker, hostile, CACHES_MIB + 8 * (4 + 2 * 5))


async def subscribed(port: int, topic: str) -> None:
    """Eight subscriptions that keep what comes."""
    client = await connect(port)
    await producing(client, topic)
    for number in range(8):
        await client.subscribe(topic, f"s{number}", kind=number % 4, consumer_id=number)
    client.cut()


def test_a_thousand_connections_each_with_a_producer_and_a_consumer(broker: BrokerProcess) -> None:
    topics = [f"persistent://public/default/thousand-{number}" for number in range(50)]

    async def hostile(port: int) -> None:
        clients: list[RawClient] = []
        for number in range(1000):
            client = await connect(port)
            clients.append(client)
            await producing(client, topics[number % 50])
            await client.subscribe(topics[number % 50], "s", kind=SHARED, initialPosition=1)
            client.flow(10)
        for client in clients:
            client.publish(0, b"x" * 100)
        for client in clients:
            async with asyncio.timeout(WAIT_S):
                await client.next(Command.SEND_RECEIPT)

        def messages() -> int:
            return sum(len([s for s in c.said if s.kind == Command.MESSAGE]) for c in clients)

        deadline = time.monotonic() + WAIT_S
        while messages() < 1000:
            assert time.monotonic() < deadline, f"{messages()} of 1000 messages came"
            await asyncio.sleep(0.05)
        for client in clients:
            client.cut()

    served(broker, hostile, 1000 * 0.05 + 50 * 0.1 + CACHES_MIB)


def test_who_connects_and_says_nothing_or_half_of_it_is_let_go(broker: BrokerProcess) -> None:
    """1,500 connections without CONNECT, a third of which announce four MiB first; 50 in the middle of a SEND."""

    async def hostile(port: int) -> None:
        silent = [await opened(port) for _ in range(1500)]
        for client in silent[:500]:
            client.write((4 * MIB).to_bytes(4, "big") + bytes(MIB))
        half = [await connect(port) for _ in range(50)]
        for number, client in enumerate(half):
            await producing(client, f"persistent://public/default/half-{number % 5}")
            whole = encode_command(Command.SEND, entry_of(0, bytes(2 * MIB)), producer_id=0, sequence_id=0)
            client.write(whole[: -MIB // 2])
        for client in silent:
            async with asyncio.timeout(WAIT_S):  # half a minute; a frame of that size ends it at once
                await client.end()
        assert not any(client.ended for client in half), "they answer pings"
        for client in half:
            client.cut()

    served(broker, hostile, 1550 * 0.05 + 50 * 2)


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
def test_a_producer_over_its_quota_is_told_so_and_comes_back(broker: BrokerProcess, policy: str) -> None:
    name = f"ns-{policy.partition('_')[2]}"
    topic = f"persistent://public/{name}/t"
    code = {
        "producer_request_hold": ErrorCode.PRODUCER_BLOCKED_QUOTA_ERROR,
        "producer_exception": ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION,
    }[policy]
    ask(broker, "PUT", f"/admin/v2/namespaces/public/{name}", {})
    quota = {"limitSize": 2 * MIB, "limit": 2 * MIB, "policy": policy}
    ask(broker, "POST", f"/admin/v2/namespaces/public/{name}/backlogQuota", quota)

    async def hostile(port: int) -> None:
        client = await connect(port)
        await producing(client, topic)
        await client.subscribe(topic, "s")
        for number in range(4):
            client.publish(number, bytes(MIB))
        async with asyncio.timeout(WAIT_S):
            await client.next(Command.CLOSE_PRODUCER)
        refused = await client.produce(topic, 1)
        assert refused.error == code, refused
        client.flow(100)
        client.ack(*await client.messages(4))
        deadline = time.monotonic() + WAIT_S
        while "error" in {field.name for field, _ in (await client.produce(topic, 2)).ListFields()}:
            assert time.monotonic() < deadline, "it is within its quota again, and held"
            await asyncio.sleep(0.3)
        client.cut()

    served(broker, hostile, CACHES_MIB)


def ask(broker: BrokerProcess, method: str, path: str, body: Any) -> None:
    request = urllib.request.Request(broker.web_url + path, json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request, timeout=WAIT_S).close()


def test_frames_that_were_damaged_end_their_own_connections(broker: BrokerProcess, tmp_path: Path) -> None:
    """Captured frames of official clients with bytes changed, 200 connections of them, 20 at a time."""
    sent = [f.raw for f in frames() if f.sender == "C" and f.command not in ("CONNECT", "PONG")]
    dice = random.Random(5)

    async def hostile(port: int) -> None:
        async def one() -> None:
            client = await connect(port)
            client.data_received = lambda data: None  # type: ignore[method-assign] # it does not care
            for _ in range(40):
                if client.ended:
                    return
                client.write(damaged_frame(dice, dice.choice(sent)))
                await asyncio.sleep(0.002)
            client.cut()

        for _ in range(10):
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*(one() for _ in range(20)))

    served(broker, hostile, 32)
    log = broker.log.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]


def test_a_storm_of_lookups_from_clients_that_do_not_read_the_answers(broker: BrokerProcess) -> None:
    """20,000 lookups over 20 connections, half of which are not read; those who read get every answer."""
    each = 1000

    async def hostile(port: int) -> None:
        clients = [await connect(port) for _ in range(20)]
        for client in clients[::2]:
            cast("Any", client)._transport.pause_reading()
        for number in range(each):
            topic = f"persistent://public/default/storm-{number % 100}"
            for client in clients:
                client.send(Command.LOOKUP, topic=topic, request_id=number, authoritative=True)
            if not number % 100:
                await asyncio.sleep(0)
        for client in clients[1::2]:
            async with asyncio.timeout(WAIT_S):
                await client.until(lambda client=client: len(client.said) == each or client.ended)  # type: ignore[misc]
            assert {s.message.request_id for s in client.said} == set(range(each))
        for client in clients:
            client.cut()

    served(broker, hostile, 20 * 6)
