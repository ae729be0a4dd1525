"""The load report of a broker, and the statistics of its bundles."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from bkdaemon.broker.cluster.balance import usage_of
from bkdaemon.broker.cluster.load import bundle_stats, load_report
from bkdaemon.broker.topic.rates import Rates
from bkdaemon.broker.topic.sent import Flow

from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering


def test_a_load_report_has_the_fields_of_java() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic("public/default/a")
        service = admin.service
        await asyncio.sleep(1)
        await service.look()
        told, java = load_report(service), golden.rest("broker-stats-load-report")["response"]["body"]
        assert set(told) == set(java)
        (stats,) = told["lastStats"].values()
        assert {key: type(value) for key, value in stats.items()} == {
            key: type(value) for key, value in next(iter(java["lastStats"].values())).items()
        }
        assert told["bundles"] == list(told["lastStats"])
        assert (told["numTopics"], told["numBundles"], stats["topics"]) == (1, 1, 1)
        stored = await service.backend.ownership.brokers.report("a:8080")
        assert stored is not None
        assert set(stored) == set(java)

    administering(scenario)


def test_each_topic_is_counted_in_its_bundle() -> None:
    async def scenario(admin: Admin) -> None:
        wanted: Counter[str] = Counter()
        for number in range(40):
            topic = await admin.topic(f"public/default/t{number}")
            wanted[str(await admin.service.backend.ownership.bundle_of(topic.name))] += 1
        told = bundle_stats(admin.service)
        assert len(told) > 5
        assert {name: one["topics"] for name, one in told.items()} == wanted
        given_up = min(admin.service.backend.ownership.owned)
        admin.service.backend.ownership.owned.discard(given_up)
        assert set(bundle_stats(admin.service)) == wanted.keys() - {str(given_up)}

    administering(scenario)


def test_rates_are_of_the_messages_between_two_updates() -> None:
    class Topics:
        open: dict[Any, Any] = {}  # noqa: RUF012

    class Topic:
        messages_in, bytes_in, subscriptions = 0, 0, {}
        persistent = False

        class producers:
            by_name: dict[str, Any] = {}  # noqa: RUF012

    rates, topics, topic = Rates(), Topics(), Topic()
    topics.open["t"] = topic
    rates.update(topics, 1_000)  # type: ignore[arg-type]
    assert rates.of("in", "t") == Flow()
    topic.messages_in, topic.bytes_in = 100, 5_000
    rates.update(topics, 11_000)  # type: ignore[arg-type]
    assert rates.of("in", "t") == Flow(10.0, 500.0)
    assert rates.of("in", "t").average_size == 50.0
    topics.open.clear()
    rates.update(topics, 21_000)  # type: ignore[arg-type]
    assert rates.of("in", "t") == Flow()


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_the_processor_usage_is_that_of_one_core(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(admin: Admin) -> None:
        monkeypatch.setattr("os.cpu_count", lambda: cores)
        for spent, share in ((0.0, 0.0), (50.0, 0.5), (100.0, 1.0), (130.0, 1.0)):
            admin.service.meter.cpu = spent
            told = load_report(admin.service)
            assert (usage_of(told), told["maxResourceUsage"]) == (share, share)

    administering(scenario)
