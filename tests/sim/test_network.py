"""TCP in virtual time: order, ends, partitions, resets."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.sim.loop import SimLoop, run
from tests.sim.machine import Machine
from tests.sim.network import CONNECT_TIMEOUT_S, GIVE_UP_S, Fabric
from tests.sim.trace import Trace


class Log(asyncio.Protocol):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces = 0
        self.events: list[str] = []
        self.transport: Any = None
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append(f"lost {type(error).__name__ if error else 'clean'}")
        if not self.ended.done():
            self.ended.set_result(None)


class Pair:
    """A server machine, a client machine, and one connection between them."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        random = Random(seed)
        self.loop = loop
        self.trace = Trace(loop.time)
        self.fabric = Fabric(loop, random, self.trace)
        self.server = Machine(loop, self.fabric, self.trace, random, "server")
        self.client = Machine(loop, self.fabric, self.trace, random, "client")
        self.heard: list[Log] = []

    async def connect(self) -> Log:
        if not self.server.running:
            await self.listen()
        if not self.client.running:
            self.client.start()
        process = self.client.process
        assert process is not None
        task = process.spawn(self.fabric.door("client", process).connect("server", 7, Log))
        return (await task)[1]  # type: ignore[return-value]

    async def listen(self) -> None:
        process, world = self.server.start()

        def factory() -> Log:
            self.heard.append(Log())
            return self.heard[-1]

        await process.spawn(world.network.listen("server", 7, factory))


def simulate(scenario: Any, seed: int = 1) -> Any:
    return run(lambda loop: scenario(Pair(loop, seed)))


def test_bytes_come_whole_and_in_order_in_other_pieces() -> None:
    async def main(pair: Pair) -> tuple[bytes, bytes, int]:
        pair.fabric.split_chance = 0.5
        pair.fabric.spike_chance = 0.01
        client = await pair.connect()
        text = b"".join(b"%05d" % i for i in range(500))
        for i in range(0, len(text), 5):
            client.transport.write(text[i : i + 5])
            if i % 50 == 0:
                await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        return bytes(pair.heard[0].data), text, pair.heard[0].pieces

    data, text, pieces = simulate(main)
    assert data == text
    assert 30 < pieces < 400, "neither one nor as many as were written"


def test_a_close_delivers_what_was_written() -> None:
    async def main(pair: Pair) -> None:
        client = await pair.connect()
        client.transport.write(b"bye")
        client.transport.close()
        client.transport.write(b"too late")
        await asyncio.sleep(1)
        server = pair.heard[0]
        assert bytes(server.data) == b"bye"
        assert server.events == client.events == ["made", "lost clean"]
        assert pair.fabric.connections[0].over

    simulate(main)


def test_a_partition_delays_and_then_ends_the_connection() -> None:
    async def main(pair: Pair) -> None:
        client = await pair.connect()
        pair.fabric.part("client", "server")
        client.transport.write(b"one")
        await asyncio.sleep(GIVE_UP_S / 2)
        assert not pair.heard[0].data
        pair.fabric.heal()
        await asyncio.sleep(1)
        assert bytes(pair.heard[0].data) == b"one"
        pair.fabric.part("client", "server")
        client.transport.write(b"two")
        await client.ended
        assert client.events[-1] == "lost TimeoutError"
        assert pair.heard[0].events == ["made"], "the other side knows nothing"
        pair.fabric.heal()
        pair.heard[0].transport.write(b"still there?")
        await pair.heard[0].ended
        assert pair.heard[0].events[-1] == "lost ConnectionResetError"

    simulate(main)


def test_one_way_is_blocked_the_other_is_not() -> None:
    async def main(pair: Pair) -> None:
        client = await pair.connect()
        pair.fabric.block("server", "client")
        client.transport.write(b"request")
        await asyncio.sleep(1)
        assert bytes(pair.heard[0].data) == b"request"
        pair.heard[0].transport.write(b"answer")
        await asyncio.sleep(1)
        assert not client.data

    simulate(main)


def test_connections_are_refused_or_time_out() -> None:
    async def main(pair: Pair) -> None:
        client, world = pair.client.start()
        with pytest.raises(ConnectionRefusedError):
            await client.spawn(world.network.connect("server", 7, Log))
        pair.fabric.part("client", "server")
        before = pair.loop.now
        with pytest.raises(TimeoutError):
            await client.spawn(world.network.connect("server", 7, Log))
        assert pair.loop.now - before >= CONNECT_TIMEOUT_S

    simulate(main)


def test_a_cut_connection_ends_at_both_sides_with_a_prefix_delivered() -> None:
    sizes = set()

    async def main(pair: Pair) -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        for i in range(10):
            client.transport.write(bytes([i]))
        pair.fabric.between("client", "server")[0].cut()
        await client.ended
        await pair.heard[0].ended
        data = bytes(pair.heard[0].data)
        assert data == bytes(range(len(data)))
        sizes.add(len(data))

    for seed in range(30):
        simulate(main, seed)
    assert len(sizes) > 3


def test_a_killed_server_resets_and_a_dark_one_keeps_silent() -> None:
    async def killed(pair: Pair) -> None:
        client = await pair.connect()
        pair.server.kill()
        await client.ended
        assert client.events[-1] == "lost ConnectionResetError"
        await pair.connect()

    async def dark(pair: Pair) -> None:
        client = await pair.connect()
        pair.server.power_off()
        client.transport.write(b"hello?")
        await asyncio.sleep(GIVE_UP_S / 2)
        assert client.events == ["made"]
        await pair.listen()
        await client.ended
        assert client.events[-1] == "lost ConnectionResetError"
        second = await pair.connect()
        assert second.events == ["made"]

    simulate(killed)
    simulate(dark)


def test_a_slow_reader_pauses_the_writer() -> None:
    async def main(pair: Pair) -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        pair.heard[0].transport.pause_reading()
        for _ in range(40):
            client.transport.write(bytes(10_000))
        assert client.events == ["made", "pause"]
        await asyncio.sleep(1)
        assert not pair.heard[0].data
        pair.heard[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["made", "pause", "resume"]
        assert len(pair.heard[0].data) == 400_000

    simulate(main)


def test_a_stopped_server_hears_later() -> None:
    async def main(pair: Pair) -> None:
        client = await pair.connect()
        pair.server.stop()
        client.transport.write(b"are you there")
        await asyncio.sleep(20)
        assert not pair.heard or not pair.heard[0].data
        pair.server.go_on()
        await asyncio.sleep(0.1)
        assert bytes(pair.heard[0].data) == b"are you there"

    simulate(main)


def test_one_seed_one_story() -> None:
    async def main(pair: Pair) -> str:
        client = await pair.connect()
        for i in range(50):
            client.transport.write(bytes([i]) * i)
            await asyncio.sleep(0.0005)
        await asyncio.sleep(1)
        return pair.trace.digest

    assert simulate(main, 3) == simulate(main, 3) != simulate(main, 4)
