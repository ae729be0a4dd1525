"""Load reports of brokers, for tests of this folder."""

from __future__ import annotations

from typing import Any


def report(cpu: float = 0.0, topics: int = 0, rate: float = 0.0, bundles: dict[str, float] | None = None) -> Any:
    stats = {name: {"msgThroughputIn": size, "msgThroughputOut": 0.0} for name, size in (bundles or {}).items()}
    return {
        "pulsarServiceUrl": "pulsar://x:6650", "cpu": {"usage": 200 * cpu, "limit": 200.0}, "numTopics": topics,
        "msgRateIn": rate, "msgRateOut": 0.0, "lastStats": stats, "bandwidthIn": {"usage": 9.0, "limit": -1000.0},
    }  # fmt: skip
