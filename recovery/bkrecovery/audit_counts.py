"""The counters of an auditor for metrics, and the results of one run of a check."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bkctl.codec.recovery_notes import FINDINGS_MAX, CheckName, Finding
from bkctl.errors import BadBytes


@dataclass(slots=True)
class OpStat:
    """Events and the sum of their values: what Java calls an OpStatsLogger, without its quantiles."""

    count: int = 0
    sum: float = 0.0
    failed_count: int = 0
    failed_sum: float = 0.0

    def add(self, value: float, *, well: bool = True) -> None:
        """One event."""
        if well:
            self.count += 1
            self.sum += value
        else:
            self.failed_count += 1
            self.failed_sum += value


@dataclass(slots=True)
class AuditCounts:
    """The counters of this auditor; the last_ values are those of the last run of their check."""

    bookie_checks: int = 0
    ledger_checks: int = 0
    ledgers_checked: int = 0
    audits_delayed: int = 0
    audits_cancelled: int = 0
    marked: int = 0
    requests: int = 0
    last_bookie_check_s: float = 0.0
    last_ledger_check_s: float = 0.0
    last_lost: int = 0
    last_broken: int = 0
    last_not_adhering: int = 0
    last_softly_adhering: int = 0
    last_no_replica: int = 0
    last_below_ack_quorum: int = 0
    last_below_write_quorum: int = 0
    overdue: int = 0
    run_ms: dict[CheckName, OpStat] = field(default_factory=lambda: {name: OpStat() for name in CheckName})
    snapshot_ms: OpStat = field(default_factory=OpStat)
    publish_ms: OpStat = field(default_factory=OpStat)
    marked_a_run: OpStat = field(default_factory=OpStat)
    fragments_a_ledger: OpStat = field(default_factory=OpStat)
    bookies_a_ledger: OpStat = field(default_factory=OpStat)


class Found:
    """The results of one run of a check: counts by name, and the first FINDINGS_MAX findings."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.count = 0
        self.stopped = False

    def note(self, ledger_id: int, text: str) -> None:
        """Adds a finding."""
        self.count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(ledger_id, text))

    def broken(self, ledger_id: int, error: BadBytes) -> None:
        """Adds a ledger whose metadata cannot be read: it is logged and skipped."""
        self.figures["broken_ledgers"] += 1
        self.note(ledger_id, f"cannot read its metadata: {error}")

    def clear(self) -> None:
        """Deletes all results."""
        self.figures.clear()
        self.findings.clear()
        self.count, self.stopped = 0, False
