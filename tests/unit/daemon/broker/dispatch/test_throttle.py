"""Rates: held to on average, no faster than one period's worth at once, and nothing piles up while somebody waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.broker.dispatch.throttle import Bucket, Subscribing, limited, readable, take, wait_s
from bkdaemon.broker.rules import Rate, TopicRules
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.protocol.broker import Sends
from tests.broker.admin import Admin, administering
from tests.broker.raw import RawClient, Stage, on_stage

TOPIC = "persistent://public/default/t"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
PERMITS = 10_000
RATE = 100


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def elapsed() -> float:
    return asyncio.get_running_loop().time()


# -- buckets ----------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 50),
    st.sampled_from([1.0, 5.0]),
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 20)), max_size=60),
)
def test_what_passes_is_never_more_than_the_rate_a_period_and_one_entry(
    rate: int, period_s: float, tries: list[tuple[float, int]]
) -> None:
    clock = Clock()
    bucket = Bucket(Rate(rate, 0, period_s), clock)
    passed = longest = 0
    for pause_s, messages in tries:
        clock.now += pause_s
        if not bucket.wait_s:
            bucket.spend(messages, 0)
            passed += messages
            longest = max(longest, messages)
        assert passed <= rate * (1 + clock.now / period_s) + longest + 1e-6


@given(st.integers(1, 50), st.integers(1, 200))
def test_after_the_wait_something_passes(rate: int, spent: int) -> None:
    clock = Clock()
    bucket = Bucket(Rate(0, rate), clock)
    bucket.spend(1, spent)
    clock.now += bucket.wait_s + 1e-9
    assert bucket.wait_s == pytest.approx(0, abs=1e-6)


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    clock = Clock()
    clock.now = 100.0
    bucket = Bucket(Rate(10), clock)
    clock.now = 10.0
    assert bucket.left[0] == 10


def test_a_bucket_keeps_its_debt_while_its_rate_stays() -> None:
    clock = Clock()
    first = limited((), (Rate(10), Rate(), None), clock)
    assert len(first) == 1
    first[0].spend(100, 0)
    assert limited(first, (Rate(10),), clock) == first
    assert limited(first, (Rate(20),), clock)[0].wait_s == 0
    assert wait_s(first) == 1.0  # then it is looked again: the rate may be another
    assert readable(first, 100, 5000, 1.0) == (1, 5000)


def test_each_consumer_subscribes_so_often_a_period() -> None:
    clock = Clock()
    subscribing, rate = Subscribing(clock), Rate(2, 0, 30)
    assert [subscribing.admit(rate, "a") for _ in range(3)] == [True, True, False]
    assert subscribing.admit(rate, "b")
    clock.now = 30.0
    assert subscribing.admit(rate, "a")
    assert all(subscribing.admit(Rate(), "a") for _ in range(9))


# -- producers --------------------------------------------------------------------------------------------------------


async def receipts(client: RawClient, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found.append((await client.next(Command.SEND_RECEIPT)).message.sequence_id)
    return found


@pytest.mark.parametrize("rate", [Rate(RATE), Rate(0, 150 * RATE)])
@pytest.mark.parametrize("topic", [TOPIC, TOPIC.replace("persistent", "non-persistent")])
def test_a_producer_is_held_to_its_rate_in_order(rate: Rate, topic: str) -> None:
    async def scenario(stage: Stage) -> None:
        client, other = await stage.client(), await stage.client()
        await client.produce(topic)
        for i in range(10 * RATE):
            client.publish(i, bytes(80))
        await asyncio.sleep(0.1)
        (connection,) = (c for c in stage.server.connections if c.producers)
        assert connection._held
        assert not connection._reading
        started = elapsed()
        assert await receipts(client, 10 * RATE) == list(range(10 * RATE))
        assert 5 <= elapsed() - started <= 15
        assert connection._reading
        assert not connection._held
        other.send(Command.PING)  # nobody else was held
        assert (await other.next(Command.PONG)).kind == Command.PONG

    on_stage(scenario, rules=TopicRules(publish_rate=rate))


def test_a_connection_that_ends_while_it_is_held_leaves_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for i in range(10 * RATE):
            client.publish(i)
        await client.until(lambda: client.said)
        (connection,) = stage.server.connections
        client.cut()
        await asyncio.sleep(1)
        assert not stage.server.connections
        assert not connection._held
        await asyncio.sleep(20)
        (topic,) = stage.server.topics.open.values()
        assert topic.messages_in <= 2 * RATE

    on_stage(scenario, rules=TopicRules(publish_rate=Rate(RATE)))


def test_what_passes_and_what_waits_have_their_own_bytes() -> None:
    sends = [(number, 0, 1, bytes(10 + number), False) for number in range(5)]
    event = Sends(7, sends, sum(len(send[3]) for send in sends))
    passing, waiting = take((Bucket(Rate(2), Clock()),), event)
    assert passing == Sends(7, sends[:2], 10 + 11)
    assert waiting == Sends(7, sends[2:], 12 + 13 + 14)


@pytest.mark.parametrize("name", [TOPIC, TOPIC.replace("persistent", "non-persistent")])
def test_who_waits_goes_on_when_the_rate_is_taken_back(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(name)
        for i in range(1000):
            client.publish(i)
        await asyncio.sleep(0.1)
        (topic,) = stage.server.topics.open.values()
        assert topic.limits.publish_waits > 0
        one_message = topic.bytes_in
        assert topic.messages_in == 1
        topic.rules = replace(topic.rules, publish_rate=Rate())
        topic.apply_rates(stage.server.topics.limits)
        started = elapsed()
        await receipts(client, 1000)
        assert elapsed() - started <= 2
        assert topic.messages_in == 1000
        assert topic.bytes_in == 1000 * one_message + 872  # numbers from 128 on take a byte more

    on_stage(scenario, rules=TopicRules(publish_rate=Rate(1)))


# -- consumers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@pytest.mark.parametrize(
    "rules",
    [
        TopicRules(dispatch_rate=Rate(RATE)),
        TopicRules(subscription_rate=Rate(RATE)),
        TopicRules(subscription_rate=Rate(1), subscription_rates={"s": Rate(RATE)}),
        TopicRules(dispatch_rate=Rate(RATE * 1000), subscription_rate=Rate(0, RATE * 150)),
    ],
)
def test_consumers_are_sent_messages_at_the_rate(kind: int, rules: TopicRules) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind)
        for i in range(10 * RATE):
            client.publish(i, bytes(80), partition_key=f"k{i % 7}")
        await receipts(client, 10 * RATE)
        client.flow(PERMITS)
        started = elapsed()
        found = await client.messages(10 * RATE)
        assert len({said.message.message_id.entryId for said in found}) == 10 * RATE
        assert 5 <= elapsed() - started <= 15

    on_stage(scenario, rules=rules)


def test_two_subscriptions_share_the_rate_of_their_topic() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        for number, name in enumerate(("a", "b")):
            await client.subscribe(TOPIC, name, consumer_id=number)
            client.flow(PERMITS, number)
        started = elapsed()
        for i in range(5 * RATE):
            client.publish(i)
        await client.messages(10 * RATE)
        assert 8 <= elapsed() - started <= 12

    on_stage(scenario, rules=TopicRules(dispatch_rate=Rate(RATE)))


def test_a_consumer_that_comes_too_often_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.subscribe(TOPIC, consumer_name="c")
        await client.ask(Command.CLOSE_CONSUMER, Command.SUCCESS, consumer_id=0)
        refused = await client.subscribe(TOPIC, consumer_name="c")
        assert refused.error == ErrorCode.NOT_ALLOWED
        assert "rate" in refused.message

    on_stage(scenario, rules=TopicRules(subscribe_rate=Rate(1, 0, 30)))


# -- policies ---------------------------------------------------------------------------------------------------------

NAMESPACE = "/admin/v2/namespaces/public/default"
PATH = "/admin/v2/persistent/public/default/t"
DISPATCH = {
    "dispatchThrottlingRateInMsg": 7,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 0,
}


def test_rates_are_stored_told_and_held_to() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        await admin.ok("PUT", f"{PATH}/subscription/s", {"ledgerId": -1, "entryId": -1})
        subscription = topic.subscriptions["s"]

        def rates() -> Any:
            return [b.rate.messages for b in topic.limits.publish], [
                b.rate.messages for b in subscription.dispatch_limits
            ]

        assert rates() == ([], [])
        for path in ("publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"):
            assert (await admin.ask("GET", f"{NAMESPACE}/{path}")).data == b""
        await admin.ok("POST", f"{NAMESPACE}/publishRate", {"publishThrottlingRateInMsg": 5})
        told = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
        assert await admin.ok("GET", f"{NAMESPACE}/publishRate") == told
        policies = await admin.ok("GET", NAMESPACE)
        assert policies["publishMaxMessageRate"] == {"lab": told}
        await admin.ok("POST", f"{NAMESPACE}/dispatchRate", {"dispatchThrottlingRateInMsg": 7})
        assert await admin.ok("GET", f"{NAMESPACE}/dispatchRate") == DISPATCH
        assert (await admin.ok("GET", NAMESPACE))["clusterDispatchRate"] == {"lab": DISPATCH}
        await admin.ok("POST", f"{NAMESPACE}/subscriptionDispatchRate", {"dispatchThrottlingRateInMsg": 9})
        await admin.ok("POST", f"{NAMESPACE}/subscribeRate", {"subscribeThrottlingRatePerConsumer": 3})
        assert rates() == ([5], [9, 7])
        assert topic.rules.subscribe_rate == Rate(3, 0, 30)
        # a topic's own, and those of its subscriptions, come first
        await admin.ok("POST", f"{PATH}/publishRate", {"publishThrottlingRateInMsg": 6})
        await admin.ok("POST", f"{PATH}/dispatchRate", {"dispatchThrottlingRateInMsg": 8})
        await admin.ok("POST", f"{PATH}/s/dispatchRate", {"dispatchThrottlingRateInMsg": 10})
        assert rates() == ([6], [10, 8])
        assert (await admin.ok("GET", f"{PATH}/s/dispatchRate"))["dispatchThrottlingRateInMsg"] == 10
        assert (await admin.ok("GET", f"{PATH}/o/dispatchRate?applied=true"))["dispatchThrottlingRateInMsg"] == 9
        assert (await admin.ask("GET", f"{PATH}/o/dispatchRate")).data == b""
        for path in ("publishRate", "dispatchRate", "s/dispatchRate"):
            await admin.ok("DELETE", f"{PATH}/{path}")
        assert rates() == ([5], [9, 7])
        assert (await admin.ok("GET", f"{PATH}/dispatchRate?applied=true"))["dispatchThrottlingRateInMsg"] == 7
        for path in ("publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"):
            await admin.ok("DELETE", f"{NAMESPACE}/{path}")
        assert rates() == ([], [])
        for wrong in ({"publishThrottlingRateInMsg": "many"}, ["x"], 5):
            assert (await admin.ask("POST", f"{NAMESPACE}/publishRate", wrong)).status == 400

    administering(scenario)


def test_rates_of_broker_conf() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        await admin.ok("PUT", f"{PATH}/subscription/s", {"ledgerId": -1, "entryId": -1})
        assert [b.rate.size for b in topic.limits.publish] == [1000, 9000]
        assert [b.rate.messages for b in topic.subscriptions["s"].dispatch_limits] == [3, 2, 1]

    administering(
        scenario,
        publish_bytes=1000,
        broker_publish_bytes=9000,
        broker_dispatch_messages=1,
        topic_dispatch_messages=2,
        subscription_dispatch_messages=3,
    )


def test_a_rate_relative_to_what_is_published_grows_with_it() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        (topic,) = stage.server.topics.open.values()
        topic.apply_rates(stage.server.topics.limits, (50.0, 4000.0))
        assert [b.rate for b in topic.subscriptions["s"].dispatch_limits] == [Rate(RATE + 50, 0, 1)]

    on_stage(scenario, rules=TopicRules(dispatch_rate=Rate(RATE, 0, 1, True)))
