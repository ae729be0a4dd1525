"""Which ledgers of a log may be deleted: cursors, retention by time and by size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.log.ledgers import LedgerList
from bkctl.log.trimming import Retention, Verdict, judge
from bkctl.model.topic import Position
from tests.unit.log.rows import row

NONE = Retention(0, 0)
FOREVER = Retention(-1, -1)
NOW_MS = 1_000_000


def closed_at(ledgers: LedgerList, *ages_s: float) -> LedgerList:
    """The same, its closed ledgers with these ages at NOW_MS."""
    for ledger_id, age_s in zip(ledgers.ids, ages_s, strict=False):
        info = ledgers.infos[ledger_id]
        ledgers.infos[ledger_id] = replace(info, timestamp_ms=int(NOW_MS - 1000 * age_s))
    return ledgers


def deletable(verdicts: list[Verdict]) -> list[int]:
    return [verdict.ledger_id for verdict in verdicts if verdict.kept is None]


def test_ledgers_that_every_cursor_passed_are_deletable_without_retention() -> None:
    ledgers = closed_at(row(3, 3, 3, open_entries=1), 30, 20, 10)
    cursors = [("slow", Position(20, 2)), ("fast", Position(40, 0))]
    verdicts = judge(ledgers, cursors, NONE, NOW_MS)
    assert [verdict.ledger_id for verdict in verdicts] == ledgers.ids
    assert deletable(verdicts) == [10, 20], "the slow cursor has acknowledged the last entry of ledger 20"
    assert verdicts[2].cursor == "slow"
    assert verdicts[3].kept is not None


@pytest.mark.parametrize(("position", "expected"), [((10, 1), []), ((10, 2), [10]), ((20, -1), [10]), ((10, -1), [])])
def test_a_ledger_is_held_by_a_cursor_within_it(position: tuple[int, int], expected: list[int]) -> None:
    ledgers = closed_at(row(3, 3, open_entries=0), 30, 20)
    assert deletable(judge(ledgers, [("s", Position(*position))], NONE, NOW_MS)) == expected


def test_a_log_without_cursors_is_kept_by_retention_alone() -> None:
    ledgers = closed_at(row(3, 3, open_entries=1), 30, 20)
    assert deletable(judge(ledgers, [], NONE, NOW_MS)) == [10, 20]
    assert deletable(judge(ledgers, [], FOREVER, NOW_MS)) == []


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        (Retention(25, -1), [10]),
        (Retention(5, -1), [10, 20, 30]),
        (Retention(30, -1), []),
        (Retention(-1, 30), [10]),  # 15 bytes each: 45 of them, and 5 in the open one
        (Retention(-1, 35), [10]),
        (Retention(-1, 36), []),
        (Retention(-1, 0), [10, 20, 30]),
        (Retention(25, 36), [10]),  # either limit is enough
        (FOREVER, []),
    ],
    ids=str,
)
def test_retention_by_time_or_size_keeps_ledgers(retention: Retention, expected: list[int]) -> None:
    ledgers = closed_at(row(3, 3, 3, open_entries=1), 30, 20, 10)
    ledgers.open_bytes = 5
    assert deletable(judge(ledgers, [], retention, NOW_MS)) == expected


def test_no_ledger_after_a_kept_one_is_deletable() -> None:
    ledgers = closed_at(row(3, 3, 3, open_entries=1), 10, 20, 30)
    verdicts = judge(ledgers, [], Retention(15, -1), NOW_MS)
    assert deletable(verdicts) == []
    assert "closed 10 s ago of 15 s" in (verdicts[0].kept or "")
    assert len({verdict.kept for verdict in verdicts[1:3]}) == 1


def test_the_last_ledger_of_a_terminated_log_is_kept() -> None:
    ledgers = closed_at(row(3, 3), 30, 20)
    assert deletable(judge(ledgers, [], NONE, NOW_MS)) == [10]
    assert deletable(judge(row(3), [], NONE, NOW_MS)) == []
