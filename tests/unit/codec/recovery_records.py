"""Records of auto recovery for tests."""

from __future__ import annotations

from bkctl.codec.recovery_notes import (
    CheckName,
    CheckResult,
    Finding,
    LedgerNote,
    LostNote,
    WorkerNote,
)

RESULT = CheckResult(
    CheckName.REPLICAS, "b1:3181", 1, 2, {"ledgers": 7}, (Finding(5, "entry 3 is on no bookie"),), 1, None, ("q_1",)
)


WORKER = WorkerNote("w", "host", 9, 1_000, 2_000, 3, 4, (LedgerNote(5, "copying", 8),))


LOST = LostNote(5, 1, 2, 3, 4, "w", "nobody has it", (7, 8), 2)
