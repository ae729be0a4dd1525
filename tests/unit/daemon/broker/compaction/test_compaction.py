"""Topics that are compacted: what readers get before and behind the horizon, trimmed, reopened, taken over half-way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bkdaemon.broker.metrics import broker_samples
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.managed_ledger import COMPACTED, COMPACTION_CURSOR
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.codec.pulsar_compacted import COMPACTED_PASSWORD, encode_compacted_to
from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import Conflict
from bkctl.model.ledger import DigestType
from bkctl.model.topic import EARLIEST, Position
from tests.broker.admin import Admin, administering, java_topics
from tests.broker.compacting import LIVE, NAME, RULES, compact, fill, key_values, take_everything, topic_of
from tests.broker.raw import Said, Stage, entry_of, on_stage
from tests.broker.scenarios import TOPIC
from tests.unit.log.logs import TRIMMING, Broker, on_brokers, until


def place(said: Said) -> Position:
    return Position(said.message.message_id.ledgerId, said.message.message_id.entryId)


def id_of(position: Position) -> api.MessageIdData:
    return api.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)


def test_readers_get_the_last_value_of_each_key_then_what_came_later() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await fill(client, 30)
        topic = await topic_of(stage)
        first, horizon = topic.ledger.first_position, topic.ledger.last_confirmed
        await compact(topic)
        assert topic.compaction.horizon == horizon
        await topic.ledger.trim()
        assert topic.ledger.first_position > first, "the compacted part of the topic was let go"
        client.publish(30, b"later", partition_key="k0")
        await client.next(Command.SEND_RECEIPT)
        await client.subscribe(TOPIC, "ordinary", consumer_id=1)
        ordinary = await take_everything(client, 1)
        assert len(ordinary) < 30
        for durable, name in ((True, "kept"), (False, "reader")):
            start = {} if durable else {"start_message_id": id_of(EARLIEST)}
            await client.subscribe(TOPIC, name, consumer_id=2, read_compacted=True, durable=durable, **start)
            said = await take_everything(client, 2)
            assert key_values(said) == [*LIVE.items(), ("k0", "later")]
            assert [place(one) for one in said][:3] == [
                Position(horizon.ledger_id, horizon.entry_id - 2 + i) for i in range(3)
            ]
            last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=2)
            assert last.last_message_id.entryId == topic.ledger.last_confirmed.entry_id
            await client.ask(Command.CLOSE_CONSUMER, consumer_id=2)
        half = id_of(Position(horizon.ledger_id, horizon.entry_id - 1))
        await client.subscribe(TOPIC, "half", consumer_id=3, read_compacted=True, durable=False, start_message_id=half)
        assert key_values(await take_everything(client, 3)) == [*list(LIVE.items())[1:], ("k0", "later")]

    on_stage(scenario, settings=TRIMMING, rules=RULES)


def test_what_a_compaction_leaves_behind() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await fill(client, 30)
        topic = await topic_of(stage)
        await compact(topic)
        cursor = topic.ledger.cursors[COMPACTION_CURSOR]
        first, horizon = cursor.longs[COMPACTED], topic.ledger.last_confirmed
        assert cursor.stored_mark_delete == horizon
        bookkeeper = stage.broker.context.bookkeeper
        metadata = (await bookkeeper.open(first, COMPACTED_PASSWORD)).metadata
        assert (metadata.digest_type, metadata.closed, metadata.password) == (DigestType.CRC32, True, b"")
        assert metadata.custom_metadata == {
            "application": b"pulsar",
            "component": b"compacted-ledger",
            "pulsar/compactedTopic": TOPIC.encode(),
            "pulsar/compactedTo": encode_compacted_to(horizon, -1),
        }
        record = topic.compaction.record
        assert (record.last_removed, record.succeeded, record.failed) == (27, 1, 0)
        await compact(topic)
        assert cursor.longs[COMPACTED] == first, "nothing came: nothing is written"
        client.publish(30, b"", partition_key="k1", uncompressed_size=0)
        await client.next(Command.SEND_RECEIPT)
        await compact(topic)
        second = cursor.longs[COMPACTED]
        ids = [one async for batch in bookkeeper.list() for one in batch]
        assert second in ids
        assert first not in ids, "the ledger before is deleted"
        await stage.server.topics.unload(NAME)
        await client.subscribe(TOPIC, "reader", consumer_id=1, read_compacted=True, durable=False)
        live = [(key, value) for key, value in LIVE.items() if key != "k1"]
        assert key_values(await take_everything(client, 1)) == live, "another owner knows it too"
        last = await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
        assert last.last_message_id.entryId == horizon.entry_id, "the tombstone behind it is no message"
        topic = await topic_of(stage)
        await stage.server.topics.unload(NAME)
        log = await stage.backend.open_ledger(NAME, create=False)
        await log.delete()
        assert second not in [one async for batch in bookkeeper.list() for one in batch], "it goes with its topic"

    on_stage(scenario)


def test_a_slow_reader_is_overtaken_by_the_horizon_and_misses_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await fill(client, 15)
        await client.subscribe(TOPIC, "slow", consumer_id=1, read_compacted=True, durable=False)
        client.flow(2, 1)
        early = key_values(await client.messages(2))
        assert early == [("k0", "v0"), ("k1", "v1")]
        await fill(client, 15, 15)
        topic = await topic_of(stage)
        await compact(topic)
        await topic.ledger.trim()
        assert key_values(await take_everything(client, 1)) == list(LIVE.items())
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
        assert key_values(await take_everything(client, 1)) == list(LIVE.items()), "again, trimmed or not"
        await fill(client, 1, 30)
        assert key_values(await take_everything(client, 1)) == [("k0", "v30")]

    on_stage(scenario, settings=TRIMMING, rules=RULES)


def test_acknowledged_is_not_sent_again_and_a_seek_goes_before_what_is_trimmed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, "s", consumer_id=1, kind=2, read_compacted=True)
        await fill(client, 30)
        topic = await topic_of(stage)
        await compact(topic)
        said = await take_everything(client, 1)
        assert key_values(said) == list(LIVE.items())
        client.ack(said[0], said[1], consumer_id=1)
        client.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
        assert key_values(await take_everything(client, 1)) == [("k2", "v29")]
        client.ack(said[2], consumer_id=1, kind=1)
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=1)
        await topic.subscriptions["s"].cursor.flush()
        await topic.ledger.trim()
        await client.subscribe(TOPIC, "s", consumer_id=1, kind=2, read_compacted=True)
        assert key_values(await take_everything(client, 1)) == []
        for start, expected in ((EARLIEST, 3), (place(said[1]), 2)):
            await client.ask(Command.SEEK, consumer_id=1, message_id=id_of(start))
            await client.next(Command.CLOSE_CONSUMER)
            await client.subscribe(TOPIC, "s", consumer_id=1, kind=2, read_compacted=True)
            assert key_values(await take_everything(client, 1)) == list(LIVE.items())[3 - expected :]

    on_stage(scenario, settings=TRIMMING, rules=RULES)


@pytest.mark.parametrize("kind", [1, 3])
def test_shared_subscriptions_cannot_read_compacted(kind: int) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        refused = await client.subscribe(TOPIC, kind=kind, read_compacted=True)
        assert refused.error == ErrorCode.NOT_ALLOWED
        assert refused.message == "readCompacted only allowed on failover or exclusive subscriptions"

    on_stage(scenario)


def test_more_than_the_threshold_is_compacted_by_itself() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        topic = await topic_of(stage)
        assert COMPACTION_CURSOR in topic.ledger.cursors, "nothing is trimmed before it was compacted"
        await fill(client, 30)
        topic.compaction.check(replace(topic.rules, compaction_threshold=0))
        assert not topic.compaction.running
        topic.compaction.check(topic.rules)
        assert topic.compaction.running
        with pytest.raises(Conflict, match="already in progress"):
            topic.compaction.trigger(topic.rules)
        await until(lambda: not topic.compaction.running)
        topic.compaction.check(topic.rules)
        assert not topic.compaction.running, "what is left is less"

    on_stage(scenario, rules=TopicRules(compaction_threshold=100))


def test_a_compaction_that_fails_tells_why_and_leaves_nothing() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        topic = await Topic.open(NAME, log, RULES, broker.context.world.clock.now_ms)
        stored: list[Position] = []
        log.on_confirmed = stored.extend
        log.add_many([entry_of(0, b"v", partition_key="k"), b"\0", entry_of(1, b"w", partition_key="k")])
        await until(lambda: len(stored) == 3)
        before = {one async for batch in broker.context.bookkeeper.list() for one in batch}
        topic.compaction.trigger(RULES)
        await until(lambda: not topic.compaction.running)
        assert topic.compaction.status["status"] == "ERROR"
        assert topic.compaction.status["lastError"]
        assert topic.compaction.horizon is None
        assert {one async for batch in broker.context.bookkeeper.list() for one in batch} - before <= {
            cursor.ledger_id for cursor in log.cursors.values()
        }
        await topic.close()

    on_brokers(scenario)


GOLDEN = "persistent://golden/ns1/compact"


def test_what_java_compacted_is_read_and_compacted_again() -> None:
    async def scenario(admin: Admin) -> None:
        await java_topics(admin.cluster, admin.service.bookkeeper)
        topic = await admin.topic(GOLDEN)
        assert topic.compaction.horizon == Position(67, 11)
        compacted = await topic.compaction.ledger()
        assert compacted is not None
        assert (compacted.ledger_id, compacted.entries) == (68, 3)
        assert [p.entry_id for p, _ in await compacted.read(EARLIEST, 10, 10_000)] == [6, 9, 11]
        assert [p.entry_id for p, _ in await compacted.read(Position(67, 7), 10, 10_000)] == [9, 11]
        assert await topic.compaction.last_message_id(Position(67, 11), 3) == (Position(67, 11), 3)
        path = "/admin/v2/persistent/golden/ns1/compact"
        assert (await admin.ok("GET", f"{path}/internalStats"))["compactedLedger"]["entries"] == 3
        await admin.ok("PUT", f"{path}/compaction")
        await until(lambda: not topic.compaction.running)
        assert await admin.ok("GET", f"{path}/compaction") == {"status": "SUCCESS", "lastError": ""}
        assert topic.compaction.horizon == Position(67, 12)
        stats = (await admin.ok("GET", f"{path}/stats"))["compaction"]
        assert stats["lastCompactionSucceedTimestamp"] > 0
        assert stats["lastCompactionFailedTimestamp"] == 0
        await admin.service.look()
        figures = {one.name: one.value for one in broker_samples(admin.service) if "compaction" in one.name}
        assert figures["pulsar_compaction_succeed_count"] == 1
        assert figures["pulsar_compaction_compacted_entries_count"] == 4
        assert figures.keys() >= {f"pulsar_compaction_{way}_throughput" for way in ("read", "write")}
        latencies = {name.removeprefix("pulsar_compaction_latency_"): value for name, value in figures.items()}
        bounds = ["0_5", "1", "5", "10", "20", "50", "100", "200", "1000"]
        assert latencies.keys() >= {*(f"le_{bound}" for bound in bounds), "overflow", "sum", "count"}
        assert sum(latencies[f"le_{bound}"] for bound in bounds) + latencies["overflow"] == latencies["count"] == 4
        assert latencies["sum"] > 0
        again = {one.name: one.value for one in broker_samples(admin.service)}
        assert again["pulsar_compaction_latency_count"] == 0, "each scrape tells what came since the one before"

    administering(scenario)


def test_a_message_by_time_is_looked_for_in_what_was_compacted() -> None:
    async def scenario(admin: Admin) -> None:
        await java_topics(admin.cluster, admin.service.bookkeeper)
        topic = await admin.topic(GOLDEN)
        compacted = await topic.compaction.ledger()
        assert compacted is not None
        times = {
            position.entry_id: decode_metadata(entry).publish_time
            for position, entry in await compacted.read(EARLIEST, 10, 10_000)
        }
        assert times[6] < times[9] < times[11]

        async def at(ms: int) -> tuple[int, int]:
            found = await admin.ok("GET", f"/admin/v2/persistent/golden/ns1/compact/messageid/{ms}")
            return found["ledgerId"], found["entryId"]

        assert [await at(ms) for ms in (0, times[6], times[6] + 1, times[9], times[11])] == [
            (67, 6), (67, 6), (67, 9), (67, 9), (67, 11),
        ]  # fmt: skip
        assert await at(times[11] + 1) == tuple(await topic.ledger.find_by_publish_time(times[11] + 1))

    administering(scenario)


def test_thresholds_by_rest() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        namespace, path = "/admin/v2/namespaces/public/default", "/admin/v2/persistent/public/default/t"
        assert await admin.ok("GET", f"{namespace}/compactionThreshold") is None
        assert await admin.ok("GET", f"{path}/compactionThreshold?applied=true") == 0
        answer = await admin.ask("PUT", f"{namespace}/compactionThreshold", -1)
        assert (answer.status, answer.body) == (412, {"reason": "compactionThreshold must be 0 or more"})
        await admin.ok("PUT", f"{namespace}/compactionThreshold", 1000)
        assert await admin.ok("GET", f"{namespace}/compactionThreshold") == 1000
        topic = await admin.topic(TOPIC)
        assert topic.rules.compaction_threshold == 1000
        await admin.ok("POST", f"{path}/compactionThreshold", 77)
        assert await admin.ok("GET", f"{path}/compactionThreshold") == 77
        topic = await admin.topic(TOPIC)
        assert topic.rules.compaction_threshold == 77
        stored: list[Position] = []
        topic.ledger.on_confirmed = stored.extend
        topic.ledger.add_many([entry_of(0, b"v" * 100, partition_key="k")])
        await until(lambda: stored)
        await admin.service._check_compaction()
        await until(lambda: not topic.compaction.running)
        assert topic.compaction.horizon == stored[0]
        await admin.ok("DELETE", f"{path}/compactionThreshold")
        await admin.ok("DELETE", f"{namespace}/compactionThreshold")
        assert await admin.ok("GET", f"{namespace}/compactionThreshold") is None
        assert topic.rules.compaction_threshold == 0

    administering(scenario)
