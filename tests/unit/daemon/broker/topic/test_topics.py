"""Opening, closing and unloading of topics, also at the same time, in virtual time."""

from __future__ import annotations

import asyncio

from bkdaemon.broker.rules import TopicRules

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.errors import Conflict
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.model.topic import TopicName
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import SHARED, TOPIC, open_topic, publish
from tests.unit.log.logs import until
from tests.unit.log.store_faults import HeldWrites


def test_a_missing_topic_is_not_found_without_auto_creation() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        assert (await client.produce(TOPIC)).error == ErrorCode.TOPIC_NOT_FOUND
        assert (await client.subscribe(TOPIC)).error == ErrorCode.TOPIC_NOT_FOUND
        stage.backend.owned = lambda topic: False
        assert (await client.produce(TOPIC)).error == ErrorCode.SERVICE_NOT_READY

    on_stage(scenario, rules=TopicRules(auto_create_topic=False))


def test_a_topic_whose_ledger_fails_while_it_is_opened_is_not_served() -> None:
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


def test_a_topic_is_opened_again_only_after_it_is_closed() -> None:
    """Else the ledger that is being closed is fenced, and what its cursors store on their way comes again."""

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        await publish(client, 0, 6)
        found = await client.messages(6)
        topic = open_topic(stage)
        client.ack(*found[2:])
        await until(lambda: topic.subscriptions["s"].cursor.backlog() == 2)
        held = HeldWrites(stage.broker.ledgers.store, "/s")
        closing = asyncio.ensure_future(stage.server.topics.unload(topic.name))
        again = asyncio.ensure_future(client.subscribe(TOPIC, kind=SHARED))
        twice = asyncio.ensure_future(stage.server.topics.unload(topic.name))
        await until(lambda: held.waiting)
        await asyncio.sleep(1)
        early = again.done(), twice.done()
        held.release()
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


def test_unloading_a_bundle_waits_for_its_topics_that_are_being_opened() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        held = HeldWrites(stage.broker.ledgers.store, "/t")
        made = asyncio.ensure_future(client.produce(TOPIC))
        await until(lambda: held.waiting)
        stage.backend.owned = lambda _: False
        closing = asyncio.ensure_future(stage.server.topics.unload_all(lambda name: str(name) == TOPIC))
        others = asyncio.ensure_future(stage.server.topics.unload_all(lambda name: str(name) != TOPIC))
        await others
        await asyncio.sleep(1)
        early = closing.done()
        held.release()
        assert not early, "another owner would be in the way of what is being opened here, and that of it"
        assert (await made).error == ErrorCode.SERVICE_NOT_READY
        await closing
        assert stage.server.topics.open == {}

    on_stage(scenario)
