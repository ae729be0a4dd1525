"""Fences a ledger without closing it: its writer cannot add entries any more, and its end is not determined.

The metadata says IN_RECOVERY afterwards, until the ledger is recovered. Fencing cannot be undone.
"""

from __future__ import annotations

from bkctl.client.client import BookKeeper
from bkctl.errors import LedgerClosed
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkrecovery.ledger import RecoveryReport, run_recovery


async def fence_ledger(
    bookkeeper: BookKeeper, ledger_id: int, password: bytes | None = b"", digest_type: DigestType | None = None
) -> RecoveryReport:
    """Marks the ledger IN_RECOVERY and fences bookies until no ack quorum without a fenced one is left.

    Raises:
        LedgerClosed: a closed ledger cannot be fenced. NoSuchLedger; Unauthorized: another password.
        Unavailable: too few bookies answered to be sure; the ledger is IN_RECOVERY, try again.
    """
    report = await run_recovery(bookkeeper, ledger_id, password, digest_type, fence_only=True)
    if report.metadata.closed:
        raise LedgerClosed(
            f"ledger {ledger_id} is closed at entry {report.metadata.last_entry_id}: nothing to fence",
            status=Status.OK,
            ledger_id=ledger_id,
        )
    return report
