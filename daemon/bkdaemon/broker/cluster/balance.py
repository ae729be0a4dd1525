"""Placement of bundles: the broker that takes one, those that an overloaded broker unloads, those that are split.

    choose     the broker with the lowest cost: messages a second, topics, and what was assigned since its report;
               an overloaded one only if all are overloaded
    Shedding   the leader, once a round: a broker is unloaded only after ROUNDS in a row far above the average, and only
               of as many bundles as bring it half the way back, or of one where none is so small and it is better
               off without; a bundle that was moved stays for a while
    goals      where those bundles go: the least loaded broker, so that no bundle returns to its old broker
    too_large  a bundle with more topics, clients, messages or bytes than a threshold, each a key of broker.conf

Reports are LocalBrokerData, as Java's brokers store them too. Source: ModularLoadManagerImpl.java,
LeastLongTermMessageRate.java, ThresholdShedder.java, BundleSplitterTask.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

Report: TypeAlias = Mapping[str, Any]

OVERLOADED: Final = 0.85
"""loadBalancerBrokerOverloadedThresholdPercentage: a broker with this load gets no bundles."""
MESSAGES_PER_TOPIC: Final = 1_000.0
"""Messages a second that cost as much as an idle topic."""
ROUNDS: Final = 3
"""Rounds in a row that a broker must be overloaded before it is unloaded."""
BUNDLES_PER_ROUND_MAX: Final = 4
ROUNDING: Final = 1e-6
IDLE: Final = 0.3
"""A broker with less load than this unloads no bundle, however idle the others are."""


def choose(
    reports: Mapping[str, Report], assigned: Mapping[str, int], ours: str, overloaded: float = OVERLOADED
) -> str | None:
    """Returns the broker that shall take an unowned bundle; None if no broker is registered.

    Args:
        reports: by broker id; those without an address are skipped.
        assigned: bundles that were given to a broker since its report.
        ours: the broker that is preferred among equals.
        overloaded: the load from which on a broker is chosen only if all have it.
    """
    known = {name: report for name, report in reports.items() if report.get("pulsarServiceUrl")}
    if not known:
        return None

    def rank(name: str) -> tuple[bool, float, bool, str]:
        report = known[name]
        return usage_of(report) > overloaded, _cost(report, assigned.get(name, 0)), name != ours, name

    return min(known, key=rank)


def _cost(report: Report, assigned: int) -> float:
    messages = float(report.get("msgRateIn", 0)) + float(report.get("msgRateOut", 0))
    return int(report.get("numTopics", 0)) + assigned + messages / MESSAGES_PER_TOPIC


def usage_of(report: Report) -> float:
    """Returns the load of a broker, 0 to 1: the highest of CPU, inbound and outbound bandwidth."""
    shares = [0.0]
    for resource in ("cpu", "bandwidthIn", "bandwidthOut"):
        found = report.get(resource) or {}
        limit = float(found.get("limit", 0))
        if limit > 0:
            shares.append(float(found.get("usage", 0)) / limit)
    return max(shares)


class Move(NamedTuple):
    """A bundle that a broker shall unload."""

    broker: str
    bundle: str


class Shedding:
    """The state of the leader between rounds.

    Attributes:
        threshold: how far above the average, 0 to 1, a broker may be.
        grace_s: how long a moved bundle is not moved again.
    """

    def __init__(self, threshold: float = 0.1, grace_s: float = 1800.0) -> None:
        self.threshold = threshold
        self.grace_s = grace_s
        self._rounds: dict[str, int] = {}
        self._moved_at: dict[str, float] = {}

    def decide(
        self, reports: Mapping[str, Report], now_s: float, movable: Callable[[Move], bool] = lambda _: True
    ) -> list[Move]:
        """Returns the bundles to unload now; usually none, and never one that no other broker may take."""
        self._moved_at = {b: at for b, at in self._moved_at.items() if now_s - at < self.grace_s}
        usages = {name: usage_of(report) for name, report in reports.items()}
        if len(usages) < 2:
            self._rounds.clear()
            return []
        average = sum(usages.values()) / len(usages)
        busy = {name for name, usage in usages.items() if usage > max(average + self.threshold, IDLE)}
        self._rounds = {name: self._rounds.get(name, 0) + 1 for name in busy}
        moves: list[Move] = []
        for name in sorted(busy):
            if self._rounds[name] >= ROUNDS:
                few = self._surplus(name, reports[name], usages[name], average, movable)
                low = min(usage for other, usage in usages.items() if other != name)
                moves += few or self._one(name, reports[name], usages[name], low, movable)
                self._rounds[name] = 0
        self._moved_at |= {move.bundle: now_s for move in moves}
        return moves

    def _surplus(
        self, broker: str, report: Report, usage: float, average: float, movable: Callable[[Move], bool]
    ) -> list[Move]:
        """Returns bundles with the traffic that the broker has too much, the busiest that fit first."""
        stats = _traffics(report)
        total = sum(stats.values())
        if len(stats) < 2 or not total:
            return []  # nothing to give up, or another would be as busy with it
        left = total * ((usage - average) / usage / 2 + ROUNDING)
        found: list[Move] = []
        for name in sorted(stats, key=lambda one: (-stats[one], one)):
            move, fits = Move(broker, name), 0 < stats[name] <= left and len(found) < BUNDLES_PER_ROUND_MAX
            if fits and name not in self._moved_at and movable(move):
                found.append(move)
                left -= stats[name]
        return found

    def _one(
        self, broker: str, report: Report, usage: float, low: float, movable: Callable[[Move], bool]
    ) -> list[Move]:
        """Returns the bundle whose move reduces the load of the busier broker most, [] if none reduces it."""
        stats = _traffics(report)
        total = sum(stats.values())
        best, found = usage - self.threshold + ROUNDING, list[Move]()
        for name in sorted(stats):
            share = usage * stats[name] / total if total else 0.0
            busiest, move = max(usage - share, low + share), Move(broker, name)
            if share > 0 and busiest < best and name not in self._moved_at and movable(move):
                best, found = busiest, [move]
        return found


def goals(
    moves: Iterable[Move], reports: Mapping[str, Report], allowed: Callable[[Move], Iterable[str]]
) -> dict[Move, str]:
    """Returns the target of each bundle: the least loaded other broker that may take it, counting earlier bundles."""
    usages = {name: usage_of(report) for name, report in reports.items()}
    found: dict[Move, str] = {}
    for move in moves:
        others = [name for name in allowed(move) if name in usages and name != move.broker]
        if not others:
            continue
        found[move] = goal = min(others, key=lambda name: (usages[name], name))
        stats = _traffics(reports[move.broker])
        total = sum(stats.values())
        usages[goal] += usage_of(reports[move.broker]) * stats.get(move.bundle, 0.0) / total if total else 0.0
    return found


def _traffics(report: Report) -> dict[str, float]:
    return {name: _traffic(one) for name, one in (report.get("lastStats") or {}).items()}


def _traffic(stats: Mapping[str, Any]) -> float:
    return float(stats.get("msgThroughputIn", 0)) + float(stats.get("msgThroughputOut", 0))


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """Thresholds from which on a bundle is too large; the defaults are Java's."""

    topics: int = 1_000
    sessions: int = 1_000
    message_rate: float = 30_000.0
    bytes_per_s: float = 100 * 1024 * 1024.0
    bundles_per_namespace: int = 128


def too_large(stats: Mapping[str, Mapping[str, Any]], counts: Mapping[str, int], limits: SplitLimits) -> list[str]:
    """Returns the bundles to split; stats: by tenant/namespace/range; counts: of all bundles by namespace."""
    found: list[str] = []
    counts = dict(counts)
    for name, one in sorted(stats.items()):
        namespace = name.rpartition("/")[0]
        if int(one.get("topics", 0)) < 2 or counts.get(namespace, 0) >= limits.bundles_per_namespace:
            continue
        rate = float(one.get("msgRateIn", 0)) + float(one.get("msgRateOut", 0))
        sessions = int(one.get("consumerCount", 0)) + int(one.get("producerCount", 0))
        over = (
            one["topics"] > limits.topics
            or 0 < limits.sessions < sessions
            or rate > limits.message_rate
            or _traffic(one) > limits.bytes_per_s
        )
        if over:
            found.append(name)
            counts[namespace] = counts.get(namespace, 0) + 1
    return found
