"""Keys of broker.conf that topics, producers and consumers are held to, from the file to what a client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from pathlib import Path

import pytest
from bkdaemon.broker.cluster.bootstrap import take_namespaces
from bkdaemon.broker.cluster.policies import rules_of
from bkdaemon.broker.config import BrokerConfig, load_config
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.protocol.server import BrokerServer
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.topic.sent import Flow
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.errors import UsageError
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.meta.policies import merged
from bkctl.model.bundle import hash_of
from bkctl.model.topic import EARLIEST, TopicName
from bkctl.world import World
from tests.broker.admin import Admin, administering
from tests.broker.backend import SoleBackend
from tests.broker.raw import PORT, RawClient, Stage, batch_of, entry_of, on_stage
from tests.unit.log.logs import Broker, on_brokers, until

TOPIC = "persistent://public/default/t"
POLICIES = "persistent://public/default/__change_events"
NOT_KEPT = "non-persistent://public/default/t"
SHARED, KEY_SHARED = 1, 3


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


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
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


def test_kinds_of_topics_that_are_not_served(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for i, (key, topic, other) in enumerate(
            (
                ("enablePersistentTopics", TOPIC, NOT_KEPT),
                ("enableNonPersistentTopics", NOT_KEPT, TOPIC),
            )
        ):
            config = conf(tmp_path, **{key: "false"})
            stage.backend.rules_now = rules_of(config, {}, TopicName.parse(topic))
            told = await client.produce(topic, 2 * i)
            assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, "Broker is unable to load persistent topic")
            stage.backend.rules_now = rules_of(config, {}, TopicName.parse(other))
            assert not hasattr(await client.produce(other, 2 * i + 1), "error")
            for name in list(stage.server.topics.open):
                await stage.server.topics.unload(name)

    on_stage(scenario)


def test_who_asks_for_a_topic_waits_for_its_opening_so_long(tmp_path: Path) -> None:
    limits = ServerLimits.of(conf(tmp_path, topicLoadTimeoutSeconds=7))

    async def scenario(broker: Broker) -> None:
        backend = SoleBackend(broker.context)
        server = BrokerServer(backend, broker.context.world, limits=limits)
        await server.start("client", PORT)
        goes_on, open_ledger = asyncio.Event(), backend.open_ledger

        async def slow(topic: TopicName, *, create: bool) -> ManagedLedger:
            await goes_on.wait()
            return await open_ledger(topic, create=create)

        backend.open_ledger = slow  # type: ignore[method-assign]
        client = await raw_client(broker.context.world)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for i in range(2):  # counted from when the opening began
            told = await client.produce(TOPIC, i)
            assert (told.error, told.message) == (ErrorCode.UNKNOWN, "Failed to load topic within timeout")
            assert 7 <= loop.time() - began_s < 8
        goes_on.set()
        await until(lambda: bool(server.topics.open))
        assert not hasattr(await client.produce(TOPIC, 3), "error")
        await server.stop()

    on_brokers(scenario)


async def raw_client(world: World) -> RawClient:
    _, client = await world.network.connect("client", PORT, RawClient)
    assert isinstance(client, RawClient)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    return client


async def seconds_for(client: RawClient, count: int) -> float:
    """How long it takes until so many messages have come."""
    began_s = asyncio.get_running_loop().time()
    await client.messages(count)
    return asyncio.get_running_loop().time() - began_s


def test_who_has_caught_up_is_let_off_dispatch_rates(tmp_path: Path) -> None:
    keys = {"dispatchThrottlingRatePerSubscriptionInMsg": 10, "managedLedgerCursorBackloggedThreshold": 50}
    config = conf(tmp_path, dispatchThrottlingOnNonBacklogConsumerEnabled="false", **keys)

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
def test_a_batch_counts_for_one_message_where_that_is_asked(tmp_path: Path, kind: int) -> None:
    keys = {"dispatchThrottlingRatePerSubscriptionInMsg": 10}
    config = conf(tmp_path, dispatchThrottlingOnBatchMessageEnabled="true", **keys)

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
    config = conf(tmp_path, subscriptionKeySharedEnable="false")

    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.subscribe(TOPIC, kind=KEY_SHARED)
        assert (told.error, told.message) == (
            ErrorCode.NOT_ALLOWED,
            "Key_Shared subscription is disabled by broker.",
        )
        assert not hasattr(await client.subscribe(NOT_KEPT, kind=KEY_SHARED), "error")

    on_stage(scenario, rules=rules_of(config, {}, TopicName.parse(TOPIC)))


def test_redeliveries_are_not_counted_where_that_is_asked(tmp_path: Path) -> None:
    config = conf(tmp_path, subscriptionRedeliveryTrackerEnabled="false")

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


def test_producers_that_left_long_ago_are_forgotten(tmp_path: Path) -> None:
    config = conf(tmp_path, brokerDeduplicationEnabled="true", brokerDeduplicationProducerInactivityTimeoutMinutes=9)
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


@pytest.mark.parametrize(("frequency_s", "expected"), [(120, [120, 240, 360]), (300, [300, 600]), (0, []), (-1, [])])
def test_how_often_a_broker_looks_whether_snapshots_are_due(
    tmp_path: Path, frequency_s: int, expected: list[int]
) -> None:
    keys = {"brokerDeduplicationSnapshotFrequencyInSeconds": frequency_s}
    config = conf(tmp_path, brokerDeduplicationSnapshotIntervalSeconds=60, **keys)

    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        known, began_s = topic.deduplication, asyncio.get_running_loop().time()
        assert known is not None
        taken: list[int] = []
        cursor = topic.ledger.cursors["pulsar.dedup"]
        for number in range(40):  # every 10 s
            await asyncio.sleep(10)
            topic.ledger.add_many([entry_of(number)])
            await until(lambda number=number: topic.ledger.added == number + 1)
            known.stored("p", [(number, 0, 1, b"", False)], topic.ledger.last_confirmed)  # type: ignore[list-item]
            await admin.service.upkeep.run()
            if cursor.longs.get("p") == number:
                taken.append(round(asyncio.get_running_loop().time() - began_s, -1))
        assert taken == [second for second in expected if second <= 400]

    administering(
        scenario,
        deduplication=True,
        delete_inactive=False,
        deduplication_snapshot_s=config.deduplication_snapshot_s,
        deduplication_check_s=config.deduplication_check_s,
    )


def test_cursors_of_the_system_do_not_expire_and_are_counted_apart(tmp_path: Path) -> None:
    config = conf(tmp_path, additionalSystemCursorNames="mine, other")

    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        ours, users = [await topic.subscription(name, durable=True, initial=EARLIEST) for name in ("mine", "users")]
        topic.ledger.add_many([entry_of(0)])
        await until(lambda: topic.ledger.added == 1)
        await asyncio.sleep(70)
        await admin.service.upkeep.run()
        assert (ours.cursor.backlog(), users.cursor.backlog()) == (1, 0)
        ours.left[1], users.left[1] = 5, 7
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
def test_nothing_is_read_while_enough_wait_for_the_same_time(tmp_path: Path, delays_s: list[float], kept: int) -> None:
    keys = {"delayedDeliveryFixedDelayDetectionLookahead": 11, "dispatcherMaxReadBatchSize": 4}
    config = conf(tmp_path, **keys)

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


def test_upkeep_closes_ledgers_and_forgets_producers_that_are_inactive() -> None:
    async def scenario(admin: Admin) -> None:
        upkeep, topic = admin.service.upkeep, await admin.topic(TOPIC)
        assert topic.deduplication is not None
        topic.deduplication.stored("p", [(7, 0, 1, b"", False)], topic.ledger.last_confirmed)  # type: ignore[list-item]
        topic.ledger.add_many([entry_of(0)])
        await until(lambda: topic.ledger.added == 1)
        first = topic.ledger.ledgers.open_id
        for _ in range(10):  # every 20 s
            await upkeep.run()
            await asyncio.sleep(20)
        assert topic.ledger.ledgers.open_id == first
        assert topic.deduplication.last("p") == 7
        for _ in range(20):
            await upkeep.run()
            await asyncio.sleep(20)
        assert topic.ledger.ledgers.open_id != first
        second = topic.ledger.ledgers.open_id
        assert topic.deduplication.last("p") == -1
        await asyncio.sleep(1000)
        await upkeep.run()
        assert topic.ledger.ledgers.open_id == second, "it is empty"

    rules = {"deduplication": True, "deduplication_inactive_minutes": 4}
    administering(scenario, inactive_rollover_s=250, delete_inactive=False, **rules)


def test_how_many_bookies_a_policy_may_name() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        for path in ("/admin/v2/namespaces/public/default", "/admin/v2/persistent/public/default/t"):
            for sizes, why in (
                ((4, 2, 2), "Bookkeeper-Ensemble must be <= 3 and > 0."),
                ((0, 0, 0), "Bookkeeper-Ensemble must be <= 3 and > 0."),
                ((3, 3, 2), "Bookkeeper-WriteQuorum must be <= 2 and > 0."),
                ((3, 2, 0), "Bookkeeper-AckQuorum must be <= 2 and > 0."),
                ((1, 2, 2), "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (2)"),
            ):
                body = dict(
                    zip(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), sizes, strict=True)
                )
                answer = await admin.ask("POST", f"{path}/persistence", body)
                assert (answer.status, answer.body["reason"]) == (400, why)
            body = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}
            await admin.ok("POST", f"{path}/persistence", body)

    administering(scenario, ensemble_size_max=3, write_quorum_max=2, ack_quorum_max=2)


def test_what_can_be_changed_while_the_broker_runs() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        for key, value in (
            ("dispatcherMaxReadBatchSize", 7),
            ("dispatcherMaxReadSizeBytes", 8),
            ("dispatcherMaxRoundRobinBatchSize", 9),
            ("dispatchThrottlingOnBatchMessageEnabled", "true"),
            ("dispatchThrottlingOnNonBacklogConsumerEnabled", "false"),
            ("loadBalancerNamespaceMaximumBundles", 11),
            ("managedLedgerInactiveLedgerRolloverTimeSeconds", 12),
            ("maxConcurrentTopicLoadRequest", 1),
            ("strictlyVerifySubscriptionName", "true"),
            ("subscriptionKeySharedEnable", "false"),
            ("subscriptionRedeliveryTrackerEnabled", "false"),
        ):
            await admin.ok("POST", f"/admin/v2/brokers/configuration/{key}/{value}")
        rules, config = topic.rules, admin.service.config
        assert (rules.read_entries_max, rules.read_bytes_max, rules.slice_entries) == (7, 8, 9)
        assert (rules.dispatch_by_entry, rules.dispatch_caught_up, rules.strict_subscription_names) == (
            True,
            False,
            True,
        )
        assert (rules.key_shared, rules.counts_redeliveries) == (False, False)
        assert (config.bundles_max, config.inactive_rollover_s) == (11, 12)
        found = await asyncio.gather(*(admin.topic(f"{TOPIC}{i}") for i in range(3)))
        assert len(found) == 3

    administering(scenario)


async def boundaries(admin: Admin) -> list[str]:
    return list((await admin.ok("GET", "/admin/v2/namespaces/t/n/bundles"))["boundaries"])


async def one_bundle(admin: Admin) -> None:
    """A namespace of one bundle with four topics."""
    await admin.ok("PUT", "/admin/v2/tenants/t", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", "/admin/v2/namespaces/t/n", {"bundles": {"numBundles": 1}})
    for number in range(4):
        await admin.topic(f"persistent://t/n/{number}")


def hashes() -> list[int]:
    return sorted(hash_of(f"persistent://t/n/{number}") for number in range(4))


@pytest.mark.parametrize("by_itself", [True, False])
def test_bundles_are_split_by_the_default_algorithm(tmp_path: Path, by_itself: bool) -> None:
    config = conf(tmp_path, defaultNamespaceBundleSplitAlgorithm="topic_count_equally_divide")

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        if by_itself:
            await admin.service.balancer.run()
        else:
            await admin.ok("PUT", "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/split")
        _, second, third, _ = hashes()
        middle = second + (third - second) // 2
        assert await boundaries(admin) == ["0x00000000", f"0x{middle:08x}", "0xffffffff"]

    administering(scenario, split_algorithm=config.split_algorithm, split_topics=3)


def test_bundles_are_split_by_what_flows(tmp_path: Path) -> None:
    keys = {"loadBalancerNamespaceBundleMaxMsgRate": 100, "flowOrQpsDifferenceThresholdPercentage": 10}
    config = conf(tmp_path, defaultNamespaceBundleSplitAlgorithm="flow_or_qps_equally_divide", **keys)

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        rates = dict.fromkeys(hashes(), 27.0)

        def flow(*key: Hashable) -> Flow:
            kind, name = key[:2]
            return Flow(rates[hash_of(str(name))], 0) if kind == "in" else Flow(0, 0)

        admin.service.rates.of = flow  # type: ignore[method-assign]
        whole = ["0x00000000", "0xffffffff"]
        target = "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/split"
        await admin.ok("PUT", target)
        assert await boundaries(admin) == whole, "108 a second are not 110"
        first, second, third, last = hashes()
        rates.update({first: 60, second: 50, third: 45, last: 10})
        await admin.ok("PUT", target)
        middle = first + (second - first) // 2 + 1
        after = third + (last - third) // 2 + 1
        assert await boundaries(admin) == [whole[0], f"0x{middle:08x}", f"0x{after:08x}", whole[1]]

    administering(
        scenario,
        split_algorithm=config.split_algorithm,
        split_message_rate=config.split_message_rate,
        split_slack_percentage=config.split_slack_percentage,
    )


def test_algorithms_that_are_not_supported(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"broker.conf:2: supportedNamespaceBundleSplitAlgorithms=x: not some of range"
    ):
        conf(tmp_path, supportedNamespaceBundleSplitAlgorithms="x")
    with pytest.raises(UsageError, match="range_equally_divide is not in supportedNamespaceBundleSplitAlgorithms"):
        conf(tmp_path, supportedNamespaceBundleSplitAlgorithms="topic_count_equally_divide")
    config = conf(tmp_path, supportedNamespaceBundleSplitAlgorithms="range_equally_divide")

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        target = "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/split?splitAlgorithmName=topic_count_equally_divide"
        answer = await admin.ask("PUT", target)
        words = "Unsupported namespace bundle split algorithm, supported algorithms are [range_equally_divide]"
        assert (answer.status, answer.body["reason"]) == (412, words)

    administering(scenario, split_algorithms=config.split_algorithms)


def test_bootstrap_namespaces_are_taken_with_their_topics(tmp_path: Path) -> None:
    config = conf(tmp_path, bootstrapNamespaces="t/n, public/default, no/such")

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        await admin.topic(TOPIC)
        ownership, topics = admin.service.backend.ownership, admin.service.server.topics
        for bundle in list(ownership.owned):
            await ownership.unload(bundle, admin.service.close_bundle)
        assert not topics.open
        await take_namespaces(admin.service)
        assert [str(bundle) for bundle in ownership.owned] == ["t/n/0x00000000_0xffffffff"]
        assert sorted(map(str, topics.open)) == [f"persistent://t/n/{number}" for number in range(4)]

    administering(scenario, bootstrap_namespaces=config.bootstrap_namespaces)


def test_schemas_of_system_topics_have_a_strategy_of_their_own(tmp_path: Path) -> None:
    namespace = {"schema_compatibility_strategy": "BACKWARD"}
    for text, name, expected in (
        ("FORWARD", POLICIES, "FORWARD"),
        ("", POLICIES, "ALWAYS_COMPATIBLE"),
        ("FORWARD", TOPIC, "BACKWARD"),
    ):
        config = conf(tmp_path, systemTopicSchemaCompatibilityStrategy=text)
        assert rules_of(config, namespace, TopicName.parse(name)).schema_compatibility == expected
