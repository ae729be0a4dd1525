"""Rules of topics that keys of broker.conf set, and their effect on clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bkdaemon.broker.cluster.policies import rules_of
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.meta.policies import merged
from bkctl.model.topic import EARLIEST, TopicName
from tests.broker.admin import Admin, administering
from tests.broker.raw import RawClient, Stage, batch_of, entry_of, on_stage
from tests.unit.daemon.broker.keys import POLICIES, config_of_keys
from tests.unit.daemon.broker.rest.clients import TOPIC
from tests.unit.log.logs import until

NOT_KEPT = "non-persistent://public/default/t"
SHARED, KEY_SHARED = 1, 3


def served(stage: Stage) -> Topic:
    (topic,) = (t for t in stage.server.topics.open.values() if t.persistent)
    assert isinstance(topic, Topic)
    return topic


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_clients_above_the_limit_of_one_address_are_refused(tmp_path: Path, topic: str) -> None:
    config = config_of_keys(tmp_path, maxSameAddressProducersPerTopic=2, maxSameAddressConsumersPerTopic=2)

    async def scenario(stage: Stage) -> None:
        client, other = await stage.client(), await stage.client()
        for i in range(2):
            await client.produce(topic, i)
            await client.subscribe(topic, f"s{i}", SHARED, consumer_id=i)
        told = await other.produce(topic)
        words = f"Topic '{topic}' reached max same address producers limit"
        assert (told.error, told.message) == (ErrorCode.PRODUCER_BUSY, words)
        told = await other.subscribe(topic, "s0", SHARED)
        assert (told.error, told.message) == (
            ErrorCode.CONSUMER_BUSY,
            "Topic reached max same address consumers limit",
        )
        for connection in list(stage.server.connections)[:1]:
            connection.address = "192.0.2.1"
        assert not hasattr(await other.produce(topic), "error")
        assert not hasattr(await other.subscribe(topic, "s0", SHARED), "error")

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(topic)))


def test_system_topics_have_no_limits_of_clients(tmp_path: Path) -> None:
    config = config_of_keys(
        tmp_path,
        maxSameAddressProducersPerTopic=1,
        maxSameAddressConsumersPerTopic=1,
        maxProducersPerTopic=1,
        maxConsumersPerTopic=1,
        maxConsumersPerSubscription=1,
    )
    rules = rules_of(config, {}, TopicName.parse(POLICIES))
    limits = (rules.producers_max, rules.consumers_max, rules.consumers_per_subscription_max)
    assert limits == (0, 0, 0)
    assert (rules.same_address_producers_max, rules.same_address_consumers_max) == (0, 0)


def test_new_subscriptions_with_special_characters_are_refused_if_configured(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, strictlyVerifySubscriptionName="true")
    rules = rules_of(config, {}, TopicName.parse(TOPIC))

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        stage.backend.rules_now = rules_of(BrokerConfig(cluster="c"), {}, TopicName.parse(TOPIC))
        await client.subscribe(TOPIC, "was/there", SHARED)
        served(stage).rules = rules
        for i, name in enumerate(("a/b", "ü", "a b")):
            told = await client.subscribe(TOPIC, name, SHARED, consumer_id=i + 1)
            words = f"Please let the subscription only contains '/w(a-zA-Z_0-9)' or '_', the current value is {name}"
            assert (told.error, told.message) == (ErrorCode.PRODUCER_BUSY, words)
        for i, name in enumerate(("was/there", "a-=:._9")):
            assert not hasattr(await client.subscribe(TOPIC, name, SHARED, consumer_id=i + 7), "error")

    on_stage(scenario)


async def answer_to(client: RawClient, sequence_id: int, delay_ms: int) -> tuple[object, str]:
    """What a producer is told of a message that is delayed from its publish time, which is 1."""
    client.publish(sequence_id, deliver_at_time=1 + delay_ms)
    said = await client.next(Command.SEND_RECEIPT, Command.SEND_ERROR)
    return getattr(said.message, "error", None), getattr(said.message, "message", "")


def test_messages_delayed_longer_than_allowed_are_refused(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, delayedDeliveryMaxDelayInMillis=5000)
    topic = TopicName.parse(TOPIC)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        refused = ErrorCode.NOT_ALLOWED, "Exceeds max allowed delivery delay of 5000 milliseconds"
        assert await answer_to(client, 0, 5001) == refused
        assert (await answer_to(client, 1, 5000))[0] is None
        client.publish(2)
        await client.next(Command.SEND_RECEIPT)
        policies: dict[str, object] = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 7000}
        namespace = {"delayed_delivery_policies": policies}
        served(stage).rules = rules_of(config, namespace, topic)
        assert (await answer_to(client, 3, 7000))[0] is None
        assert (await answer_to(client, 4, 7001))[0] == ErrorCode.NOT_ALLOWED
        served(stage).rules = rules_of(config, merged(namespace, {"delayedDeliveryMaxDelayInMillis": 2000}), topic)
        assert (await answer_to(client, 5, 2001))[0] == ErrorCode.NOT_ALLOWED
        policies["active"] = False
        served(stage).rules = rules_of(config, namespace, topic)
        assert (await answer_to(client, 6, 9000))[0] is None

    on_stage(scenario, rules=rules_of(config, {}, topic))


def test_a_delay_policy_of_a_topic_leaves_other_fields_to_the_namespace(tmp_path: Path) -> None:
    namespace = {"delayed_delivery_policies": {"active": True, "tickTime": 77, "maxDeliveryDelayInMillis": 88}}
    found = merged(namespace, {"delayedDeliveryEnabled": False, "delayedDeliveryTickTimeMillis": None})
    rules = rules_of(config_of_keys(tmp_path), found, TopicName.parse(TOPIC))
    assert (rules.delayed_delivery, rules.delayed_tick_ms, rules.delay_max_ms) == (False, 77, 88)


@pytest.mark.parametrize("strict", ["false", "true"])
def test_delayed_messages_are_sent_a_tick_early_unless_strict(tmp_path: Path, strict: str) -> None:
    """As getCutoffTime: what is read goes out up to a tick early, with the first that is due or at once."""
    config = config_of_keys(tmp_path, isDelayedDeliveryDeliverAtTimeStrict=strict, delayedDeliveryTickTimeMillis=4000)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(100)
        now_ms = stage.server.now_ms()
        for i, delay_ms in enumerate((10_000, 13_000, 0)):
            client.publish(i, deliver_at_time=now_ms + delay_ms if delay_ms else 0)
        came: list[tuple[int, int]] = []
        while len(came) < 3:
            said = await client.next(Command.MESSAGE)
            came.append((said.message.message_id.entryId, stage.server.now_ms() - now_ms))
        assert [number for number, _ in came] == [2, 0, 1]
        times = dict(came)
        assert 10_000 <= times[0] < 10_100, "the timer is for the first one's time"
        if strict == "true":
            assert 14_000 <= times[1] < 14_100, "and rings no sooner than a tick after the last"
        else:
            assert times[1] == times[0]

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_a_snapshot_keeps_the_configured_number_of_producers(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, brokerDeduplicationEnabled="true", brokerDeduplicationMaxNumberOfProducers=2)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for i in range(4):
            await client.produce(TOPIC, i, producer_name=f"p{i}")
            client.publish(0, producer_id=i)
            await client.next(Command.SEND_RECEIPT)
        topic = served(stage)
        topic.snapshot()
        assert sorted(topic.ledger.cursors["pulsar.dedup"].longs) == ["p2", "p3"]

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_disabled_kinds_of_topics_are_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for i, (key, topic, other) in enumerate(
            (
                ("enablePersistentTopics", TOPIC, NOT_KEPT),
                ("enableNonPersistentTopics", NOT_KEPT, TOPIC),
            )
        ):
            config = config_of_keys(tmp_path, **{key: "false"})
            stage.backend.rules_now = rules_of(config, {}, TopicName.parse(topic))
            told = await client.produce(topic, 2 * i)
            assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, "Broker is unable to load persistent topic")
            stage.backend.rules_now = rules_of(config, {}, TopicName.parse(other))
            assert not hasattr(await client.produce(other, 2 * i + 1), "error")
            for name in list(stage.server.topics.open):
                await stage.server.topics.unload(name)

    on_stage(scenario)


async def seconds_for(client: RawClient, count: int) -> float:
    """How long it takes until so many messages have come."""
    began_s = asyncio.get_running_loop().time()
    await client.messages(count)
    return asyncio.get_running_loop().time() - began_s


def test_dispatch_rates_do_not_apply_to_subscriptions_without_backlog_if_configured(tmp_path: Path) -> None:
    keys = {"dispatchThrottlingRatePerSubscriptionInMsg": 10, "managedLedgerCursorBackloggedThreshold": 50}
    config = config_of_keys(tmp_path, dispatchThrottlingOnNonBacklogConsumerEnabled="false", **keys)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, "ahead", SHARED)
        client.flow(1000)
        for i in range(40):
            client.publish(i)
        assert await seconds_for(client, 40) < 1
        for i in range(20):
            client.publish(40 + i)
        await client.messages(20)
        await client.subscribe(TOPIC, "behind", SHARED, consumer_id=1)
        client.flow(1000, 1)
        assert await seconds_for(client, 60) > 4

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


@pytest.mark.parametrize("kind", [0, SHARED])
def test_a_batch_counts_as_one_message_if_configured(tmp_path: Path, kind: int) -> None:
    keys = {"dispatchThrottlingRatePerSubscriptionInMsg": 10}
    config = config_of_keys(tmp_path, dispatchThrottlingOnBatchMessageEnabled="true", **keys)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=kind)
        for i in range(9):
            client.send(Command.SEND, batch_of(i, [b"x"] * 10), producer_id=0, sequence_id=i, num_messages=10)
        for _ in range(9):
            await client.next(Command.SEND_RECEIPT)
        client.flow(1000)
        assert await seconds_for(client, 9) < 1

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_key_shared_can_be_disabled(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, subscriptionKeySharedEnable="false")

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.subscribe(TOPIC, kind=KEY_SHARED)
        assert (told.error, told.message) == (
            ErrorCode.NOT_ALLOWED,
            "Key_Shared subscription is disabled by broker.",
        )
        assert not hasattr(await client.subscribe(NOT_KEPT, kind=KEY_SHARED), "error")

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_redeliveries_are_not_counted_if_configured(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, subscriptionRedeliveryTrackerEnabled="false")

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(10)
        client.publish(0)
        (first,) = await client.messages(1)
        place = [first.message.message_id]
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=place)
        (again,) = await client.messages(1)
        assert again.message.redelivery_count == 0

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_producers_inactive_for_long_are_removed(tmp_path: Path) -> None:
    config = config_of_keys(
        tmp_path, brokerDeduplicationEnabled="true", brokerDeduplicationProducerInactivityTimeoutMinutes=9
    )
    minute_ms = 60_000
    inactive_ms = config.deduplication_inactive_minutes * minute_ms

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for i in range(3):
            await client.produce(TOPIC, i, producer_name=f"p{i}")
            client.publish(7, producer_id=i)
            await client.next(Command.SEND_RECEIPT)
        topic = served(stage)
        known = topic.deduplication
        assert known is not None
        topic.snapshot()
        for i in (1, 2):
            await client.ask(Command.CLOSE_PRODUCER, producer_id=i)
        for now_ms in range(0, 9 * minute_ms + 1, 3 * minute_ms):  # as upkeep looks
            known.forget_inactive(topic.producers.by_name, now_ms - inactive_ms, now_ms)
            if now_ms == 6 * minute_ms:  # it is back for a moment, between two looks
                await client.produce(TOPIC, 2, producer_name="p2")
                await client.ask(Command.CLOSE_PRODUCER, producer_id=2)
        assert [known.last(f"p{i}") for i in range(3)] == [7, 7, 7], "not longer than that"
        known.forget_inactive(topic.producers.by_name, 3 * minute_ms, 12 * minute_ms)
        assert [known.last(f"p{i}") for i in range(3)] == [7, -1, 7]
        assert sorted(topic.ledger.cursors["pulsar.dedup"].longs) == ["p0", "p2"]

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_messages_of_system_cursors_do_not_expire(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, additionalSystemCursorNames="mine, other")

    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        ours, users = [await topic.subscription(name, durable=True, initial=EARLIEST) for name in ("mine", "users")]
        topic.ledger.add_many([entry_of(0)])
        await until(lambda: topic.ledger.added == 1)
        await asyncio.sleep(70)
        await admin.service.upkeep.run()
        assert (ours.cursor.backlog(), users.cursor.backlog()) == (1, 0)
        ours.sent_before.size, users.sent_before.size = 5, 7
        path = "/admin/v2/persistent/public/default/t/stats"
        assert (await admin.ok("GET", path))["bytesOutInternalCounter"] == 5
        await topic.delete_subscription(ours)
        await topic.delete_subscription(users)
        assert (await admin.ok("GET", path))["bytesOutInternalCounter"] == 5

    administering(scenario, ttl_s=60, expiry_check_minutes=1, system_cursors=config.system_cursors)


@pytest.mark.parametrize(
    ("delays_s", "kept"),
    [([30] * 30, 12), ([30, 29.5] * 15, 12), ([30] * 5 + [20] + [30] * 24, 30), ([30] * 5 + [0] + [30] * 24, 29)],
    ids=["alike", "but for a tick", "one is sooner", "one waits for nothing"],
)
def test_reading_pauses_while_enough_messages_have_the_same_delay(
    tmp_path: Path, delays_s: list[float], kept: int
) -> None:
    keys = {"delayedDeliveryFixedDelayDetectionLookahead": 11, "dispatcherMaxReadBatchSize": 4}
    config = config_of_keys(tmp_path, **keys)

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        now_ms = stage.server.now_ms()
        for i, delay_s in enumerate(delays_s):
            client.publish(i, deliver_at_time=int(now_ms + delay_s * 1000) if delay_s else 0)
        for _ in delays_s:
            await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC, kind=SHARED)
        client.flow(100)
        await asyncio.sleep(10)
        dispatcher = served(stage).subscriptions["s"].dispatcher
        assert isinstance(dispatcher, Shared)
        assert dispatcher.waiting == (kept, 0)
        assert len(await client.messages(30)) == 30
        assert dispatcher.waiting == (0, 0)

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_schemas_of_system_topics_have_a_compatibility_strategy_of_their_own(tmp_path: Path) -> None:
    namespace = {"schema_compatibility_strategy": "BACKWARD"}
    for text, name, expected in (
        ("FORWARD", POLICIES, "FORWARD"),
        ("", POLICIES, "ALWAYS_COMPATIBLE"),
        ("FORWARD", TOPIC, "BACKWARD"),
    ):
        config = config_of_keys(tmp_path, systemTopicSchemaCompatibilityStrategy=text)
        assert rules_of(config, namespace, TopicName.parse(name)).schema_compatibility == expected
