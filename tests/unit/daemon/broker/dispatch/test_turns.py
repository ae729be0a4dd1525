"""Consumers of one connection that are behind: fed in turns where that is faster, never kept waiting; virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

import pytest
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.dispatch.turns import TURN_S, Phase

from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import split_entry
from tests.broker.raw import RawClient, Said, Stage, on_stage

TOPIC: Final = "persistent://public/default/t"
SHARED, KEY_SHARED = 1, 3
BATCH: Final = 250
QUEUE: Final = 1_000
TICK_S: Final = 0.0005
CONSUMERS: Final = 4


class Process:
    """A client process with one thread for each consumer; alone a thread works off so many messages a tick.

    Where they have one lock, several that have something to do get a quarter of that together.
    """

    def __init__(self, client: RawClient, *, lock: bool, per_tick: int) -> None:
        self.client = client
        self.lock = lock
        self.per_tick = per_tick
        self.queues: list[deque[Said]] = [deque() for _ in range(CONSUMERS)]
        self.left = [0] * CONSUMERS  # messages of the queue's first entry that are worked off
        self.asked = [0] * CONSUMERS
        self.done: list[tuple[int, int]] = []
        self.stopped: set[int] = set()

    async def subscribe(self) -> None:
        for consumer_id in range(CONSUMERS):
            await self.client.subscribe(TOPIC, kind=SHARED, consumer_id=consumer_id)
        for consumer_id in range(CONSUMERS):
            self.client.flow(QUEUE, consumer_id)

    async def consume(self, entries: int, ticks_max: int = 100_000) -> None:
        """Until so many entries are worked off in all."""
        for _ in range(ticks_max):
            if len(self.done) >= entries:
                return
            await asyncio.sleep(TICK_S)
            self._tick()
        raise AssertionError(f"{len(self.done)} of {entries} entries came")

    def _tick(self) -> None:
        for said in self.client.said:
            if said.kind == Command.MESSAGE:
                self.queues[said.message.consumer_id].append(said)
        self.client.said[:] = [said for said in self.client.said if said.kind != Command.MESSAGE]
        at_work = [k for k in range(CONSUMERS) if self.queues[k] and k not in self.stopped]
        share = self.per_tick // 4 // len(at_work) if self.lock and len(at_work) > 1 else self.per_tick
        for consumer_id in at_work:
            self._work(consumer_id, share)

    def _work(self, consumer_id: int, messages: int) -> None:
        queue = self.queues[consumer_id]
        while messages and queue:
            size = split_entry(queue[0].entry)[0].num_messages_in_batch
            took = min(messages, size - self.left[consumer_id])
            messages -= took
            self.left[consumer_id] += took
            self.asked[consumer_id] += took
            if self.left[consumer_id] == size:
                self.left[consumer_id] = 0
                said = queue.popleft()
                self.client.ack(said, consumer_id=consumer_id)
                place = said.message.message_id
                self.done.append((place.ledgerId, place.entryId))
            if self.asked[consumer_id] >= QUEUE // 2:
                self.client.flow(self.asked[consumer_id], consumer_id)
                self.asked[consumer_id] = 0


async def fill(stage: Stage, entries: int, sizes: Sequence[int] = (BATCH,)) -> None:
    client = await stage.client()
    await client.produce(TOPIC)
    for start in range(0, entries, 500):
        for number in range(start, start + 500):
            client.publish(number, b"", num_messages_in_batch=sizes[number % len(sizes)])
        for _ in range(500):
            await client.next(Command.SEND_RECEIPT)
    client.cut()


def dispatcher(stage: Stage) -> Shared:
    (topic,) = stage.server.topics.open.values()
    found = topic.subscriptions["s"].dispatcher
    assert isinstance(found, Shared)
    return found


@pytest.mark.parametrize("lock", [True, False])
def test_the_faster_way_is_kept(lock: bool) -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 3_000)
        process = Process(await stage.client(), lock=lock, per_tick=100)
        await process.subscribe()
        await process.consume(2_000)
        (turns,) = dispatcher(stage)._turns.values()
        assert turns.phase is Phase.KEPT
        assert turns.taken is lock
        await process.consume(3_000)
        assert len(set(process.done)) == len(process.done) == 3_000

    on_stage(scenario)


def test_in_turns_one_consumer_has_work_at_a_time() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 3_000)
        process = Process(await stage.client(), lock=True, per_tick=100)
        await process.subscribe()
        await process.consume(2_000)
        before = [c.messages_out for c in dispatcher(stage).consumers]
        together = 0
        for entries in range(2_000, 2_800):
            await process.consume(entries)
            together += sum(bool(queue) for queue in process.queues) > 2
        assert together < 80
        after = [c.messages_out for c in dispatcher(stage).consumers]
        fed = [b - a for a, b in zip(before, after, strict=True)]
        assert min(fed) > 0.8 * max(fed)  # and everybody's turn comes

    on_stage(scenario)


def test_everybodys_turn_comes_with_batches_of_any_size() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 5_000, sizes=(40, 400, 130, 330, 20, 80))
        process = Process(await stage.client(), lock=True, per_tick=100)
        await process.subscribe()
        await process.consume(3_000)
        (turns,) = dispatcher(stage)._turns.values()
        assert turns.taken
        before = [c.messages_out for c in dispatcher(stage).consumers]
        await process.consume(4_800)
        fed = [c.messages_out - b for c, b in zip(dispatcher(stage).consumers, before, strict=True)]
        assert min(fed) > 0.5 * max(fed)

    on_stage(scenario)


def test_who_waits_for_a_turn_does_not_look_all_the_time_because_another_process_asks_for_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 3_000)
        idle = Process(await stage.client(), lock=True, per_tick=100)
        process = Process(await stage.client(), lock=True, per_tick=100)
        await idle.subscribe()
        await process.subscribe()
        idle.stopped = set(range(CONSUMERS))
        await process.consume(2_000)
        found = dispatcher(stage)
        steps, step = [0], found._step

        async def counted() -> bool:
            steps[0] += 1
            return await step()

        found._step = counted  # type: ignore[method-assign]
        assert any(turns.taken for turns in found._turns.values())
        await process.consume(2_800)
        assert steps[0] < 5 * 800

    on_stage(scenario)


def test_a_consumer_that_stops_in_its_turn_holds_the_others_up_for_one_turn_only() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 3_000)
        process = Process(await stage.client(), lock=True, per_tick=100)
        await process.subscribe()
        await process.consume(2_000)
        process.stopped = {0, 1, 2}
        loop = asyncio.get_running_loop()
        began_s, begun_with = loop.time(), len(process.done)
        held = sum(len(process.queues[k]) for k in process.stopped)
        await process.consume(begun_with + 400)
        turns_max = 400 * BATCH // (QUEUE // 2) + 3  # of the one that goes on, and what the others were sent
        assert loop.time() - began_s < turns_max * (2 * TURN_S)
        assert sum(len(process.queues[k]) for k in process.stopped) <= held + 3 * (QUEUE // BATCH + 1)
        process.stopped = set()
        await process.consume(3_000)
        assert len(set(process.done)) == len(process.done) == 3_000

    on_stage(scenario)


def test_without_a_backlog_nobody_takes_turns() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 1_000)
        process = Process(await stage.client(), lock=True, per_tick=100)
        await process.subscribe()
        await process.consume(700)
        assert dispatcher(stage)._turns
        await process.consume(1_000)
        await asyncio.sleep(1)
        assert not dispatcher(stage)._turns
        client = await stage.client()
        await client.produce(TOPIC)
        for number in range(8):
            client.publish(10_000 + number, b"", num_messages_in_batch=BATCH)
            await client.next(Command.SEND_RECEIPT)
        await process.consume(1_008)
        assert not dispatcher(stage)._turns

    on_stage(scenario)


def test_consumers_with_connections_of_their_own_are_fed_all_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 1_000)
        clients = [await stage.client() for _ in range(CONSUMERS)]
        for client in clients:
            await client.subscribe(TOPIC, kind=SHARED)
        for _ in range(30):
            assert not dispatcher(stage)._turns
            for client in clients:
                client.flow(QUEUE // 2)
            await asyncio.sleep(0.005)
        assert not dispatcher(stage)._turns
        assert all(len(client.said) >= 30 * QUEUE // 2 // BATCH for client in clients)

    on_stage(scenario)


def test_keys_know_no_turns() -> None:
    async def scenario(stage: Stage) -> None:
        await fill(stage, 1_000)
        client = await stage.client()
        for consumer_id in range(2):
            await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=consumer_id)
        for _ in range(40):
            for consumer_id in range(2):
                client.flow(QUEUE // 2, consumer_id)
            await asyncio.sleep(0.005)
            assert not dispatcher(stage)._turns
        assert len(client.said) >= 40 * QUEUE // 2 // BATCH

    on_stage(scenario)
