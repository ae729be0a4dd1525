"""The decisions of an auditor, as pure functions: when to audit after bookies were lost, and which ledgers to mark.

    event                           decision
    bookies came or went            all that were waited for are back: cancel the delayed audit
                                    some are gone:  delay 0, or more than one is gone     audit now
                                                    one is gone, no audit is delayed yet  audit in `delay`
    delay changed                   to 0, or written again as it was (a trigger)          audit now
                                    otherwise, if an audit is delayed                     restart the delay, in full
    the delayed audit is due        audit now
    a check is requested            audit now

An audit is always the check of all bookies, never only of those that went. Source: Auditor.java (submitAuditTask,
LostBookieRecoveryDelayChangedCb), AuditorBookieCheckTask.java; docs/concepts/auto-recovery.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from bkctl.model.cluster import ClusterSnapshot
from bkctl.model.ids import BookieId


@dataclass(frozen=True, slots=True)
class AuditNow:
    """Check all bookies."""

    reason: str


@dataclass(frozen=True, slots=True)
class AuditLater:
    """Check all bookies in delay_s seconds, unless another event changes the decision."""

    delay_s: int
    reason: str


@dataclass(frozen=True, slots=True)
class CancelAudit:
    """Cancel the delayed audit."""

    reason: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Put the ledger into the queue of under-replicated ledgers, with the bookies it lost."""

    ledger_id: int
    missing: tuple[BookieId, ...]


Step: TypeAlias = AuditNow | AuditLater | CancelAudit


@dataclass(frozen=True, slots=True)
class Watchfulness:
    """The state of the auditor between events.

    known are the expected bookies, awaiting the lost ones that no audit has handled yet; delayed: an audit is
    scheduled; delay_s is the last value read from the metadata store.
    """

    known: frozenset[BookieId] = frozenset()
    awaiting: frozenset[BookieId] = frozenset()
    delayed: bool = False
    delay_s: int = 0

    def bookies_changed(self, available: Collection[BookieId], delay_s: int) -> tuple[Watchfulness, list[Step]]:
        """Decides after a change of the lists of bookies; delay_s is freshly read."""
        present = frozenset(available)
        known = self.known | present
        awaiting = self.awaiting - present
        steps: list[Step] = []
        delayed = self.delayed
        if self.awaiting and not awaiting:
            if delayed:
                steps.append(CancelAudit(f"{_names(self.awaiting)} returned"))
            delayed = False
        awaiting |= known - present
        changed = replace(self, known=known - awaiting, awaiting=awaiting, delayed=delayed, delay_s=delay_s)
        if not awaiting:
            return changed, steps
        reason = f"lost {_names(awaiting)}"
        if delay_s == 0 or len(awaiting) > 1:
            return changed._audit(steps, reason)
        if not delayed:
            steps.append(AuditLater(delay_s, reason))
            changed = replace(changed, delayed=True)
        return changed, steps

    def delay_changed(self, delay_s: int) -> tuple[Watchfulness, list[Step]]:
        """Decides after lostBookieRecoveryDelay was written, even with its old value."""
        steps: list[Step] = []
        if delay_s == 0 or delay_s == self.delay_s:
            return replace(self, delay_s=delay_s)._audit(steps, "requested")
        if self.delayed:
            steps = [CancelAudit("the delay was changed"), AuditLater(delay_s, f"lost {_names(self.awaiting)}")]
        return replace(self, delay_s=delay_s), steps

    def due(self) -> tuple[Watchfulness, list[Step]]:
        """Decides when the delayed audit is due."""
        if not self.delayed:
            return self, []
        return replace(self, delayed=False)._audit([], f"lost {_names(self.awaiting)}, and the delay is over")

    def asked(self) -> tuple[Watchfulness, list[Step]]:
        """Decides when the check of all bookies is requested."""
        return self._audit([], "requested")

    def _audit(self, steps: list[Step], reason: str) -> tuple[Watchfulness, list[Step]]:
        if self.delayed:
            steps.append(CancelAudit(reason))
        steps.append(AuditNow(reason))
        return replace(self, awaiting=frozenset(), delayed=False), steps


def decide(snapshot: ClusterSnapshot) -> list[Mark]:
    """The bookie check: every ledger that names a bookie which is not registered, ascending, with all it lost."""
    missing: dict[int, list[BookieId]] = {}
    for bookie in sorted(snapshot.lost):
        for ledger_id in snapshot.ledgers_of[bookie]:
            missing.setdefault(ledger_id, []).append(bookie)
    return [Mark(ledger_id, tuple(missing[ledger_id])) for ledger_id in sorted(missing)]


def first_run_s(interval_s: float, last_run_ms: int | None, now_ms: int) -> float:
    """Seconds until a periodic check is due: at once if it never ran or is overdue. interval_s is above 0."""
    if last_run_ms is None:
        return 0.0
    return min(max(interval_s - (now_ms - last_run_ms) / 1000, 0.0), interval_s)


def _names(bookies: Collection[BookieId]) -> str:
    return ", ".join(sorted(bookies))
