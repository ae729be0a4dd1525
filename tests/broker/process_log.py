"""The log of a broker's process, for tests that run brokers as processes."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.broker.watch import WOKEN


def dispatchers_woken(log: Path) -> list[str]:
    """Return the lines that report a lost wake-up: a bug that the broker's watch hides from clients."""
    if not log.exists():
        return []
    return [line for line in log.read_text(errors="replace").splitlines() if WOKEN in line]
