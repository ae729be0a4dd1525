"""A topic that changes its owner while clients use it: nothing confirmed is lost, nothing is confirmed twice."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from bkdaemon.broker.protocol.server import BrokerServer
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.codec.pulsar_entry import split_entry
from tests.broker.backend import SoleBackend
from tests.broker.raw import PORT, RawClient, Stage, on_stage
from tests.unit.log.logs import another

TOPIC = "persistent://public/default/t"


async def second_server(stage: Stage, rules: TopicRules) -> BrokerServer:
    """Another broker over the same bookies and metadata."""
    broker = await another(stage.broker)
    server = BrokerServer(SoleBackend(broker.context, rules=rules), stage.world)
    await server.start("client", PORT + 1)
    return server


async def connect(stage: Stage, port: int) -> RawClient:
    _, protocol = await stage.world.network.connect("client", port, RawClient)
    client = cast("RawClient", protocol)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    return client


def receipts(client: RawClient) -> dict[int, tuple[int, int]]:
    """Positions by sequence id, of what was confirmed and is no duplicate."""
    return {
        s.message.sequence_id: (s.message.message_id.ledgerId, s.message.message_id.entryId)
        for s in client.said
        if s.kind == Command.SEND_RECEIPT and s.message.message_id.ledgerId >= 0
    }


def receipt_count(client: RawClient) -> int:
    return len([s for s in client.said if s.kind == Command.SEND_RECEIPT])


@pytest.mark.parametrize("delay_s", [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05])
def test_a_fenced_owner_confirms_no_lost_message(delay_s: float) -> None:
    rules = TopicRules(deduplication=True)

    async def scenario(stage: Stage) -> None:
        old = await stage.client()
        await old.produce(TOPIC, producer_name="p")
        server = await second_server(stage, rules)
        new = await connect(stage, PORT + 1)
        for i in range(20):
            old.publish(i, b"%d" % i)
        await asyncio.sleep(delay_s)
        opening = asyncio.ensure_future(new.produce(TOPIC, producer_name="p"))
        for i in range(20, 40):
            old.publish(i, b"%d" % i)
            await asyncio.sleep(0.0005)
        taken = await opening
        old.publish(40, b"40")
        await old.until(lambda: [s for s in old.said if s.kind == Command.CLOSE_PRODUCER])
        confirmed = receipts(old)
        for i in range(taken.last_sequence_id + 1, 50):  # as a client does that was told of its last id
            new.publish(i, b"%d" % i)
        first = 50 - (taken.last_sequence_id + 1)
        await new.until(lambda: receipt_count(new) == first)
        for i in range(50):  # and one that sends all again
            new.publish(i, b"%d" % i)
        await new.until(lambda: receipt_count(new) == first + 50)
        confirmed_later = receipts(new)
        assert not confirmed.keys() & confirmed_later.keys(), "confirmed twice"
        await new.subscribe(TOPIC)
        new.flow(1000)
        found = await new.messages(50)
        await asyncio.sleep(1)
        assert [s for s in new.said if s.kind == Command.MESSAGE] == []
        assert [int(split_entry(s.entry)[1]) for s in found] == list(range(50)), "each once, in order"
        places = {(s.message.message_id.ledgerId, s.message.message_id.entryId) for s in found}
        assert set(confirmed.values()) | set(confirmed_later.values()) <= places
        await server.stop()

    on_stage(scenario, rules=rules)


def test_acknowledgements_with_a_receipt_survive_a_change_of_owner() -> None:
    async def scenario(stage: Stage) -> None:
        old = await stage.client()
        await old.produce(TOPIC)
        await old.subscribe(TOPIC, kind=1)
        for i in range(10):
            old.publish(i, b"%d" % i)
        old.flow(100)
        found = await old.messages(10)
        for i in (0, 3, 7):
            old.ack(found[i], request_id=i)
            await old.next(Command.ACK_RESPONSE)
        server = await second_server(stage, TopicRules())
        new = await connect(stage, PORT + 1)
        await new.subscribe(TOPIC, kind=1)
        new.flow(100)
        again = await new.messages(7)
        assert [int(split_entry(s.entry)[1]) for s in again] == [1, 2, 4, 5, 6, 8, 9]
        old.ack(found[1], request_id=77)  # the old owner may not say that this is safe
        await asyncio.sleep(5)
        late = [s.message for s in old.said if s.kind == Command.ACK_RESPONSE]
        assert all(m.HasField("error") for m in late)
        await server.stop()

    on_stage(scenario)


def test_a_topic_whose_bundle_moves_while_it_opens_is_closed() -> None:
    async def scenario(stage: Stage) -> None:
        asked: list[bool] = []

        def owned(topic: object) -> bool:
            asked.append(True)
            return len(asked) == 1

        stage.backend.owned = owned
        client = await stage.client()
        assert (await client.produce(TOPIC)).error == ErrorCode.SERVICE_NOT_READY
        assert stage.server.topics.open == {}
        stage.backend.owned = lambda topic: True
        assert (await client.produce(TOPIC)).producer_ready

    on_stage(scenario)
