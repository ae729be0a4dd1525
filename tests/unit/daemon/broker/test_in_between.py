"""What comes between: a close, another request or an error, while something else waits for its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.deduplication import UNFINISHED_ENTRIES_MAX, Deduplication, Verdict
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import AccessMode, Command, ErrorCode, SubscriptionType
from bkctl.errors import Conflict, Unavailable
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.model.topic import EARLIEST, Position, TopicName
from tests.broker.raw import RawClient, Stage, entry_of, on_stage
from tests.unit.log.logs import NAME, Broker, another, on_brokers, payloads, until

TOPIC = "persistent://public/default/t"
NOT_KEPT = "non-persistent://public/default/t"
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
FIRST = api.MessageIdData(ledgerId=-1, entryId=-1)
MIB = 1 << 20


class Held:
    """Writes of a node wait until they are let go, or fail if that is wanted."""

    def __init__(self, store: Any, path_end: str) -> None:
        self.waiting = 0
        self.fails = False
        self._free = asyncio.Event()
        self._path_end = path_end
        self._set, self._multi = store.set, store.multi
        store.set, store.multi = self._set_later, self._multi_later

    async def _set_later(self, path: str, data: bytes, version: Any) -> Any:
        await self._hold([path])
        return await self._set(path, data, version)

    async def _multi_later(self, operations: Any) -> Any:
        await self._hold([o.path for o in operations])
        return await self._multi(operations)

    async def _hold(self, paths: list[str]) -> None:
        if any(path.endswith(self._path_end) for path in paths):
            self.waiting += 1
            await self._free.wait()
            self.waiting -= 1
            if self.fails:
                raise Unavailable("the store is away")

    def let_go(self) -> None:
        self._free.set()


def served(stage: Stage) -> Topic:
    (topic,) = (t for t in stage.server.topics.open.values() if t.persistent)
    assert isinstance(topic, Topic)
    return topic


async def publish(client: RawClient, count: int, **metadata: Any) -> None:
    for i in range(count):
        client.publish(i, **metadata)
    for _ in range(count):
        await client.next(Command.SEND_RECEIPT)


# -- cursors ----------------------------------------------------------------------------------------------------------


def test_properties_that_are_set_while_a_cursor_gets_a_ledger_do_not_take_it_away() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        held = Held(broker.ledgers.store, "/s")
        cursor.ack(broker.confirmed[:5])
        flushed = asyncio.ensure_future(cursor.flush())
        await until(lambda: held.waiting)
        named = asyncio.ensure_future(cursor.set_properties({"a": "b"}))
        await asyncio.sleep(0)
        held.let_go()
        await asyncio.gather(flushed, named)
        info, _ = await broker.ledgers.read_cursor(NAME, "s")
        assert info.ledger_id == cursor.ledger_id
        again = (await (await another(broker)).open()).cursors["s"]
        assert (again.mark_delete, again.properties) == (broker.confirmed[4], {"a": "b"})

    on_brokers(scenario)


def test_a_cursor_that_could_not_be_deleted_stores_what_is_acknowledged_then() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        held = Held(broker.ledgers.store, "/s")
        held.fails = True
        held.let_go()
        with pytest.raises(Unavailable):
            await log.delete_cursor("s")
        held.fails = False
        cursor.ack(broker.confirmed[:5])
        await cursor.flush()
        again = (await (await another(broker)).open()).cursors["s"]
        assert again.mark_delete == broker.confirmed[4]

    on_brokers(scenario)


def test_a_cursor_that_cannot_be_closed_holds_up_no_other() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        first, second = await log.open_cursor("a", EARLIEST), await log.open_cursor("b", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        held = Held(broker.ledgers.store, "/a")
        held.fails = True
        held.let_go()
        first.ack(broker.confirmed[:5])
        second.ack(broker.confirmed[:5])
        await log.close()
        again = await (await another(broker)).open()
        assert again.cursors["b"].mark_delete == broker.confirmed[4]

    on_brokers(scenario)


def test_nobody_joins_a_subscription_that_is_deleted_while_it_was_being_moved() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await publish(client, 9)
        await client.subscribe(TOPIC)
        topic, store = served(stage), stage.broker.ledgers.store
        subscription = topic.subscriptions["s"]
        moving, deleting = Held(store, "/s"), None
        moved = asyncio.ensure_future(subscription.seek(EARLIEST))
        await until(lambda: moving.waiting)
        deleting = Held(store, "/s")
        deleted = asyncio.ensure_future(topic.delete_subscription(subscription))
        await asyncio.sleep(0)
        moving.let_go()
        await moved
        await until(lambda: deleting.waiting)
        told = await client.subscribe(TOPIC, consumer_id=7)
        assert (told.error, subscription.consumers) == (ErrorCode.SERVICE_NOT_READY, [])
        deleting.let_go()
        await deleted
        assert topic.subscriptions == {}

    on_stage(scenario)


def test_a_subscription_that_two_delete_at_once_is_deleted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC)
        topic = served(stage)
        subscription = topic.subscriptions["s"]
        await asyncio.gather(*(topic.delete_subscription(subscription) for _ in range(2)))
        assert (topic.subscriptions, topic.ledger.cursors) == ({}, {})

    on_stage(scenario)


# -- what is sent again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_long_entries_that_come_again_cut_nobody_off(kind: SubscriptionType) -> None:
    count = 90

    async def scenario(stage: Stage) -> None:
        client, first = await stage.client(), await stage.client()
        await client.produce(TOPIC)
        await first.subscribe(TOPIC, kind=kind)
        first.flow(1000)
        for i in range(count):
            client.publish(i, bytes(MIB), partition_key="k")
            await client.next(Command.SEND_RECEIPT)
        await first.messages(count)
        first.cut()
        second = await stage.client()
        await second.subscribe(TOPIC, kind=kind)
        second.flow(1000)
        said = await second.messages(count)
        places = [s.message.message_id for s in said]
        second.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=places)
        again = [s.message.message_id.entryId for s in await second.messages(count)]
        assert again == [place.entryId for place in places]

    on_stage(scenario)


def test_what_waits_behind_long_entries_is_sent_when_those_were_acknowledged_while_they_were_read() -> None:
    count = 12

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(1000)
        for i in range(count):
            client.publish(i, bytes(MIB))
            await client.next(Command.SEND_RECEIPT)
        said = await client.messages(count)
        topic = served(stage)
        log, cursor = topic.ledger, topic.subscriptions["s"].cursor
        read_on, acked = log.read_on, list[Position]()

        async def acked_meanwhile(*asked: Any) -> Any:
            found = await read_on(*asked)
            if not acked:
                acked.extend(position for position, _ in found)
                cursor.ack(acked)
            return found

        log.read_on = acked_meanwhile  # type: ignore[method-assign]
        places = [s.message.message_id for s in said]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=places)
        await until(lambda: acked)
        again = await client.messages(count - len(acked))
        assert 0 < len(again) == count - len(acked)
        assert [s.message.message_id.entryId for s in again] == [p.entryId for p in places[len(acked) :]]

    on_stage(scenario)


def test_chunked_messages_that_never_end_do_not_part_those_that_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.broker.dispatch.shared.CHUNKED_MAX", 10)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for consumer_id in range(2):
            await client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
            client.flow(1000, consumer_id)
        for i in range(30):
            client.publish(i, uuid=f"begun {i}", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=2)
            await client.next(Command.SEND_RECEIPT)
        dispatcher = served(stage).subscriptions["s"].dispatcher
        assert isinstance(dispatcher, Shared)
        assert len(dispatcher._chunked) == 10
        assert "begun 29" in dispatcher._chunked

    on_stage(scenario)


def test_a_consumer_that_was_blocked_goes_on_when_the_limit_is_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(1000)
        await publish(client, 30)
        said = await client.messages(10)
        topic = served(stage)
        (consumer,) = topic.subscriptions["s"].consumers
        assert consumer.blocked
        topic.rules = TopicRules(unacked_per_consumer_max=0)
        client.ack(said[0])
        await client.messages(20)

    on_stage(scenario, rules=TopicRules(unacked_per_consumer_max=10, read_entries_max=10))


# -- consumers and producers that come just then ----------------------------------------------------------------------


def test_nobody_subscribes_to_a_topic_that_was_closed_during_a_seek() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        await publish(client, 3)
        topic = served(stage)
        held = Held(stage.broker.ledgers.store, "/s")
        client.send(Command.SEEK, consumer_id=0, request_id=50, message_id=FIRST)
        await until(lambda: held.waiting)
        asked = asyncio.ensure_future(client.subscribe(TOPIC))
        await asyncio.sleep(0.1)
        closing = asyncio.ensure_future(topic.close())
        await asyncio.sleep(0.1)
        held.let_go()
        answer = await asked
        await closing
        assert answer.error == ErrorCode.SERVICE_NOT_READY
        assert topic.subscriptions["s"].consumers == []

    on_stage(scenario)


def test_who_takes_the_place_of_a_silent_consumer_gets_what_comes_then() -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.subscribe(NOT_KEPT)
        held.answers_pings = False
        assert not hasattr(await other.subscribe(NOT_KEPT), "error")
        await other.produce(NOT_KEPT)
        other.flow(1)
        other.publish(0)
        await other.messages(1)

    on_stage(scenario)


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_a_producer_that_waits_to_be_alone_hears_that_its_topic_goes(topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(topic)
        waits = await client.produce(topic, 1, producer_access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not waits.producer_ready
        (served_now,) = stage.server.topics.open.values()
        await served_now.close()
        told = await client.next(Command.ERROR)
        assert told.message.request_id == waits.request_id
        assert told.message.error == ErrorCode.SERVICE_NOT_READY
        (connection,) = stage.server.connections
        assert connection.producers == {}

    on_stage(scenario)


def test_what_was_sent_to_a_topic_that_is_terminated_meanwhile_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await publish(client, 3)
        topic = served(stage)
        held = Held(stage.broker.ledgers.store, "/t")
        terminating = asyncio.ensure_future(topic.terminate())
        await until(lambda: held.waiting)
        for i in range(3, 6):
            client.publish(i)
        await until(lambda: topic.ledger.waiting == 3)
        held.let_go()
        last = await terminating
        assert last.entry_id == 2
        told = [await client.next(Command.SEND_ERROR) for _ in range(3)]
        assert [(t.message.sequence_id, t.message.error) for t in told] == [
            (i, ErrorCode.TOPIC_TERMINATED) for i in range(3, 6)
        ]
        (connection,) = stage.server.connections
        assert (connection.pending, topic.ledger.waiting, stage.backend.unconfirmed_bytes) == (0, 0, 0)

    on_stage(scenario)


# -- deduplication ----------------------------------------------------------------------------------------------------


def test_a_chunk_that_a_snapshot_has_given_up_can_be_sent_again() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        known = await Deduplication.recover(log, UNFINISHED_ENTRIES_MAX)
        chunk = entry_of(0, uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=2)
        assert known.judge("p", 0, 0, chunk) is Verdict.NEW
        known.stored("p", [(0, 0, 1, chunk, True)], Position(0, 0))
        assert known.judge("p", 0, 0, chunk) is Verdict.DUPLICATE
        for i in range(UNFINISHED_ENTRIES_MAX + 1):
            known.judge("q", i, i, None)
            known.stored("q", [(i, i, 1, b"", False)], Position(0, i + 1))
        known.snapshot(Position(0, UNFINISHED_ENTRIES_MAX + 1))
        assert known.judge("p", 0, 0, chunk) is Verdict.NEW

    on_brokers(scenario)


# -- opening ----------------------------------------------------------------------------------------------------------


def test_a_topic_whose_log_fails_while_it_is_opened_is_not_served() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        open_ledger, check_owned = stage.backend.open_ledger, stage.backend.check_owned
        opened: list[ManagedLedger] = []

        async def open_and_keep(name: TopicName, *, create: bool) -> ManagedLedger:
            opened.append(await open_ledger(name, create=create))
            return opened[-1]

        async def taken_meanwhile(name: TopicName) -> None:
            await check_owned(name)
            for log in opened:
                log.failed(Conflict("somebody else has it"))
            await asyncio.sleep(1)

        stage.backend.open_ledger = open_and_keep  # type: ignore[method-assign]
        stage.backend.check_owned = taken_meanwhile  # type: ignore[method-assign]
        assert (await client.subscribe(TOPIC)).error == ErrorCode.SERVICE_NOT_READY
        assert len(opened) == 1
        assert stage.server.topics.open == {}

    on_stage(scenario)


def test_a_topic_is_opened_anew_once_it_is_closed() -> None:
    """Else the ledger that is being closed is fenced, and what its cursors store on their way comes again."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        await publish(client, 6)
        found = await client.messages(6)
        topic = served(stage)
        client.ack(*found[2:])
        await until(lambda: topic.subscriptions["s"].cursor.backlog() == 2)
        held = Held(stage.broker.ledgers.store, "/s")
        closing = asyncio.ensure_future(stage.server.topics.unload(topic.name))
        again = asyncio.ensure_future(client.subscribe(TOPIC, kind=SHARED))
        twice = asyncio.ensure_future(stage.server.topics.unload(topic.name))
        await until(lambda: held.waiting)
        await asyncio.sleep(1)
        early = again.done(), twice.done()
        held.let_go()
        assert early == (False, False), "it is not closed yet, whoever closes it"
        assert await closing
        assert await twice
        assert not hasattr(await again, "error")
        client.flow(10)
        await asyncio.sleep(1)
        there = [m.message.message_id for m in await client.messages(2)]
        assert [(m.ledgerId, m.entryId) for m in there] == [
            (m.message.message_id.ledgerId, m.message.message_id.entryId) for m in found[:2]
        ]
        assert not [said for said in client.said if said.kind == Command.MESSAGE]

    on_stage(scenario)


def test_a_bundle_is_free_once_none_of_its_topics_is_being_opened() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        held = Held(stage.broker.ledgers.store, "/t")
        made = asyncio.ensure_future(client.produce(TOPIC))
        await until(lambda: held.waiting)
        stage.backend.owned = lambda _: False
        closing = asyncio.ensure_future(stage.server.topics.unload_all(lambda name: str(name) == TOPIC))
        others = asyncio.ensure_future(stage.server.topics.unload_all(lambda name: str(name) != TOPIC))
        await others
        await asyncio.sleep(1)
        early = closing.done()
        held.let_go()
        assert not early, "another owner would be in the way of what is being opened here, and that of it"
        assert (await made).error == ErrorCode.SERVICE_NOT_READY
        await closing
        assert stage.server.topics.open == {}

    on_stage(scenario)
