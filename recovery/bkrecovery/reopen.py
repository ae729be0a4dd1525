"""Reopens a closed ledger: CLOSED → IN_RECOVERY by compare-and-set, so that recovery determines its end again.

For a ledger that was closed too early: bookies were declared lost and returned with entries after its end. It never
becomes writable again: its bookies are fenced, and its writer uses another ledger. Recovery starts after the last entry
that its bookies confirm and includes every entry it finds, so the ledger may become longer; it becomes shorter only if
entries have been lost, which is refused unless requested.

    state now     what happens
    CLOSED        IN_RECOVERY, if recovery would come to an end, not in front of the old one
    IN_RECOVERY   nothing: `ledger recover` closes it
    OPEN          refused: it has no end yet
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.client.client import BookKeeper
from bkctl.errors import Refused
from bkctl.meta.store import Version
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkrecovery.explain import Explanation, explain_metadata


@dataclass(frozen=True, slots=True)
class ReopenPlan:
    """The plan of a reopen: the metadata and its version, and the expected result of recovery, if needed."""

    ledger_id: int
    metadata: LedgerMetadata
    version: Version
    explanation: Explanation | None = None

    @property
    def closes_at(self) -> int | None:
        """Where recovery would close it now; None if it would have to wait."""
        return self.explanation.closes_at if self.explanation is not None else None

    @property
    def refusal(self) -> str | None:
        """Why reopening it now could lose data; None if it cannot."""
        if self.metadata.state is not LedgerState.CLOSED:
            return None
        old = self.metadata.last_entry_id
        if self.closes_at is None:
            reason = self.explanation.verdict if self.explanation is not None else ""
            return f"ledger {self.ledger_id} could not be closed again: {reason}"
        if self.closes_at < old:
            return (
                f"ledger {self.ledger_id} would be closed at entry {self.closes_at}, before its end at {old}: "
                "entries that clients may have read would be truncated"
            )
        return None


async def plan_reopen(bookkeeper: BookKeeper, ledger_id: int, password: bytes | None = None) -> ReopenPlan:
    """Plans the reopening of a closed ledger, without fencing.

    Raises:
        NoSuchLedger; Unauthorized: another password. Refused: it is open.
    """
    metadata, version = await bookkeeper.ledgers.read(ledger_id)
    if metadata.state is LedgerState.OPEN:
        raise Refused(
            f"ledger {ledger_id} is open: only a closed ledger can be reopened",
            hint=f"bkctl ledger recover {ledger_id} closes it",
        )
    if metadata.state is LedgerState.IN_RECOVERY:
        return ReopenPlan(ledger_id, metadata, version)
    explanation = await explain_metadata(bookkeeper, ledger_id, metadata.in_recovery(), password)
    return ReopenPlan(ledger_id, metadata, version, explanation)


async def reopen_ledger(bookkeeper: BookKeeper, plan: ReopenPlan) -> Version:
    """Sets the ledger to IN_RECOVERY if it has not changed since the plan; returns the new version.

    A last ensemble that starts after the old end of the ledger, as an empty one may, stays: recovery begins there.

    Raises:
        Conflict: it has changed.
    """
    if plan.metadata.state is LedgerState.IN_RECOVERY:
        return plan.version
    return await bookkeeper.ledgers.write(plan.ledger_id, plan.metadata.in_recovery(), plan.version)
