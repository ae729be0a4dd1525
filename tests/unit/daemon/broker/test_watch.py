"""Stalled subscriptions and ledgers are found, logged with their state, counted, and woken if a wake-up was lost."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.broker.dispatch.base import RETRY_S, Dispatcher
from bkdaemon.broker.dispatch.throttle import Bucket
from bkdaemon.broker.rules import Rate
from bkdaemon.broker.watch import STALL_S, WOKEN, Watch

from bkctl.codec.pulsar import Command
from bkctl.log.managed_ledger import State
from tests.broker.process_log import dispatchers_woken
from tests.broker.raw import RawClient, Stage, on_stage
from tests.broker.scenarios import take_messages
from tests.unit.log.logs import until

TOPIC = "persistent://public/default/t"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)


def topic_of(stage: Stage) -> Any:
    (topic,) = stage.server.topics.open.values()
    return topic


def dispatcher_of(stage: Stage) -> Any:
    return topic_of(stage).subscriptions["s"].dispatcher


async def look(stage: Stage, watch: Watch, seconds: float = STALL_S) -> dict[str, int]:
    """Check twice, so many seconds apart; return the number of stalls by kind, without zeros."""
    for pause_s in (0, seconds):
        await asyncio.sleep(pause_s)
        watch.check(stage.server.topics.open.values(), asyncio.get_running_loop().time())
    return {kind: count for kind, count in watch.stalls.items() if count}


async def received(client: RawClient, count: int) -> list[bytes]:
    return [said.entry for said in await client.messages(count)]


async def filled(stage: Stage, kind: int, count: int = 5) -> RawClient:
    client = await stage.client()
    await client.produce(TOPIC)
    await client.subscribe(TOPIC, kind=kind)
    for i in range(count):
        client.publish(i, partition_key=f"k{i}")
    for _ in range(count):
        await client.next(Command.SEND_RECEIPT)
    return client


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
def test_a_dispatcher_whose_wake_up_was_lost_is_logged_and_woken(
    kind: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        client, watch = await filled(stage, kind), Watch()
        await asyncio.sleep(2)  # Failover waits a second before the active consumer is sent anything
        with monkeypatch.context() as broken:
            broken.setattr(Dispatcher, "wake", lambda self: None)
            client.flow(10)
            await asyncio.sleep(1)
        assert dispatcher_of(stage).could_send
        assert await look(stage, watch, STALL_S / 2) == {}
        assert take_messages(client) == []
        with caplog.at_level(logging.WARNING):
            assert await look(stage, watch, STALL_S / 2) == {"asleep": 1}
        (told,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith(WOKEN)]
        for part in (f"{TOPIC} s", "permits 10", "work: none", "backlog 5", "writable True"):
            assert part in told
        assert watch.still == 1
        assert len(await received(client, 5)) == 5
        assert not dispatcher_of(stage).could_send
        assert await look(stage, watch) == {"asleep": 1}
        assert watch.still == 0

    on_stage(scenario)


def test_a_read_that_does_not_end_is_logged_once_and_not_disturbed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        client, watch = await filled(stage, EXCLUSIVE), Watch()
        log = topic_of(stage).ledger
        read, goes_on = log.read_on, asyncio.Event()

        async def waits(*where: Any) -> Any:
            await goes_on.wait()
            return await read(*where)

        log.read_on = waits
        client.flow(10)
        await asyncio.sleep(1)
        assert await look(stage, watch) == {"reading": 1}
        assert await look(stage, watch) == {"reading": 1}  # logged once
        (told,) = [record.getMessage() for record in caplog.records if "reads stalled" in record.getMessage()]
        assert "_run" in told
        assert "> waits:" in told
        goes_on.set()
        assert len(await received(client, 5)) == 5

    on_stage(scenario)


def test_a_subscription_without_permits_or_delayed_by_a_rate_is_not_stalled() -> None:
    async def scenario(stage: Stage) -> None:
        client, watch = await filled(stage, EXCLUSIVE), Watch()
        assert await look(stage, watch) == {}  # no permits
        bucket = Bucket(Rate(1, 0, 1000), asyncio.get_running_loop().time)
        bucket.spend(5, 0)
        topic_of(stage).subscriptions["s"].dispatch_limits = (bucket,)
        client.flow(3)
        assert await look(stage, watch) == {}
        topic_of(stage).subscriptions["s"].dispatch_limits = ()
        assert len(await received(client, 3)) == 3
        assert await look(stage, watch) == {}
        client.flow(10)
        assert len(await received(client, 2)) == 2
        assert await look(stage, watch) == {}  # nothing is left

    on_stage(scenario)


def test_keys_that_another_consumer_holds_are_not_stalled() -> None:
    async def scenario(stage: Stage) -> None:
        client, watch = await filled(stage, KEY_SHARED, 20), Watch()
        client.flow(20)
        assert len(await received(client, 20)) == 20  # all keys are held, by the first
        await client.subscribe(TOPIC, kind=KEY_SHARED, consumer_id=1)
        client.flow(100, 1)
        for i in range(20, 40):
            client.publish(i, partition_key=f"k{i - 20}")
        await asyncio.sleep(1)
        assert await look(stage, watch) == {}

    on_stage(scenario)


def test_adds_that_are_not_stored_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        client, watch = await filled(stage, EXCLUSIVE), Watch()
        topic_of(stage).ledger.state = State.SWITCHING  # no task completes it
        client.publish(5)
        await asyncio.sleep(1)
        assert await look(stage, watch) == {"adding": 1}
        assert any("1 pending adds, the log is switching" in record.getMessage() for record in caplog.records)
        topic_of(stage).ledger.state = State.OPEN

    on_stage(scenario)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@pytest.mark.parametrize("again", [False, True])
def test_an_unexpected_exception_of_a_read_delays_deliveries_and_loses_none(kind: int, again: bool) -> None:
    """Such an exception once ended the deliveries until the next wake-up."""

    async def scenario(stage: Stage) -> None:
        client = await filled(stage, kind)
        if again:  # what comes back is read again
            client.flow(5)
            await client.messages(5)
            client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0)
            await asyncio.sleep(0.1)
        log = topic_of(stage).ledger
        read, left = log.read_on, [2]

        async def breaks(*where: Any) -> Any:
            if left[0]:
                left[0] -= 1
                await asyncio.sleep(0)
                raise KeyError("a bug")
            return await read(*where)

        log.read_on = breaks
        began = asyncio.get_running_loop().time()
        client.flow(10)
        assert len(await received(client, 5)) == 5
        assert left == [0]
        assert asyncio.get_running_loop().time() - began < 3 * RETRY_S

    on_stage(scenario)


def test_an_unexpected_exception_between_two_ledgers_closes_the_log() -> None:
    async def scenario(stage: Stage) -> None:
        client = await filled(stage, EXCLUSIVE)
        topic = topic_of(stage)

        async def breaks() -> None:
            raise KeyError("a bug")

        topic.ledger._next_ledger = breaks
        topic.ledger._switch()
        client.publish(5)
        await client.next(Command.CLOSE_PRODUCER)  # and comes back, where the log is opened anew
        await until(lambda: topic.closed)
        assert topic.ledger.state is State.FAILED or topic.ledger.state is State.CLOSED
        del topic.ledger._next_ledger
        await client.produce(TOPIC, producer_id=1)
        client.publish(0, producer_id=1)
        await client.next(Command.SEND_RECEIPT)

    on_stage(scenario)


def test_a_woken_dispatcher_is_found_in_the_log_of_a_broker(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text(f"INFO ready\nERROR {WOKEN} after 10 s or more, which is a bug: t s\nWARNING reads stalled: t s\n")
    assert dispatchers_woken(log) == [f"ERROR {WOKEN} after 10 s or more, which is a bug: t s"]
    assert dispatchers_woken(tmp_path / "none.log") == []
