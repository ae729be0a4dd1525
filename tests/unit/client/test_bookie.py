"""A connection: time-outs, resets before the first answer, garbage, back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest
import uvloop

from bkctl.client.bookie import Batch, BookieConnection
from bkctl.model.ids import BookieId
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.protocol.quorum import TIMED_OUT, UNREACHABLE
from bkctl.world import SystemNetwork

T = TypeVar("T")


def read_seven(conversation: BookieConversation) -> tuple[int, bytes]:
    return conversation.read(7, 0)


class Peer(asyncio.Protocol):
    """A bookie of a few lines: resets the first connections, then answers with some bytes, or not at all."""

    def __init__(self, resets: int, answer: bytes | None) -> None:
        self.resets = resets
        self.answer = answer
        self.connections = 0
        self.received = 0
        self.ended = asyncio.Event()
        self.transports: list[asyncio.Transport] = []

    def hang_up(self) -> None:
        for transport in self.transports:
            transport.close()

    def __call__(self) -> asyncio.Protocol:
        peer = self

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                peer.connections += 1
                self.transport = cast(asyncio.Transport, transport)
                self.number = peer.connections
                peer.transports.append(self.transport)

            def connection_lost(self, exc: Exception | None) -> None:
                peer.ended.set()

            def data_received(self, data: bytes) -> None:
                peer.received += 1
                if self.number <= peer.resets:
                    self.transport.abort()
                elif peer.answer is not None:
                    self.transport.write(peer.answer)

        return Connection()


# v2: READ of ledger 7, entry 0: NO_ENTRY
NO_ENTRY = bytes.fromhex("00000018 02020000 00000002 0000000000000007 0000000000000000".replace(" ", ""))


def with_peer(
    peer: Peer,
    work: Callable[[BookieConnection], Awaitable[T]],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> T:
    async def main() -> T:
        network = SystemNetwork()
        listener = await network.listen("127.0.0.1", 0, peer)

        async def address() -> tuple[str, int]:
            return "127.0.0.1", listener.port

        connection = BookieConnection(BookieId("b:1"), 2, network, address)
        try:
            async with asyncio.timeout(30):
                return await work(connection)
        finally:
            connection.close()
            await listener.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("resets", [0, 1, 3])
def test_resets_before_the_first_answer_are_not_seen(
    resets: int, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    peer = Peer(resets, NO_ENTRY)

    async def work(connection: BookieConnection) -> int:
        return (await connection.call(read_seven, 5.0)).status

    assert with_peer(peer, work, loop) == Status.NO_ENTRY
    assert peer.connections == resets + 1


def test_resets_without_end_are_told() -> None:
    async def work(connection: BookieConnection) -> tuple[int, int]:
        first = (await connection.call(read_seven, 60.0)).status
        return first, (await connection.call(read_seven, 60.0)).status  # while it rests: at once

    assert with_peer(Peer(1_000, NO_ENTRY), work) == (UNREACHABLE, UNREACHABLE)


@pytest.mark.parametrize("answer", [b"\x7f\xff\xff\xff garbage", b"\x00\x00\x00\x02\x09\x09"])
def test_garbage_ends_the_connection(answer: bytes) -> None:
    async def work(connection: BookieConnection) -> int:
        return (await connection.call(read_seven, 60.0)).status

    assert with_peer(Peer(0, answer), work) == UNREACHABLE


def test_silence_is_told_at_the_next_poll() -> None:
    async def work(connection: BookieConnection) -> tuple[int, int]:
        call = asyncio.create_task(connection.call(read_seven, 2.0))
        await asyncio.sleep(0)
        connection.poll(asyncio.get_running_loop().time() + 1.0)
        assert connection.busy == 1
        connection.poll(asyncio.get_running_loop().time() + 3.0)
        return (await call).status, connection.busy

    assert with_peer(Peer(0, None), work) == (TIMED_OUT, 0)


def test_half_a_reply_of_a_connection_that_ended_is_forgotten() -> None:
    peer = Peer(0, NO_ENTRY + NO_ENTRY[:10])

    async def work(connection: BookieConnection) -> tuple[int, int]:
        first = (await connection.call(read_seven, 5.0)).status
        peer.hang_up()
        await peer.ended.wait()
        peer.answer = NO_ENTRY
        status = UNREACHABLE
        while status == UNREACHABLE:  # the end may come to us a little later than to the peer
            status = (await connection.call(read_seven, 5.0)).status
            await asyncio.sleep(0.01)
        return first, status

    assert with_peer(peer, work) == (Status.NO_ENTRY, Status.NO_ENTRY)


def test_closing_fails_what_waits() -> None:
    async def work(connection: BookieConnection) -> int:
        call = asyncio.create_task(connection.call(read_seven, 60.0))
        await asyncio.sleep(0)
        connection.close()
        connection.close()
        return (await call).status

    assert with_peer(Peer(0, None), work) == UNREACHABLE


def test_a_peer_that_never_answers_fails_the_batch_once() -> None:
    told: list[tuple[list[int], int]] = []

    async def work(connection: BookieConnection) -> None:

        batch = Batch((3, 4, 5), 1.0, lambda _: None, lambda ids, status: told.append((ids, status)))
        connection.send_reads(7, (3, 4, 5), batch)
        connection.poll(asyncio.get_running_loop().time() + 5.0)

    with_peer(Peer(0, None), work)
    assert told == [([3, 4, 5], TIMED_OUT)]
