"""One client's connection: frames, PINGs, versions of the protocol, writes and their bounds, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from bkdaemon.broker.protocol.connection import CLOSING_S, OUT_BYTES_MAX
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.topic import Topic

from bkctl.client.bookie import BookieConnection
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, encode_command
from bkctl.codec.pulsar_entry import encode_batch
from bkctl.model.topic import TopicName
from tests.broker.raw import Stage, entry_of, on_stage
from tests.broker.scenarios import TOPIC, counted_transports, producing
from tests.unit.log.logs import until

CPP = "Pulsar-CPP-v4.2.0"


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


KIB = 1024


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 20,
        b"GET / HTTP/1.1\r\n\r\n",
        encode_command(Command.CONNECT, client_version="again"),
        encode_command(Command.SEND, b"", producer_id=0, sequence_id=0),
        encode_command(Command.SEND, entry_of(0), producer_id=77, sequence_id=0),
        encode_command(Command.CONSUMER_STATS, request_id=1, consumer_id=77),
        encode_command(Command.SUBSCRIBE, topic="t", subscription="s", subType=9, consumer_id=1, request_id=1),
        encode_command(Command.LOOKUP, topic="t", request_id=1).replace(b"\x0a\x01t", b"\x0a\x01\xff"),
        bytes.fromhex("00000006000000020863"),
    ],
)
def test_invalid_frames_close_only_their_own_connection(raw: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        good, bad = await stage.client(), await stage.client()
        await good.produce(TOPIC)
        bad.write(raw)
        await bad.end()
        good.publish(0)
        receipt = await good.next()
        assert receipt.kind == Command.SEND_RECEIPT

    on_stage(scenario)


def test_nothing_is_answered_before_connect() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(connect=False)
        client.send(Command.LOOKUP, topic=TOPIC, request_id=1)
        await client.end()
        assert client.said == []

    on_stage(scenario)


def test_connect_is_answered_by_connected_alone() -> None:
    async def scenario(stage: Stage) -> None:
        for asked, answered in ((0, 0), (5, 5), (20, 20), (99, 21)):
            client = await stage.client(connect=False)
            client.send(Command.CONNECT, client_version=CPP, protocol_version=asked, auth_method_name="none")
            first = await client.next()
            assert first.kind == Command.CONNECTED
            assert first.message.protocol_version == min(answered, first.message.protocol_version or answered)
            assert client.said == []

    on_stage(scenario)


def test_required_fields_are_present_even_with_their_default_values() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(connect=False)
        client.send(Command.CONNECT, client_version=CPP, protocol_version=20)
        connected = (await client.next()).message
        assert connected.server_version
        assert (connected.protocol_version, connected.max_message_size) == (20, stage.backend.max_message_size)
        lookup = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=TOPIC)
        assert lookup.HasField("response")
        answer = await client.ask(Command.PARTITIONED_METADATA, Command.PARTITIONED_METADATA_RESPONSE, topic=TOPIC)
        assert (answer.HasField("response"), answer.HasField("partitions"), answer.partitions) == (True, True, 0)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        single = encode_batch([(api.SingleMessageMetadata(), b"x")])
        for sequence_id, (entry, index) in enumerate(
            [(entry_of(0, b"x"), -1), (entry_of(1, single, num_messages_in_batch=1), 0)]
        ):
            client.send(Command.SEND, entry, producer_id=0, sequence_id=sequence_id)
            await client.next(Command.SEND_RECEIPT)
            last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0)
            assert last.last_message_id.batch_index == index

    on_stage(scenario)


def test_requests_of_different_kinds_may_share_a_request_id() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        client.send(Command.LOOKUP, topic=TOPIC, request_id=1)
        client.send(Command.PARTITIONED_METADATA, topic=TOPIC, request_id=1)
        client.send(Command.PRODUCER, topic=TOPIC, producer_id=0, request_id=1)
        said = [await client.next() for _ in range(3)]
        assert {s.kind for s in said} == {
            Command.LOOKUP_RESPONSE,
            Command.PARTITIONED_METADATA_RESPONSE,
            Command.PRODUCER_SUCCESS,
        }
        assert {s.message.request_id for s in said} == {1}

    on_stage(scenario)


def test_a_silent_client_is_disconnected_and_one_that_answers_is_not() -> None:
    async def scenario(stage: Stage) -> None:
        silent, lively = await stage.client(), await stage.client()
        silent.answers_pings = False
        await asyncio.sleep(100)
        assert silent.ended
        assert not lively.ended

    on_stage(scenario)


def test_a_ping_is_answered_under_load() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.subscribe(TOPIC)
        client.flow(100_000)
        sends = [encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i) for i in range(5000)]
        loop = asyncio.get_running_loop()
        client.write(b"".join(sends))
        asked = loop.time()
        client.send(Command.PING)
        await client.next(Command.PONG)
        assert loop.time() - asked < 10, "in virtual seconds, of the 30 that a client waits"
        await client.until(lambda: sum(s.kind == Command.MESSAGE for s in client.said) == 5000)

    on_stage(scenario)


def test_pings_of_both_sides_at_the_same_moment_are_answered() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        pings = 0
        received = client.data_received

        def hear(data: bytes) -> None:
            nonlocal pings
            if b"\x08\x12\x92\x01" in data:  # the broker's PING: ours goes out in the same tick, before the PONG
                pings += 1
                client.send(Command.PING)
            received(data)

        client.data_received = hear  # type: ignore[method-assign]
        await asyncio.sleep(200)
        assert pings >= 3
        assert not client.ended
        assert sum(s.kind == Command.PONG for s in client.said) == pings

    on_stage(scenario)


@pytest.mark.parametrize(("version", "checksum"), [(10, False), (11, True)])
def test_checksums_are_sent_to_clients_of_version_11_or_later(version: int, checksum: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(protocol_version=version)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        client.flow(1)
        client.publish(0)
        (one,) = await client.messages(1)
        assert one.entry.startswith(b"\x0e\x01") is checksum

    on_stage(scenario)


def test_an_old_client_gets_the_entry_without_its_checksum() -> None:
    async def scenario(stage: Stage) -> None:
        await producing(stage, 1)
        old = await stage.client(protocol_version=5)
        await old.subscribe(TOPIC)
        old.flow(1)
        (message,) = await old.messages(1)
        assert message.entry == entry_of(0, b"0")[6:]

    on_stage(scenario)


def test_sends_that_arrive_together_are_stored_and_confirmed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    send_adds = BookieConnection.send_adds

    def counting(self: BookieConnection, ledger_id: int, key: bytes, entry_ids: Any, *rest: Any) -> None:
        batches.append(len(entry_ids))
        send_adds(self, ledger_id, key, entry_ids, *rest)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        (writes,) = counted_transports(stage)
        monkeypatch.setattr(BookieConnection, "send_adds", counting)
        client.write(
            b"".join(encode_command(Command.SEND, entry_of(i), producer_id=0, sequence_id=i) for i in range(200))
        )
        said = [await client.next(Command.SEND_RECEIPT) for _ in range(200)]
        assert [s.message.sequence_id for s in said] == list(range(200))
        assert batches == [200, 200]  # two bookies
        assert len(writes.writes) <= 3  # as answers of bookies came in

    on_stage(scenario)


def test_a_backlog_is_written_a_megabyte_at_a_time() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        big = [entry_of(i, b"x" * 300_000) for i in range(40)]
        for number, entry in enumerate(big):
            client.send(Command.SEND, entry, producer_id=0, sequence_id=number)
            await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC)
        (writes,) = counted_transports(stage)
        most: list[int] = []
        connection: Any
        (connection,) = stage.server.connections
        flush = connection._flush
        connection._flush = lambda: (most.append(connection._out_bytes), flush())
        client.flow(1000)
        assert [s.entry for s in await client.messages(40)] == big
        assert max(most) <= OUT_BYTES_MAX + TopicRules().read_bytes_max
        assert len(writes.writes) >= 3

    on_stage(scenario)


def test_congestion_of_producers_is_not_checked_while_little_is_unconfirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for i in range(50):
            await client.produce(f"{TOPIC}{i}", producer_id=i)
        asked: list[Topic] = []
        congested: Any = Topic.congested

        def counting(topic: Topic) -> bool:
            asked.append(topic)
            return bool(congested.fget(topic))

        monkeypatch.setattr(Topic, "congested", property(counting))
        for i in range(20):
            client.publish(i)
        for _ in range(20):
            await client.next(Command.SEND_RECEIPT)
        assert asked == []
        topic = stage.server.topics.open[TopicName.parse(f"{TOPIC}0")]
        assert isinstance(topic, Topic)
        monkeypatch.setattr(topic.ledger, "_drain", lambda: None)
        topic.ledger.add_many([bytes(1 << 20)] * 17)
        client.publish(20)
        await until(lambda: topic in asked)
        (connection,) = stage.server.connections
        assert not connection.reading

    on_stage(scenario)


def test_a_closing_connection_whose_client_reads_nothing_is_aborted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        (connection,) = stage.server.connections
        connection._transport = cast("asyncio.Transport", Stuck(connection._transport))
        client.write(b"\x7f\xff\xff\xff")  # no frame
        await asyncio.sleep(CLOSING_S / 2)
        assert len(stage.server.connections) == 1
        await asyncio.sleep(CLOSING_S)
        assert stage.server.connections == set()
        assert client.ended

    on_stage(scenario)


def test_a_client_that_leaves_its_notifications_unread_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.broker.protocol.connection.WRITE_BUFFER_MAX", 8192 * KIB)

    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
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
