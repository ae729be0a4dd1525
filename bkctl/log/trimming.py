"""Which ledgers of a topic may go: those that every durable cursor has passed, as far as retention allows. Pure.

Oldest first, never the last one, which is open or was when the topic was terminated, and none after one that is kept.
A ledger that all cursors passed goes when its time is over, or when what is left is still enough for the size to be
retained. Source: ManagedLedgerImpl.java (internalTrimLedgers)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bkctl.log.ledgers import LedgerList
from bkctl.model.topic import Position


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of ledgers that all cursors passed, in seconds and bytes: -1 unlimited, 0 none."""

    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """One ledger: why it is kept, or None if it may go. cursor is the one that holds it, where one does."""

    ledger_id: int
    kept: str | None
    cursor: str | None = None


def judge(
    ledgers: LedgerList, cursors: Iterable[tuple[str, Position]], retention: Retention, now_ms: int
) -> list[Verdict]:
    """A verdict for every ledger, ascending. cursors are the durable ones with their mark-delete positions."""
    slowest = min(cursors, key=lambda c: c[1], default=None)
    verdicts: list[Verdict] = []
    total, passed = ledgers.size_total, 0
    blocked = False
    for ledger_id in ledgers.ids:
        if ledger_id == ledgers.ids[-1]:
            verdicts.append(Verdict(ledger_id, "it is open" if ledger_id == ledgers.open_id else "it is the last one"))
        elif slowest is not None and not _passed(ledgers, slowest[1], ledger_id):
            left = ledgers.between(slowest[1], ledgers.last)
            verdicts.append(
                Verdict(
                    ledger_id,
                    f"subscription {slowest[0]} has {left} entries after its mark-delete position",
                    slowest[0],
                )
            )
        elif blocked:
            verdicts.append(Verdict(ledger_id, "an older one is retained"))
        else:
            passed += ledgers.size(ledger_id)
            age_s = (now_ms - (ledgers.infos[ledger_id].timestamp_ms or now_ms)) / 1000
            expired = 0 <= retention.seconds < age_s
            enough = 0 <= retention.size <= total - passed
            if expired or enough:
                verdicts.append(Verdict(ledger_id, None))
            else:
                blocked = True
                verdicts.append(Verdict(ledger_id, _retained(retention, age_s)))
    return verdicts


def _passed(ledgers: LedgerList, mark_delete: Position, ledger_id: int) -> bool:
    if mark_delete.ledger_id != ledger_id:
        return mark_delete.ledger_id > ledger_id
    return mark_delete.entry_id + 1 >= ledgers.entries(ledger_id)


def _retained(retention: Retention, age_s: float) -> str:
    if retention.seconds < 0 and retention.size < 0:
        return "retention is for ever"
    parts = []
    if retention.seconds >= 0:
        parts.append(f"closed {age_s:.0f} s ago of {retention.seconds:.0f} s")
    if retention.size >= 0:
        parts.append(f"within {retention.size} bytes")
    return "retention: " + ", ".join(parts)
