"""What clients have sent and is not stored, over all connections: half frames, whole ones, who stops midway."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from bkdaemon import unfinished_frames
from bkdaemon.broker.protocol import server
from bkdaemon.broker.protocol.connection import CLOSING_S
from bkdaemon.broker.protocol.server_limits import ServerLimits

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, encode_command
from bkctl.errors import LedgerFenced
from bkctl.log import cache
from bkctl.model.status import Status
from bkctl.model.topic import Position
from bkctl.protocol.broker import BrokerConversation, Sends
from bkctl.protocol.pieces import JOINED_MAX
from tests.broker.raw import RawClient, Stage, entry_of, on_stage
from tests.unit.log.logs import Broker, on_brokers, until

TOPIC = "persistent://public/default/t"
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


def test_half_frames_of_many_connections_are_bounded_and_all_of_them_come_to_their_end() -> None:
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


def test_who_stops_inside_of_a_frame_ends_and_others_go_on() -> None:
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


def test_who_stops_inside_of_a_frame_may_do_so_while_there_is_room() -> None:
    async def scenario(stage: Stage) -> None:
        (client,) = await producers(stage, 1)
        frame = long_frame()
        await say(client, frame[:-1])
        await asyncio.sleep(100)
        client.write(frame[-1:])
        assert (await client.next(Command.SEND_RECEIPT)).message.sequence_id == 0

    on_stage(scenario, max_message_size=FRAME + KIB)


def test_what_bookies_have_not_stored_yet_is_bounded_over_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_ends_leaves_nothing_behind_of_what_was_on_its_way(fails: bool) -> None:
    async def scenario(broker: Broker) -> None:
        log, other = await broker.open(), await broker.open(name="public/default/persistent/other")
        memory = broker.context.cache
        log.add_many([bytes(FRAME)] * 5)
        other.add_many([bytes(KIB)])
        assert memory.unconfirmed_bytes == 5 * FRAME + KIB
        if fails:
            log.failed(LedgerFenced("another has it", status=Status.FENCED))
            assert memory.unconfirmed_bytes == KIB
        await log.close()
        await until(lambda: len(broker.confirmed) >= 1)
        await other.close()
        assert memory.unconfirmed_bytes == 0

    on_brokers(scenario)


class Stuck:
    """A transport that has more to send than its peer will ever take."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._closing = False

    def close(self) -> None:
        self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_who_is_told_goodbye_and_takes_nothing_is_cut_off() -> None:
    async def scenario(stage: Stage) -> None:
        (client,) = await producers(stage, 1)
        (connection,) = stage.server.connections
        connection._transport = cast("asyncio.Transport", Stuck(connection._transport))
        client.write(b"\x7f\xff\xff\xff")  # no frame
        await asyncio.sleep(CLOSING_S / 2)
        assert len(stage.server.connections) == 1
        await asyncio.sleep(CLOSING_S)
        assert stage.server.connections == set()
        assert client.ended

    on_stage(scenario, max_message_size=FRAME + KIB)


def test_who_never_takes_what_it_watches_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.broker.protocol.connection.WRITE_BUFFER_MAX", 8192 * KIB)

    async def scenario(stage: Stage) -> None:
        (client,) = await producers(stage, 1)
        (connection,) = stage.server.connections
        client._transport.pause_reading()  # type: ignore[union-attr]
        for _ in range(7):
            connection.queue((bytes(1024 * KIB),))
            await asyncio.sleep(1)
        assert stage.server.connections == {connection}
        assert not connection.writable
        for _ in range(4):
            connection.queue((bytes(1024 * KIB),))
            await asyncio.sleep(1)
        assert stage.server.connections == set()

    on_stage(scenario)


def test_how_often_expired_entries_were_given_back_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.broker.dispatch.shared.REDELIVERIES_KEPT", 10)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=1)
        client.flow(10_000)
        (topic,) = stage.server.topics.open.values()
        subscription: Any = topic.subscriptions["s"]
        for i in range(100):
            client.publish(i)
            (said,) = await client.messages(1)
            place = said.message.message_id
            client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[place])
            (again,) = await client.messages(1)
            assert again.message.redelivery_count == 1
            subscription.cursor.ack((Position(place.ledgerId, place.entryId),))  # as its expiry does
            assert len(subscription.dispatcher.redeliveries) <= 11

    on_stage(scenario)


def test_a_frame_that_comes_byte_by_byte_is_kept_in_few_pieces() -> None:
    conversation = BrokerConversation(message_size_max=FRAME + KIB)
    conversation.accept(api.CommandConnect(client_version="c", protocol_version=20), server_version="s")
    frame = long_frame(7)
    most = 0
    for at in range(len(frame) - 1):
        assert conversation.feed(frame[at : at + 1]) == []
        most = max(most, len(conversation._held))
        assert conversation.unfinished[0] == at + 1
    assert most <= 2 + FRAME // JOINED_MAX + 1
    events = conversation.feed(frame[-1:] + frame)
    assert isinstance(events[0], Sends)
    assert [send[0] for send in events[0].sends] == [7, 7]
    assert all(type(send[3]) is bytes for send in events[0].sends)
    assert conversation.unfinished == (0, 0)
