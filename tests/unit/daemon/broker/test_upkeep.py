"""What a broker does by itself, in virtual time: retention, expiry, quotas, unused topics, snapshots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.producers import Producer
from bkdaemon.broker.topic.topic import DEDUPLICATION_CURSOR, Topic

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import ErrorCode
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.errors import NotFound
from bkctl.model.topic import EARLIEST, Position, TopicName
from tests.broker.admin import Admin, administering
from tests.broker.raw import entry_of
from tests.unit.daemon.broker.keys import config_of_keys
from tests.unit.daemon.broker.rest.clients import TOPIC
from tests.unit.log.logs import until

NAMESPACE = "/admin/v2/namespaces/public/default"
NAME = "persistent://public/default/t"
SMALL = {"entries_per_ledger": 10, "rollover_min_minutes": 0, "mark_delete_rate": 0}
MINUTE_S = 60.0


async def publish(topic: Topic, count: int, size: int = 100) -> None:
    """Adds entries that are published now."""
    before, now = topic.ledger.added, topic.now_ms()
    for i in range(count):
        metadata = api.MessageMetadata(producer_name="p", sequence_id=before + i, publish_time=now)
        topic.ledger.add_many([encode_entry(metadata, b"x" * size)])
    await until(lambda: topic.ledger.added == before + count)


async def subscribed(topic: Topic, name: str = "s") -> Any:
    return await topic.subscription(name, durable=True, initial=EARLIEST)


def kept(topic: Topic) -> int:
    """Entries that are stored."""
    return topic.ledger.ledgers.entries_total


async def pass_time(admin: Admin, seconds: float) -> None:
    """Lets time pass and does what is due then."""
    await asyncio.sleep(seconds)
    await admin.service.upkeep.run()
    await asyncio.sleep(1)


def test_upkeep_runs_at_the_shortest_configured_interval() -> None:
    async def scenario(admin: Admin) -> None:
        assert admin.service.upkeep.period_s(10.0) == 2

    administering(scenario, backlog_quota_check_s=2)


def test_retention_by_time_begins_when_a_ledger_is_closed() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1})
        topic = await admin.topic(NAME)
        await publish(topic, 35)
        await asyncio.sleep(9 * MINUTE_S)
        assert kept(topic) == 35
        await asyncio.sleep(4 * MINUTE_S)
        assert kept(topic) == 5  # the open one stays
        assert len((await admin.service.backend.meta.ledgers.read(topic.name.path)).info.ledgers) == 1

    administering(scenario, **SMALL)


def test_retention_by_size_keeps_the_latest() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 1})
        topic = await admin.topic(NAME)
        await publish(topic, 45, size=64 * 1024)  # 0.6 MB a ledger
        await asyncio.sleep(5 * MINUTE_S)
        assert kept(topic) == 25  # what is left is still enough; one less would not be
        await admin.ok("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        subscription = await subscribed(topic)
        await asyncio.sleep(5 * MINUTE_S)
        assert kept(topic) == 25  # a subscription needs them
        subscription.cursor.ack_cumulative(topic.ledger.last_confirmed)
        await asyncio.sleep(5 * MINUTE_S)
        assert kept(topic) == 5

    administering(scenario, **SMALL)


def test_expired_messages_are_acknowledged_for_all_subscriptions_permanently() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/messageTTL", 600)
        topic = await admin.topic(NAME)
        first, second = await subscribed(topic, "first"), await subscribed(topic, "second")
        await publish(topic, 15)
        await asyncio.sleep(5 * MINUTE_S)
        await publish(topic, 10)
        await admin.service.upkeep.run()
        assert (first.cursor.backlog(), second.cursor.backlog()) == (25, 25)
        second.cursor.ack([topic.ledger.ledgers.at(16)])
        await pass_time(admin, 6 * MINUTE_S)
        assert (first.cursor.backlog(), second.cursor.backlog()) == (10, 9)
        assert first.expired == 15
        assert (await admin.ok("GET", "/admin/v2/persistent/public/default/t/stats"))["subscriptions"]["first"][
            "totalMsgExpired"
        ] == 15
        await admin.service.server.topics.unload(topic.name)
        topic = await admin.topic(NAME)
        assert topic.subscriptions["first"].cursor.backlog() == 10
        await pass_time(admin, 6 * MINUTE_S)
        assert topic.subscriptions["first"].cursor.backlog() == 0

    administering(scenario, retention_minutes=-1, retention_mb=-1, **SMALL)


def test_unused_subscriptions_expire() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/subscriptionExpirationTime", 30)
        topic = await admin.topic(NAME)
        await subscribed(topic, "old")
        await pass_time(admin, 20 * MINUTE_S)
        (await subscribed(topic, "used")).cursor.active()
        assert set(topic.subscriptions) == {"old", "used"}
        await pass_time(admin, 15 * MINUTE_S)
        assert set(topic.subscriptions) == {"used"}
        assert await admin.service.backend.meta.ledgers.cursors(topic.name.path) == ["used"]

    administering(scenario)


class Client:
    """As much of a connection as producers need."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.forgotten: list[Producer] = []

    def forget_producer(self, producer: Producer, *, closed_by_broker: bool = False) -> None:
        self.forgotten.append(producer)

    def queue(self, parts: Any) -> None:
        self.sent.extend(parts)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("producer_request_hold", ErrorCode.PRODUCER_BLOCKED_QUOTA_ERROR),
        ("producer_exception", ErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEPTION),
    ],
)
@pytest.mark.parametrize("kind", ["destination_storage", "message_age"])
def test_producers_over_a_quota_are_closed_with_an_error(policy: str, code: ErrorCode, kind: str) -> None:
    async def scenario(admin: Admin) -> None:
        quota = {"limitSize": 2000, "limitTime": 300, "policy": policy}
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType={kind}", quota)
        topic, client = await admin.topic(NAME), Client()
        subscription = await subscribed(topic)
        producer = Producer(client, topic, 1, "p")  # type: ignore[arg-type]
        await topic.add_producer(producer)
        await publish(topic, 10)
        await pass_time(admin, 2 * MINUTE_S)
        assert client.forgotten == []
        await publish(topic, 10)
        await pass_time(admin, 4 * MINUTE_S)
        assert client.forgotten == [producer]
        with pytest.raises(Refusal) as refused:
            await topic.add_producer(Producer(client, topic, 2, "q"))  # type: ignore[arg-type]
        assert refused.value.code == code
        subscription.cursor.ack_cumulative(topic.ledger.last_confirmed)
        await pass_time(admin, 2 * MINUTE_S)
        await topic.add_producer(Producer(client, topic, 3, "r"))  # type: ignore[arg-type]

    administering(scenario, backlog_quota_reads=True)


def test_the_oldest_messages_of_a_backlog_over_quota_are_evicted() -> None:
    async def scenario(admin: Admin) -> None:
        quota = {"limitSize": 5000, "policy": "consumer_backlog_eviction"}
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota", quota)
        topic = await admin.topic(NAME)
        slow, quick = await subscribed(topic, "slow"), await subscribed(topic, "quick")
        await publish(topic, 100)
        quick.cursor.ack_cumulative(topic.ledger.ledgers.at(89))
        each = topic.ledger.ledgers.size_total // 100
        await pass_time(admin, 2 * MINUTE_S)
        assert 0.8 * 5000 < slow.cursor.backlog() * each <= 0.9 * 5000
        assert quick.cursor.backlog() == 10
        assert admin.service.upkeep.evictions == {"size": 1, "time": 0}
        stats = await admin.ok("GET", "/admin/v2/persistent/public/default/t/stats")
        assert stats["backlogQuotaLimitSize"] == 5000
        assert stats["backlogSize"] <= 4500

    administering(scenario, retention_minutes=-1, retention_mb=-1, **SMALL)


def test_messages_of_a_backlog_that_is_too_old_are_evicted() -> None:
    async def scenario(admin: Admin) -> None:
        quota = {"limitTime": 600, "policy": "consumer_backlog_eviction"}
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=message_age", quota)
        topic = await admin.topic(NAME)
        subscription = await subscribed(topic)
        await publish(topic, 15)
        await asyncio.sleep(8 * MINUTE_S)
        await publish(topic, 5)
        await pass_time(admin, MINUTE_S)
        assert subscription.cursor.backlog() == 20
        await pass_time(admin, 3 * MINUTE_S)
        assert subscription.cursor.backlog() == 5

    administering(scenario, backlog_quota_reads=True, **SMALL)


def test_a_backlog_is_as_old_as_the_end_of_its_ledger_where_entries_are_not_read() -> None:
    async def scenario(admin: Admin) -> None:
        quota = {"limitTime": 600, "policy": "consumer_backlog_eviction"}
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=message_age", quota)
        topic = await admin.topic(NAME)
        slow, quick = await subscribed(topic, "slow"), await subscribed(topic, "quick")
        await publish(topic, 5)
        await pass_time(admin, 11 * MINUTE_S)
        assert slow.cursor.backlog() == 5, "their ledger has no end yet"
        await publish(topic, 20)  # two are closed now, the third has five
        quick.cursor.ack_cumulative(topic.ledger.ledgers.at(22))
        await pass_time(admin, 9 * MINUTE_S)
        assert slow.cursor.backlog() == 25
        await pass_time(admin, 2 * MINUTE_S)
        assert (slow.cursor.backlog(), quick.cursor.backlog()) == (5, 2)
        assert admin.service.upkeep.evictions == {"size": 0, "time": 1}
        await pass_time(admin, 20 * MINUTE_S)
        assert (slow.cursor.backlog(), quick.cursor.backlog()) == (5, 2)

    administering(scenario, **SMALL)


def test_sequence_ids_are_kept_when_only_they_exceed_the_age() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/deduplication", True)
        quota = {"limitTime": 600, "policy": "producer_exception"}
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=message_age", quota)
        topic = await admin.topic(NAME)
        subscription = await subscribed(topic)
        assert topic.deduplication is not None
        await publish(topic, 25)
        topic.deduplication.stored("p", [(7, 0, 1, b"", False)], topic.ledger.last_confirmed)  # type: ignore[list-item]
        subscription.cursor.ack_cumulative(topic.ledger.ledgers.at(23))
        cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
        await pass_time(admin, 9 * MINUTE_S)
        assert cursor.mark_delete.entry_id == -1
        await pass_time(admin, 2 * MINUTE_S)
        assert cursor.mark_delete == topic.ledger.last_confirmed
        assert topic.rules.backlog_exceeded is None

    administering(scenario, deduplication_check_s=0, **SMALL)


async def there(admin: Admin, name: str) -> bool:
    return await admin.service.backend.meta.topics.exists(TopicName.parse(name))


def test_topics_without_subscriptions_are_deleted() -> None:
    async def scenario(admin: Admin) -> None:
        unused, read = await admin.topic(NAME), await admin.topic(f"{NAME}-read")
        written, system = await admin.topic(f"{NAME}-written"), await admin.topic("public/default/__change_events")
        await subscribed(read)
        producer = Producer(Client(), written, 1, "p")  # type: ignore[arg-type]
        await written.add_producer(producer)
        await publish(unused, 3)
        await pass_time(admin, 61)
        assert not await there(admin, NAME)
        for topic in (read, written, system):
            assert await there(admin, str(topic.name))
        ledgers = admin.service.bookkeeper.ledgers
        assert unused.ledger.node.info.ledgers[0].ledger_id not in [i async for ids in ledgers.ids() for i in ids]
        await written.remove_producer(producer)
        await pass_time(admin, 70)
        assert not await there(admin, str(written.name))

    administering(scenario)


@pytest.mark.parametrize("everything", [True, False])
def test_a_partitioned_topic_is_deleted_with_its_last_partition_if_configured(everything: bool) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/persistent/public/default/t/partitions", 2)
        first, last = [await admin.topic(f"{NAME}-partition-{number}") for number in range(2)]
        await subscribed(last)
        topics = admin.service.backend.meta.topics
        await pass_time(admin, 61)
        assert not await there(admin, str(first.name))
        assert await topics.partitions(TopicName.parse(NAME)) == 2, "the other is there"
        await last.delete_subscription(last.subscriptions["s"])
        await pass_time(admin, 70)
        assert not await there(admin, str(last.name))
        assert await topics.partitions(TopicName.parse(NAME)) == (0 if everything else 2)

    administering(scenario, delete_inactive_metadata=everything)


def test_topics_whose_subscriptions_have_no_backlog_are_deleted_if_configured() -> None:
    async def scenario(admin: Admin) -> None:
        rule = {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "maxInactiveDurationSeconds": 120}
        await admin.ok("POST", f"{NAMESPACE}/inactiveTopicPolicies", rule | {"deleteWhileInactive": True})
        topic = await admin.topic(NAME)
        subscription = await subscribed(topic)
        await publish(topic, 3)
        await pass_time(admin, 200)
        assert await there(admin, NAME)
        subscription.cursor.ack_cumulative(topic.ledger.last_confirmed)
        await pass_time(admin, 61)
        assert not await there(admin, NAME)
        rule["deleteWhileInactive"] = False
        await admin.ok("POST", f"{NAMESPACE}/inactiveTopicPolicies", rule)
        await admin.topic(NAME)
        await pass_time(admin, 500)
        assert await there(admin, NAME)

    administering(scenario)


def test_a_slow_topic_has_snapshots_too() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/deduplication", True)
        topic = await admin.topic(NAME)
        assert topic.deduplication is not None
        producer = Producer(Client(), topic, 1, "p")  # type: ignore[arg-type]
        producer.connection.pending = 0
        producer.connection.confirmed = lambda count: None  # type: ignore[method-assign]
        await topic.add_producer(producer)
        metadata = api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
        entry = encode_entry(metadata, b"x")
        topic.publish(producer, [(7, 0, 1, entry, False)], len(entry))  # type: ignore[list-item]
        await until(lambda: topic.ledger.added == 1)
        cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
        assert cursor.mark_delete.entry_id == -1
        await pass_time(admin, 3 * MINUTE_S)
        assert (cursor.longs, cursor.mark_delete) == ({"p": 7}, topic.ledger.last_confirmed)
        assert isinstance(cursor.mark_delete, Position)

    administering(scenario, **SMALL)


def test_deduplication_follows_its_policy() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(NAME)
        assert topic.deduplication is None
        await admin.ok("POST", f"{NAMESPACE}/deduplication", True)
        assert topic.closed  # clients come back to one that drops duplicates
        topic = await admin.topic(NAME)
        assert topic.deduplication is not None
        await admin.ok("POST", f"{NAMESPACE}/deduplication", False)
        topic = await admin.topic(NAME)
        await admin.service.upkeep.run()
        assert topic.deduplication is None
        assert await admin.service.backend.meta.ledgers.cursors(topic.name.path) == []  # it would hold ledgers for ever

    administering(scenario)


def test_topics_and_subscriptions_above_their_limits_are_refused() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/maxTopicsPerNamespace", 2)
        await admin.ok("POST", f"{NAMESPACE}/maxSubscriptionsPerTopic", 1)
        topics = "/admin/v2/persistent/public/default"
        await admin.ok("PUT", f"{topics}/one")
        assert (await admin.ask("PUT", f"{topics}/parts/partitions", 2)).status == 412
        await admin.topic("public/default/two")
        assert (await admin.ask("PUT", f"{topics}/three")).status == 412
        with pytest.raises(Exception, match="maximum number of topics"):
            await admin.topic("public/default/three")
        topic = await admin.topic("public/default/two")
        await subscribed(topic)
        with pytest.raises(Refusal, match="maximum number of subscriptions"):
            await subscribed(topic, "another")
        with pytest.raises(NotFound):
            await admin.topic("public/default/absent", create=False)

    administering(scenario)


@pytest.mark.parametrize(("frequency_s", "expected"), [(120, [120, 240, 360]), (300, [300, 600]), (0, []), (-1, [])])
def test_due_snapshots_are_checked_at_the_configured_interval(
    tmp_path: Path, frequency_s: int, expected: list[int]
) -> None:
    keys = {"brokerDeduplicationSnapshotFrequencyInSeconds": frequency_s}
    config = config_of_keys(tmp_path, brokerDeduplicationSnapshotIntervalSeconds=60, **keys)

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


def test_upkeep_closes_inactive_ledgers_and_removes_inactive_producers() -> None:
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
