"""Ledgers that are not closed and have no writer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import open_ledgers

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of

NOW_MS = 10_000_000
OLD, YOUNG = NOW_MS - 3_600_000, NOW_MS - 3_599_999


def ledger(ledger_id: int, state: str = "OPEN", ctime_ms: int = OLD, **others: object) -> dict[str, object]:
    return {"ledger_id": ledger_id, "state": state, "ctime_ms": ctime_ms, **others}


ROWS: dict[str, list[dict[str, object]]] = {
    "ledgers": [
        ledger(1),
        ledger(2),
        ledger(3),
        ledger(4),
        ledger(5, "IN_RECOVERY"),
        ledger(6, "CLOSED"),
        ledger(7, ctime_ms=YOUNG),
        ledger(8, mtime_ms=YOUNG),
        ledger(9, "IN_RECOVERY", YOUNG),
    ],
    "topics": [
        {"topic": "t", "ledger_id": 2, "kind": "data", "last": True},
        {"topic": "t", "ledger_id": 3, "kind": "data", "last": False},
        {"topic": "t", "ledger_id": 4, "kind": "cursor"},
    ],
    "bookie_ledgers": [
        {"ledger_id": 4, "bookie_id": "b2", "fenced": True},
        {"ledger_id": 4, "bookie_id": "b1", "fenced": True},
        {"ledger_id": 2, "bookie_id": "b1", "fenced": False},
    ],
}


def test_old_ledgers_without_a_writer_are_found_with_the_reason(spark: Any) -> None:
    found = open_ledgers.findings(tables_of(spark, NOW_MS, **ROWS))
    assert keys(found, "code", "ledger_id", "message") == [
        ("BKC441", 1, "open without a writer: no bookie is running"),
        ("BKC441", 3, "open without a writer: t writes another ledger"),
        ("BKC441", 4, "open without a writer: fenced on b1, b2"),
        ("BKC442", 5, "in recovery, which was interrupted"),
    ]
    (fenced,) = found.where("ledger_id = 4").collect()
    assert json.loads(fenced["evidence"]) == {"since_ms": OLD, "fenced_on": ["b1", "b2"], "topic": "t"}


def test_in_a_live_run_an_open_ledger_without_proof_may_have_a_writer(spark: Any) -> None:
    tables = replace(tables_of(spark, NOW_MS, **ROWS), live=True)
    assert keys(open_ledgers.findings(tables), "code", "ledger_id") == [("BKC441", 3), ("BKC441", 4), ("BKC442", 5)]


def test_each_open_ledger_of_a_damaged_cluster_is_found(damaged: Damaged) -> None:
    (open_,) = damaged.of(damaged.found(open_ledgers), "left_open")
    assert "writes another ledger" in open_["message"]
