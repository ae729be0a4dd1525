"""Keys of broker.conf that topics, producers and consumers are held to, from the file to what a client is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.broker.cluster.policies import merged, rules_of
from bkdaemon.broker.config import BrokerConfig, load_config
from bkdaemon.broker.server_limits import ServerLimits
from bkdaemon.broker.topic import Topic

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.broker.raw import RawClient, Stage, on_stage

TOPIC = "persistent://public/default/t"
POLICIES = "persistent://public/default/__change_events"
SHARED = 1


def conf(folder: Path, **keys: object) -> BrokerConfig:
    """What is read from a file with these keys, none of which is passed over."""
    path = folder / "broker.conf"
    path.write_text("clusterName=c\n" + "".join(f"{key}={value}\n" for key, value in keys.items()))
    config = load_config(path)
    assert config.unknown == {}
    return config


def served(stage: Stage) -> Topic:
    (topic,) = (t for t in stage.server.topics.open.values() if t.persistent)
    assert isinstance(topic, Topic)
    return topic


@pytest.mark.parametrize("topic", [TOPIC, "non-persistent://public/default/t"])
def test_producers_and_consumers_of_one_address(tmp_path: Path, topic: str) -> None:
    config = conf(tmp_path, maxSameAddressProducersPerTopic=2, maxSameAddressConsumersPerTopic=2)

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


def test_topics_of_the_system_have_any_number_of_clients(tmp_path: Path) -> None:
    config = conf(
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


def test_names_of_new_subscriptions_are_verified_where_that_is_asked(tmp_path: Path) -> None:
    config = conf(tmp_path, strictlyVerifySubscriptionName="true")
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


def test_names_of_subscriptions_that_are_made_by_rest() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        path = "/admin/v2/persistent/public/default/t/subscription"
        answer = await admin.ask("PUT", f"{path}/a%20b")
        words = "Please let the subscription only contains '/w(a-zA-Z_0-9)' or '_', the current value is a b"
        assert (answer.status, answer.body["reason"]) == (400, words)
        await admin.ok("PUT", f"{path}/a-b")

    administering(scenario, strict_subscription_names=True)


async def answer_to(client: RawClient, sequence_id: int, delay_ms: int) -> tuple[object, str]:
    """What a producer is told of a message that is delayed from its publish time, which is 1."""
    client.publish(sequence_id, deliver_at_time=1 + delay_ms)
    said = await client.next(Command.SEND_RECEIPT, Command.SEND_ERROR)
    return getattr(said.message, "error", None), getattr(said.message, "message", "")


def test_messages_are_not_delayed_for_longer_than_allowed(tmp_path: Path) -> None:
    config = conf(tmp_path, delayedDeliveryMaxDelayInMillis=5000)
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


def test_what_a_topic_says_of_delays_leaves_the_rest_to_its_namespace(tmp_path: Path) -> None:
    namespace = {"delayed_delivery_policies": {"active": True, "tickTime": 77, "maxDeliveryDelayInMillis": 88}}
    found = merged(namespace, {"delayedDeliveryEnabled": False, "delayedDeliveryTickTimeMillis": None})
    rules = rules_of(conf(tmp_path), found, TopicName.parse(TOPIC))
    assert (rules.delayed_delivery, rules.delayed_tick_ms, rules.delay_max_ms) == (False, 77, 88)


@pytest.mark.parametrize("strict", ["false", "true"])
def test_delayed_messages_come_a_tick_early_unless_they_must_not(tmp_path: Path, strict: str) -> None:
    """As getCutoffTime: what is read goes out up to a tick early, with the first that is due or at once."""
    config = conf(tmp_path, isDelayedDeliveryDeliverAtTimeStrict=strict, delayedDeliveryTickTimeMillis=4000)

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


def test_a_snapshot_keeps_so_many_names_of_producers(tmp_path: Path) -> None:
    config = conf(tmp_path, brokerDeduplicationEnabled="true", brokerDeduplicationMaxNumberOfProducers=2)

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


def test_patterns_are_left_to_clients_where_that_is_asked(tmp_path: Path) -> None:
    config = conf(tmp_path, enableBrokerSideSubscriptionPatternEvaluation="false")

    async def scenario(stage: Stage) -> None:
        stage.server.limits = ServerLimits.of(config)
        client = await stage.client(connect=False)
        client.send(Command.CONNECT, client_version="raw", protocol_version=20)
        connected = (await client.next(Command.CONNECTED)).message
        assert not connected.feature_flags.supports_topic_watchers
        await client.produce(TOPIC)
        asked = {"namespace": "public/default", "topics_pattern": "public/default/z.*"}
        listed = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, mode=0, **asked
        )
        assert (listed.filtered, list(listed.topics)) == (False, [TOPIC])
        told = await client.ask(Command.WATCH_TOPIC_LIST, Command.ERROR, watcher_id=1, **asked)
        words = "Unable to create topic list watcher: Evaluating subscription patterns is disabled."
        assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, words)

    on_stage(scenario)
