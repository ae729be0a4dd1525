"""How one managed ledger is kept: its quorums, when ledgers are rolled over, what cursors store, what is retained.

Defaults are those of Pulsar's broker.conf. Source: ManagedLedgerConfig.java, broker.conf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bkctl.model.ledger import DigestType

FOR_EVER: Final = -1


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Settings of one managed ledger; times in seconds, sizes in bytes.

    A ledger is full at entries_max, size_max_bytes or rollover_max_s, but never before rollover_min_s (0: at once).
    retention_s and retention_bytes: FOR_EVER keeps everything, 0 nothing; a ledger goes when either is exceeded.
    mark_delete_rate: cursor writes per second without a waiting caller; 0 writes at once.
    groups, secondary_groups: of bookies, that new ledgers go to, the second where the first are too few; () for any.
    skip_lost: ledgers and entries that are lost for good are passed and acknowledged, not waited for.
    ranges_in_node_max: more ranges than that stay in the cursor's ledger when the cursor is closed.
    """

    ensemble_size: int = 2
    write_quorum_size: int = 2
    ack_quorum_size: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    entries_max: int = 50_000
    size_max_bytes: int = 2048 * 1024 * 1024
    rollover_min_s: float = 600.0
    rollover_max_s: float = 240 * 60.0
    cursor_entries_max: int = 50_000
    cursor_age_max_s: float = 14_400.0
    mark_delete_rate: float = 1.0
    ranges_max: int = 10_000
    ranges_in_node_max: int = 1_000
    retention_s: float = 0.0
    retention_bytes: int = 0
    retention_check_s: float = 120.0
    skip_lost: bool = False
    groups: tuple[str, ...] = ()
    secondary_groups: tuple[str, ...] = ()
