"""Bytes that clients have sent and that are not stored, over all connections: they are bounded, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon import unfinished_frames
from bkdaemon.broker.protocol import server
from bkdaemon.broker.protocol.server_limits import ServerLimits

from bkctl.codec.pulsar import Command, encode_command
from bkctl.log import cache
from tests.broker.raw import RawClient, Stage, entry_of, on_stage
from tests.broker.scenarios import TOPIC, producing

KIB = 1024
FRAME = 200 * KIB
PIECE = 8 * KIB


def long_frame(sequence_id: int = 0) -> bytes:
    entry = entry_of(sequence_id, bytes(FRAME))
    return encode_command(Command.SEND, entry, producer_id=0, sequence_id=sequence_id)


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DEFAULT_LIMITS", ServerLimits(unfinished_bytes_max=1024 * KIB))
    monkeypatch.setattr(unfinished_frames, "FINISHING_MAX", 2)


async def producers(stage: Stage, count: int) -> list[RawClient]:
    clients = [await stage.client() for _ in range(count)]
    for number, client in enumerate(clients):
        assert (await client.produce(f"{TOPIC}{number % 4}")).producer_name
    return clients


async def say(client: RawClient, data: bytes, pause_s: float = 0.01) -> None:
    for at in range(0, len(data), PIECE):
        client.write(data[at : at + PIECE])
        await asyncio.sleep(pause_s)


def test_partial_frames_of_many_connections_are_bounded_and_all_complete() -> None:
    async def scenario(stage: Stage) -> None:
        clients = await producers(stage, 60)
        unfinished, most = stage.server.unfinished, 0
        frame = long_frame()

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, unfinished.size)
                await asyncio.sleep(0.001)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(say(client, frame[:-PIECE]) for client in clients))
        await asyncio.sleep(5)
        held = 60 * (unfinished_frames.SHORT_FRAME + 2 * PIECE)  # and what was read before they had to wait
        assert 1024 * KIB < most < 1024 * KIB + 2 * FRAME + held
        assert sum(unfinished.holds(c) for c in stage.server.connections) > 20
        for client in clients:
            client.write(frame[-PIECE:])
        for client in clients:
            assert (await client.next(Command.SEND_RECEIPT)).kind == Command.SEND_RECEIPT
        watching.cancel()
        assert (unfinished.size, unfinished.promised) == (0, 0)
        assert [unfinished._let_in, unfinished._waiting, unfinished._beyond] == [{}, {}, set()]
        for client in clients:  # once more, all at once and each to its end
            client.write(long_frame(1) + long_frame(2))
        for client in clients:
            assert [(await client.next(Command.SEND_RECEIPT)).message.sequence_id for _ in "12"] == [1, 2]
        assert (unfinished.size, unfinished.promised) == (0, 0)

    on_stage(scenario, max_message_size=FRAME + KIB)


def test_clients_that_stop_within_a_frame_are_closed_and_others_continue() -> None:
    async def scenario(stage: Stage) -> None:
        stalled = await producers(stage, 20)
        honest, small = await producers(stage, 2)
        await asyncio.gather(*(say(client, long_frame()[:-1]) for client in stalled))
        before = asyncio.get_running_loop().time()
        for i in range(10):
            small.publish(i, bytes(KIB))
            await small.next(Command.SEND_RECEIPT)
        small.write(encode_command(Command.PING))
        await small.next(Command.PONG)
        assert asyncio.get_running_loop().time() - before < 1
        await say(honest, long_frame())
        assert (await honest.next()).kind == Command.SEND_RECEIPT
        assert sum(client.ended for client in stalled) >= 2
        assert not small.ended
        for client in stalled:
            client.cut()
        await asyncio.sleep(1)
        assert stage.server.unfinished.size == 0

    on_stage(scenario, max_message_size=FRAME + KIB)


def test_a_partial_frame_is_kept_while_memory_allows() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        frame = long_frame()
        await say(client, frame[:-1])
        await asyncio.sleep(100)
        client.write(frame[-1:])
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 0

    on_stage(scenario, max_message_size=FRAME + KIB)


def test_bytes_that_bookies_have_not_stored_are_bounded_over_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "UNCONFIRMED_BYTES_HIGH", 1024 * KIB)

    async def scenario(stage: Stage) -> None:
        clients = await producers(stage, 40)
        fabric = stage.broker.cluster.fabric
        memory = stage.broker.context.cache
        for host in stage.broker.cluster.bookies:
            fabric.slow(host, "client", 3000)
        talks = [asyncio.create_task(say(client, long_frame())) for client in clients]
        most = 0
        for _ in range(1000):
            most = max(most, memory.unconfirmed_bytes + stage.server.unfinished.size)
            await asyncio.sleep(0.01)
        assert 1024 * KIB < most < 1024 * KIB + 3 * FRAME + 40 * (unfinished_frames.SHORT_FRAME + 2 * PIECE)
        fabric.heal()
        for client in clients:
            assert (await client.next()).kind == Command.SEND_RECEIPT
        assert memory.unconfirmed_bytes == 0
        await asyncio.gather(*talks)

    on_stage(scenario, max_message_size=FRAME + KIB)
