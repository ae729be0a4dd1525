"""What /metrics tells has the names, types and labels of Pulsar 4.0.7, and the figures of what happened."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from bkdaemon.broker.metrics import broker_samples
from bkdaemon.broker.stats import partitioned_stats

from bkctl.model.topic import EARLIEST, LATEST
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.test_upkeep import publish
from tests.unit.log.logs import until

JAVA = Path(__file__).resolve().parents[3] / "data/pulsar_rest/metrics.txt"
WANTED = {
    *("pulsar_topics_count", "pulsar_subscriptions_count", "pulsar_producers_count", "pulsar_consumers_count"),
    *("pulsar_rate_in", "pulsar_rate_out", "pulsar_throughput_in", "pulsar_throughput_out", "pulsar_msg_backlog"),
    *("pulsar_storage_size", "pulsar_storage_logical_size", "pulsar_storage_backlog_size", "pulsar_ml_count"),
    *("pulsar_subscription_back_log", "pulsar_subscription_unacked_messages", "pulsar_subscription_msg_rate_out"),
    *("pulsar_ml_cache_used_size", "pulsar_ml_cache_hits_rate", "pulsar_broker_rate_in", "pulsar_active_connections"),
}


def javas() -> set[tuple[str, str, frozenset[str]]]:
    """(name, type, labels) of everything that Java's broker tells."""
    lines = [line.split() for line in JAVA.read_text().splitlines() if not line.startswith("#")]
    return {(name, kind, frozenset((labels or [""])[0].split(","))) for name, kind, *labels in lines}


def test_names_types_and_labels_of_metrics_are_those_of_pulsar() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("public/default/a")
        await topic.subscription("s", durable=True, initial=EARLIEST)
        samples = list(broker_samples(admin.service))
        ours = {
            (s.name, s.kind, frozenset(key for key, _ in s.labels)) for s in samples if s.name.startswith("pulsar_")
        }
        assert ours - javas() == set()
        assert WANTED - {name for name, _, _ in ours} == set()
        rest = {s.name for s in samples if not s.name.startswith("pulsar_")}
        assert all(name.startswith(("bkctl_", "process_")) for name in rest)

    administering(scenario)


def test_metrics_of_a_topic_have_its_counters() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("public/default/a")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        await admin.service.look()
        await asyncio.sleep(2)
        await publish(topic, 10)
        subscription.cursor.ack_cumulative(topic.ledger.ledgers.at(3))
        await admin.service.look()
        text = (await admin.ask("GET", "/metrics")).data.decode()
        found = dict(re.findall(r'^(pulsar_\w+)\{[^}]*namespace="public/default"[^}]*\} (\S+)$', text, re.MULTILINE))
        size = topic.ledger.ledgers.size_total
        assert float(found["pulsar_storage_write_rate"]) == pytest.approx(5, rel=0.1)  # entries a second
        assert float(found["pulsar_topics_count"]) == 1
        assert float(found["pulsar_subscription_back_log"]) == float(found["pulsar_msg_backlog"]) == 6
        assert float(found["pulsar_storage_logical_size"]) == size
        assert float(found["pulsar_storage_size"]) == 2 * size  # as many copies as the write quorum
        assert float(found["pulsar_storage_backlog_size"]) == size - 4 * (size // 10)
        names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert len(names) == len(set(names))  # one block a name

    administering(scenario)


def test_the_age_of_the_oldest_backlog() -> None:
    """It is known as soon as the ledger in which it begins is closed: the time of its end."""

    async def scenario(admin: Admin) -> None:
        async def told() -> tuple[int, str | None]:
            stats = await admin.ok("GET", "/admin/v2/persistent/public/default/a/stats")
            text = (await admin.ask("GET", "/metrics")).data.decode()
            (figure,) = re.findall(r"^pulsar_storage_backlog_age_seconds\{.*\} (\S+)$", text, re.MULTILINE)
            assert float(figure) == stats["oldestBacklogMessageAgeSeconds"]
            return stats["oldestBacklogMessageAgeSeconds"], stats.get("oldestBacklogMessageSubscriptionName")

        topic = await admin.topic("public/default/a")
        slow = await topic.subscription("slow", durable=True, initial=EARLIEST)
        assert await told() == (-1, None)
        await publish(topic, 15)
        await topic.subscription("none", durable=True, initial=LATEST)
        await until(lambda: len(topic.ledger.ledgers.ids) == 2)
        await asyncio.sleep(100)
        assert await told() == (100, "slow")
        slow.cursor.ack_cumulative(topic.ledger.ledgers.at(9))
        assert await told() == (-1, None), "the ledger of its next entry has no end yet"

    administering(scenario, entries_per_ledger=10, rollover_min_minutes=0, retention_minutes=-1, retention_mb=-1)


def test_the_oldest_backlog_of_partitions_is_the_oldest_of_all() -> None:
    part = {"averageMsgSize": 0.0, "oldestBacklogMessageAgeSeconds": -1}
    told = {"oldestBacklogMessageAgeSeconds": 7, "oldestBacklogMessageSubscriptionName": "s"}
    other = {"oldestBacklogMessageAgeSeconds": 3, "oldestBacklogMessageSubscriptionName": "t"}
    none = partitioned_stats([part, part])
    assert none["oldestBacklogMessageAgeSeconds"] == 0
    assert "oldestBacklogMessageSubscriptionName" not in none
    assert told.items() <= partitioned_stats([part | other, part | told, part]).items()
