"""A client that says what it is told, and servers in virtual time to say it to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

from bkdaemon.broker.protocol.server import BrokerServer

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, decode_command, encode_command
from bkctl.codec.pulsar_entry import encode_batch, encode_entry
from bkctl.world import World
from tests.broker.backend import SoleBackend
from tests.unit.log.logs import Broker, on_brokers

T = TypeVar("T")
PORT = 6650
ANSWER_S = 60.0


class Said(NamedTuple):
    """What the broker said: a command, and the entry of a MESSAGE."""

    kind: Command
    message: Any
    entry: bytes


class RawClient(asyncio.Protocol):
    """One connection. `said` has what came and was not taken; PINGs are answered and not kept."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.ended = False
        self.requests = 0
        self._data = b""
        self._news = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self.answers_pings = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._news.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (size := 4 + int.from_bytes(self._data[:4], "big")):
            frame, self._data = self._data[:size], self._data[size:]
            command = int.from_bytes(frame[4:8], "big")
            kind, message = decode_command(frame[8 : 8 + command])
            if kind == Command.PING:
                if self.answers_pings:
                    self.send(Command.PONG)
                continue
            self.said.append(Said(Command(kind), message, frame[8 + command :]))
        self._news.set()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def send(self, kind: Command, body: bytes | None = None, /, **fields: Any) -> None:
        self.write(encode_command(kind, body, **fields))

    def cut(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def next(self, *kinds: Command) -> Said:
        """The next thing said, or the next of these kinds; the others stay."""
        found: list[Said] = []

        def look() -> bool:
            found[:] = [s for s in self.said if not kinds or s.kind in kinds][:1]
            return bool(found) or self.ended

        await self.until(look)
        assert found, f"the connection ended; it said {self.said}"
        self.said.remove(found[0])
        return found[0]

    async def ask(self, kind: Command, *answers: Command, **fields: Any) -> Any:
        """A request with a number of its own, and the message of the answer that has it."""
        self.requests += 1
        number = self.requests
        self.send(kind, request_id=number, **fields)
        wanted = answers or (Command.SUCCESS, Command.ERROR)
        found: list[Said] = []

        def look() -> bool:
            found[:] = [s for s in self.said if s.kind in wanted and s.message.request_id == number][:1]
            return bool(found) or self.ended

        await self.until(look)
        assert found, f"the connection ended without an answer to {kind.name}"
        self.said.remove(found[0])
        return found[0].message

    async def end(self) -> None:
        await self.until(lambda: self.ended)

    # -- what clients usually say --------------------------------------------------------------------------------------

    async def produce(self, topic: str, producer_id: int = 0, **fields: Any) -> Any:
        return await self.ask(
            Command.PRODUCER, Command.PRODUCER_SUCCESS, Command.ERROR, topic=topic, producer_id=producer_id, **fields
        )

    async def subscribe(self, topic: str, name: str = "s", kind: int = 0, consumer_id: int = 0, **fields: Any) -> Any:
        fields.setdefault("consumer_name", f"c{consumer_id}")
        fields.setdefault("initialPosition", 1)
        return await self.ask(
            Command.SUBSCRIBE, topic=topic, subscription=name, subType=kind, consumer_id=consumer_id, **fields
        )

    def publish(self, sequence_id: int, payload: bytes = b"x", producer_id: int = 0, **metadata: Any) -> None:
        entry = entry_of(sequence_id, payload, **metadata)
        self.send(Command.SEND, entry, producer_id=producer_id, sequence_id=sequence_id)

    async def messages(self, count: int) -> list[Said]:
        return [await self.next(Command.MESSAGE) for _ in range(count)]

    def flow(self, permits: int, consumer_id: int = 0) -> None:
        self.send(Command.FLOW, consumer_id=consumer_id, messagePermits=permits)

    def ack(self, *said: Said, consumer_id: int = 0, kind: int = 0, **fields: Any) -> None:
        places = [s.message.message_id for s in said]
        self.send(Command.ACK, consumer_id=consumer_id, ack_type=kind, message_id=places, **fields)


def entry_of(sequence_id: int, payload: bytes = b"x", producer: str = "p", **metadata: Any) -> bytes:
    return encode_entry(
        api.MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=1, **metadata), payload
    )


def batch_of(sequence_id: int, payloads: list[bytes]) -> bytes:
    batch = encode_batch([(api.SingleMessageMetadata(), payload) for payload in payloads])
    return entry_of(sequence_id, batch, num_messages_in_batch=len(payloads))


class Stage:
    """A broker in virtual time, and a way to talk to it."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        self.broker = broker
        self.world: World = broker.context.world
        self.backend = SoleBackend(broker.context, **options)
        self.server = BrokerServer(self.backend, self.world)

    async def client(self, *, connect: bool = True, **fields: Any) -> RawClient:
        _, protocol = await self.world.network.connect("client", PORT, RawClient)
        client = cast("RawClient", protocol)
        if connect:
            client.send(Command.CONNECT, **{"client_version": "raw", "protocol_version": 20, **fields})
            await client.next(Command.CONNECTED)
        return client


def on_stage(scenario: Callable[[Stage], Awaitable[T]], **options: Any) -> T:
    """Runs a scenario against a broker of its own."""

    async def main(broker: Broker) -> T:
        stage = Stage(broker, **options)
        await stage.server.start("client", PORT)
        try:
            return await scenario(stage)
        finally:
            await stage.server.stop()

    return on_brokers(main)
