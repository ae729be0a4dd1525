"""Balancing: who takes a bundle, what an overloaded broker gives up, what is split; a broker that leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from bkdaemon.broker.cluster.balance import ROUNDS, Move, Shedding, SplitLimits, choose, goals, too_large, usage_of
from bkdaemon.broker.cluster.balancer import Balancer
from bkdaemon.broker.cluster.load import bundle_stats, load_report
from bkdaemon.broker.cluster.meter import Meter
from bkdaemon.broker.cluster.ownership import BrokerAddress, Ownership
from bkdaemon.broker.topic.rates import Rates
from bkdaemon.broker.topic.sent import Flow

from bkctl.errors import Unavailable
from bkctl.meta.memory import MemoryStore
from bkctl.model.topic import TopicName
from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering
from tests.unit.log.logs import until


def report(cpu: float = 0.0, topics: int = 0, rate: float = 0.0, bundles: dict[str, float] | None = None) -> Any:
    stats = {name: {"msgThroughputIn": size, "msgThroughputOut": 0.0} for name, size in (bundles or {}).items()}
    return {
        "pulsarServiceUrl": "pulsar://x:6650", "cpu": {"usage": 200 * cpu, "limit": 200.0}, "numTopics": topics,
        "msgRateIn": rate, "msgRateOut": 0.0, "lastStats": stats, "bandwidthIn": {"usage": 9.0, "limit": -1000.0},
    }  # fmt: skip


# -- who takes a bundle -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reports", "assigned", "wanted"),
    [
        ({}, {}, None),
        ({"a": {}}, {}, None),  # it has not told its address
        ({"a": report(), "b": report()}, {}, "b"),  # ours among equals
        ({"a": report(topics=3), "b": report(topics=5)}, {}, "a"),
        ({"a": report(topics=3), "b": report(topics=5)}, {"a": 3}, "b"),  # what it got since its report counts
        ({"a": report(rate=9_000), "b": report(topics=5)}, {}, "b"),
        ({"a": report(rate=100), "b": report(topics=5)}, {}, "a"),
        ({"a": report(cpu=0.9), "b": report(cpu=0.5, topics=50)}, {}, "b"),  # an overloaded one is passed over
        ({"a": report(cpu=0.9), "b": report(cpu=0.95, topics=50)}, {}, "a"),  # if there is another
    ],
)
def test_who_takes_a_bundle(reports: Any, assigned: dict[str, int], wanted: str | None) -> None:
    assert choose(reports, assigned, "b") == wanted


def test_from_where_on_a_broker_is_sent_nothing() -> None:
    reports = {"a": report(cpu=0.4), "b": report(cpu=0.2, topics=50)}
    assert [choose(reports, {}, "a", overloaded) for overloaded in (0.3, 0.4, 0.1)] == ["b", "a", "a"]

    async def scenario(admin: Admin) -> None:
        ownership = admin.service.backend.ownership
        assert ownership.overloaded == 0.3
        await admin.ok("POST", "/admin/v2/brokers/configuration/loadBalancerBrokerOverloadedThresholdPercentage/60")
        assert ownership.overloaded == 0.6

    administering(scenario, overloaded_percentage=30)


def test_javas_report_is_understood() -> None:
    java = golden.rest("broker-stats-load-report")["response"]["body"]
    assert usage_of(java) == pytest.approx(149.29 / 200, abs=0.001)
    assert choose({"java": java, "ours": report(topics=52)}, {}, "ours") == "java"


def test_what_we_report() -> None:
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


def test_every_topic_counts_in_its_bundle() -> None:
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


def test_rates_are_what_flowed_between_two_looks() -> None:
    class Topics:
        open: dict[Any, Any] = {}  # noqa: RUF012

    class Topic:
        messages_in, bytes_in, subscriptions = 0, 0, {}
        persistent = False

        class producers:
            by_name: dict[str, Any] = {}  # noqa: RUF012

    rates, topics, topic = Rates(), Topics(), Topic()
    topics.open["t"] = topic
    rates.look(topics, 1_000)  # type: ignore[arg-type]
    assert rates.of("in", "t") == Flow()
    topic.messages_in, topic.bytes_in = 100, 5_000
    rates.look(topics, 11_000)  # type: ignore[arg-type]
    assert rates.of("in", "t") == Flow(10.0, 500.0)
    assert rates.of("in", "t").average_size == 50.0
    topics.open.clear()
    rates.look(topics, 21_000)  # type: ignore[arg-type]
    assert rates.of("in", "t") == Flow()


def test_the_meter_counts_since_the_last_look() -> None:
    clock, spent = [0.0], [0.0]
    meter = Meter(lambda: clock[0], lambda: spent[0])
    clock[0], spent[0] = 10.0, 5.0
    meter.look()
    assert meter.cpu == 50.0
    clock[0], spent[0] = 20.0, 6.0
    meter.look()
    assert meter.cpu == 10.0


# -- what is given up -------------------------------------------------------------------------------------------------

BUSY = report(cpu=0.9, bundles={"t/n/0x1": 50.0, "t/n/0x2": 10.0, "t/n/0x3": 5.0, "t/n/0x4": 1.0})


def rounds(shedding: Shedding, reports: Any, count: int, start: float = 0.0) -> list[list[Move]]:
    return [shedding.decide(reports, start + 60.0 * i) for i in range(count)]


def test_a_busy_broker_gives_up_some_after_some_rounds() -> None:
    shedding = Shedding()
    moves = rounds(shedding, {"a": BUSY, "b": report(cpu=0.1)}, ROUNDS)
    assert moves[:-1] == [[]] * (ROUNDS - 1)
    # half of what it has too much: 66 of 0.4 / 0.9 / 2 = 14.7, so 50 is too much, and 5 beside 10
    assert moves[-1] == [Move("a", "t/n/0x2"), Move("a", "t/n/0x4")]


def test_what_was_moved_is_left_alone_for_a_while() -> None:
    shedding, reports = Shedding(grace_s=1000.0), {"a": BUSY, "b": report(cpu=0.1)}
    first = rounds(shedding, reports, ROUNDS)[-1]
    second = rounds(shedding, reports, ROUNDS, 200.0)[-1]
    assert [move.bundle for move in first] == ["t/n/0x2", "t/n/0x4"]
    assert [move.bundle for move in second] == ["t/n/0x3"]
    assert rounds(shedding, reports, ROUNDS, 2000.0)[-1] == first


@pytest.mark.parametrize(
    "reports",
    [
        {"a": BUSY},  # there is no other
        {"a": BUSY, "b": report(cpu=0.85)},  # the other is as busy
        {"a": report(cpu=0.29, bundles={"t/n/0x1": 5.0, "t/n/0x2": 5.0}), "b": report()},  # it is idle enough
        {"a": report(cpu=0.9, bundles={"t/n/0x1": 50.0}), "b": report()},  # another would be as busy with it
        {"a": report(cpu=0.9, bundles={"t/n/0x1": 0.0, "t/n/0x2": 0.0}), "b": report()},  # it is not the traffic
    ],
)
def test_nothing_is_moved_without_need(reports: Any) -> None:
    assert rounds(Shedding(), reports, 3 * ROUNDS) == [[]] * (3 * ROUNDS)


def test_a_peak_is_no_reason() -> None:
    shedding = Shedding()
    for i in range(20):
        cpu = BUSY if i % ROUNDS else report(cpu=0.2)
        assert shedding.decide({"a": cpu, "b": report(cpu=0.1)}, 60.0 * i) == []


def test_one_that_is_too_large_is_moved_where_both_are_less_busy_then() -> None:
    two = report(cpu=0.9, bundles={"t/n/0x1": 50.0, "t/n/0x2": 50.0})
    assert rounds(Shedding(), {"a": two, "b": report(cpu=0.1)}, ROUNDS)[-1] == [Move("a", "t/n/0x1")]
    assert rounds(Shedding(), {"a": two, "b": report(cpu=0.4)}, 3 * ROUNDS) == [[]] * (3 * ROUNDS)
    one = report(cpu=0.9, bundles={"t/n/0x1": 90.0, "t/n/0x2": 0.0})
    assert rounds(Shedding(), {"a": one, "b": report(cpu=0.1)}, 3 * ROUNDS) == [[]] * (3 * ROUNDS)


def test_where_it_goes() -> None:
    moves = [Move("a", "t/n/0x1"), Move("a", "t/n/0x2"), Move("a", "t/n/0x3")]
    load = {"t/n/0x1": 40.0, "t/n/0x2": 30.0, "t/n/0x3": 10.0, "t/n/0x4": 20.0}
    reports = {"a": report(cpu=0.8, bundles=load), "b": report(cpu=0.2, topics=900), "c": report(cpu=0.3)}
    assert list(goals(moves, reports, lambda _: reports).values()) == ["b", "c", "b"]
    assert goals(moves, reports, lambda _: {"a"}) == {}
    assert set(goals(moves, reports, lambda _: {"a", "c", "gone"}).values()) == {"c"}


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_a_broker_is_busy_with_one_core(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(admin: Admin) -> None:
        monkeypatch.setattr("os.cpu_count", lambda: cores)
        for spent, share in ((0.0, 0.0), (50.0, 0.5), (100.0, 1.0), (130.0, 1.0)):
            admin.service.meter.cpu = spent
            told = load_report(admin.service)
            assert (usage_of(told), told["maxResourceUsage"]) == (share, share)

    administering(scenario)


def test_it_comes_to_rest() -> None:
    """Moved bundles take their load with them; after a few moves nothing is moved any more."""
    load = {"a": {f"t/n/{i}": 10.0 for i in range(8)}, "b": {}}
    shedding, moved = Shedding(grace_s=600.0), 0
    for i in range(200):
        reports = {name: report(cpu=sum(b.values()) / 100, bundles=b) for name, b in load.items()}
        for move in shedding.decide(reports, 60.0 * i):
            load["b" if move.broker == "a" else "a"][move.bundle] = load[move.broker].pop(move.bundle)
            moved += 1
    assert {len(load["a"]), len(load["b"])} <= {3, 4, 5}
    assert moved <= 5


# -- what is split ----------------------------------------------------------------------------------------------------

CALM = {"topics": 5, "producerCount": 1, "consumerCount": 1, "msgRateIn": 1.0, "msgRateOut": 1.0}


@pytest.mark.parametrize(
    ("stats", "split"),
    [
        ({}, False),
        ({"topics": 1001}, True),
        ({"consumerCount": 600, "producerCount": 600}, True),
        ({"msgRateIn": 20_000.0, "msgRateOut": 20_000.0}, True),
        ({"msgThroughputIn": 2e8}, True),
        ({"msgThroughputIn": 2e8, "topics": 1}, False),  # its half would be as large
    ],
)
def test_what_is_split(stats: dict[str, float], split: bool) -> None:
    name = "t/n/0x00000000_0xffffffff"
    assert too_large({name: CALM | stats}, {"t/n": 1}, SplitLimits()) == ([name] if split else [])
    assert too_large({name: CALM | stats}, {"t/n": 128}, SplitLimits()) == []


def test_a_large_bundle_is_split_and_its_topics_are_served_on() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/namespaces/public/big", {"bundles": {"numBundles": 1}})
        names = [f"persistent://public/big/t{i}" for i in range(6)]
        for name in names:
            await admin.topic(name)
        await Balancer(admin.service).run()
        bundles = await admin.ok("GET", "/admin/v2/namespaces/public/big/bundles")
        assert bundles["boundaries"] == ["0x00000000", "0x7fffffff", "0xffffffff"]
        for name in names:
            assert not (await admin.topic(name)).closed
        told = bundle_stats(admin.service)
        assert sum(one["topics"] for one in told.values()) == 6
        assert len(told) == 2

    administering(scenario, split_topics=5)


def test_loads_are_compared_as_often_as_it_is_asked_for() -> None:
    async def scenario(admin: Admin) -> None:
        await until(lambda: admin.service.backend.ownership.leading)
        balancer, compared = Balancer(admin.service), []

        async def shed(reports: Any) -> list[Move]:
            compared.append(reports)
            return []

        balancer.shed = shed  # type: ignore[method-assign]
        for _ in range(7):
            await balancer.run()
        assert len(compared) == 2
        await admin.ok("POST", "/admin/v2/brokers/configuration/loadBalancerSheddingIntervalMinutes/1")
        await balancer.run()
        assert len(compared) == 3

    administering(scenario, shedding_minutes=3)


def test_the_leader_unloads_its_own_bundle() -> None:
    async def scenario(admin: Admin) -> None:
        ownership = admin.service.backend.ownership
        await until(lambda: ownership.leading)
        topic = await admin.topic("public/default/a")
        await admin.topic("public/default/b")
        (first, second) = sorted(map(str, ownership.owned))
        reports = {
            "a:8080": report(cpu=0.9, bundles={first: 90.0, second: 5.0}),
            "b:8080": report(cpu=0.1),
        }
        balancer = Balancer(admin.service)
        moves = [await balancer.shed(reports) for _ in range(ROUNDS)]
        assert moves[-1] == [Move("a:8080", second)]
        assert set(map(str, ownership.owned)) == {first}
        assert balancer.unloaded == 1
        assert {str(bundle): goal for bundle, goal in ownership.goals.items()} == {second: "b:8080"}
        assert str(await ownership.bundle_of(topic.name)) in (first, second)

    administering(scenario)


# -- a broker that leaves ---------------------------------------------------------------------------------------------


def test_a_broker_that_leaves_hands_its_bundles_over() -> None:
    async def scenario(admin: Admin) -> None:
        ours = admin.service.backend.ownership
        await until(lambda: ours.leading)
        topic = await admin.topic("public/default/a")
        address = BrokerAddress("b:8080", "pulsar://b:6650", "http://b:8080")
        other = Ownership(MemoryStore(admin.cluster.tree), address, "lab")
        other.report = lambda: {"pulsarServiceUrl": "pulsar://b:6650", "webServiceUrl": "http://b:8080"}
        await other.start()
        seen: list[object] = []

        async def close(bundle: Any) -> None:
            with pytest.raises(Unavailable):  # nobody is sent here while topics are being closed
                await other.lookup(topic.name, authoritative=True)
            await admin.service.close_bundle(bundle)
            seen.append(topic.closed)

        await ours.leave(close)
        assert seen == [True]
        assert await ours.brokers.brokers() == ["b:8080"]
        await until(lambda: other.leading)
        led = await ours.lookup(topic.name, authoritative=True)  # a client that still asks us
        assert (led.broker_url, led.redirect) == ("pulsar://b:6650", True)
        assert ours.owned == set()
        found = await other.lookup(TopicName.parse("public/default/a"), authoritative=False)
        assert (found.broker_url, found.redirect) == ("pulsar://b:6650", False)
        assert (await ours.lookup(topic.name, authoritative=False)).broker_url == "pulsar://b:6650"
        await other.stop()

    administering(scenario)
