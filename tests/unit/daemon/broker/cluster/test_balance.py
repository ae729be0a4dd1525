"""Placement of bundles: the broker that takes one, the bundles that leave an overloaded broker or are split."""

from __future__ import annotations

from typing import Any

import pytest
from bkdaemon.broker.cluster.balance import ROUNDS, Move, Shedding, SplitLimits, choose, goals, too_large, usage_of

from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.cluster.reports import report

BUSY = report(cpu=0.9, bundles={"t/n/0x1": 50.0, "t/n/0x2": 10.0, "t/n/0x3": 5.0, "t/n/0x4": 1.0})
CALM = {"topics": 5, "producerCount": 1, "consumerCount": 1, "msgRateIn": 1.0, "msgRateOut": 1.0}
MOVED = {f"t/n/{number}" for number in range(9)}


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
def test_the_least_loaded_broker_takes_a_bundle(reports: Any, assigned: dict[str, int], wanted: str | None) -> None:
    assert choose(reports, assigned, "b") == wanted


def test_a_broker_above_the_overload_threshold_takes_no_bundle() -> None:
    reports = {"a": report(cpu=0.4), "b": report(cpu=0.2, topics=50)}
    assert [choose(reports, {}, "a", overloaded) for overloaded in (0.3, 0.4, 0.1)] == ["b", "a", "a"]

    async def scenario(admin: Admin) -> None:
        ownership = admin.service.backend.ownership
        assert ownership.overloaded == 0.3
        await admin.ok("POST", "/admin/v2/brokers/configuration/loadBalancerBrokerOverloadedThresholdPercentage/60")
        assert ownership.overloaded == 0.6

    administering(scenario, overloaded_percentage=30)


def test_a_load_report_of_java_is_compared_with_ours() -> None:
    java = golden.rest("broker-stats-load-report")["response"]["body"]
    assert usage_of(java) == pytest.approx(149.29 / 200, abs=0.001)
    assert choose({"java": java, "ours": report(topics=52)}, {}, "ours") == "java"


def rounds(shedding: Shedding, reports: Any, count: int, start: float = 0.0) -> list[list[Move]]:
    return [shedding.decide(reports, start + 60.0 * i) for i in range(count)]


def test_an_overloaded_broker_releases_bundles_after_some_rounds() -> None:
    shedding = Shedding()
    moves = rounds(shedding, {"a": BUSY, "b": report(cpu=0.1)}, ROUNDS)
    assert moves[:-1] == [[]] * (ROUNDS - 1)
    # half of what it has too much: 66 of 0.4 / 0.9 / 2 = 14.7, so 50 is too much, and 5 beside 10
    assert moves[-1] == [Move("a", "t/n/0x2"), Move("a", "t/n/0x4")]


def test_a_moved_bundle_stays_for_the_grace_period() -> None:
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
def test_no_bundle_is_moved_where_that_does_not_help(reports: Any) -> None:
    assert rounds(Shedding(), reports, 3 * ROUNDS) == [[]] * (3 * ROUNDS)


def test_a_short_peak_moves_no_bundle() -> None:
    shedding = Shedding()
    for i in range(20):
        cpu = BUSY if i % ROUNDS else report(cpu=0.2)
        assert shedding.decide({"a": cpu, "b": report(cpu=0.1)}, 60.0 * i) == []


def test_a_large_bundle_is_moved_only_if_both_brokers_are_less_busy_then() -> None:
    two = report(cpu=0.9, bundles={"t/n/0x1": 50.0, "t/n/0x2": 50.0})
    assert rounds(Shedding(), {"a": two, "b": report(cpu=0.1)}, ROUNDS)[-1] == [Move("a", "t/n/0x1")]
    assert rounds(Shedding(), {"a": two, "b": report(cpu=0.4)}, 3 * ROUNDS) == [[]] * (3 * ROUNDS)
    one = report(cpu=0.9, bundles={"t/n/0x1": 90.0, "t/n/0x2": 0.0})
    assert rounds(Shedding(), {"a": one, "b": report(cpu=0.1)}, 3 * ROUNDS) == [[]] * (3 * ROUNDS)


def test_moved_bundles_go_to_the_least_busy_allowed_brokers() -> None:
    moves = [Move("a", "t/n/0x1"), Move("a", "t/n/0x2"), Move("a", "t/n/0x3")]
    load = {"t/n/0x1": 40.0, "t/n/0x2": 30.0, "t/n/0x3": 10.0, "t/n/0x4": 20.0}
    reports = {"a": report(cpu=0.8, bundles=load), "b": report(cpu=0.2, topics=900), "c": report(cpu=0.3)}
    assert list(goals(moves, reports, lambda _: reports).values()) == ["b", "c", "b"]
    assert goals(moves, reports, lambda _: {"a"}) == {}
    assert set(goals(moves, reports, lambda _: {"a", "c", "gone"}).values()) == {"c"}


def test_shedding_ends_when_the_load_is_balanced() -> None:
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
def test_a_bundle_above_a_threshold_is_split(stats: dict[str, float], split: bool) -> None:
    name = "t/n/0x00000000_0xffffffff"
    assert too_large({name: CALM | stats}, {"t/n": 1}, SplitLimits()) == ([name] if split else [])
    assert too_large({name: CALM | stats}, {"t/n": 128}, SplitLimits()) == []


def test_an_overloaded_broker_keeps_bundles_that_no_other_may_take() -> None:
    stats = {name: {"msgThroughputIn": 10.0, "msgThroughputOut": 0.0} for name in ("t/m/x", *MOVED)}
    busy = {"cpu": {"usage": 80.0, "limit": 100.0}, "lastStats": stats}
    reports = {"a:1": busy, "b:1": {"cpu": {"usage": 0.0, "limit": 100.0}}}
    moves: list[Move] = []
    shedding = Shedding(grace_s=1e9)
    for number in range(9 * ROUNDS):
        moves += shedding.decide(reports, 60.0 * number, lambda move: move.bundle != "t/m/x")
    assert {move.bundle for move in moves} == MOVED
    assert shedding.decide(reports, 0.0, lambda _: False) == []
