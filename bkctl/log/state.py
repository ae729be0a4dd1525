"""The states of a managed ledger."""

from __future__ import annotations

from enum import Enum, unique


@unique
class State(Enum):
    """Where a managed ledger is in its life."""

    OPEN = "open"
    SWITCHING = "switching"
    TERMINATED = "terminated"
    CLOSED = "closed"
    FAILED = "failed"
