"""Copies of the first and last entries of fragments that are missing or damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import ends

from tests.unit.inspect.audit.checks.memory import keys, tables_of

MISSING = {"ledger_id": 5, "entry_id": 9, "bookie_id": "b1:1", "first_entry_id": 7, "fault": "missing"}
DAMAGED = {"ledger_id": 5, "entry_id": 7, "bookie_id": "b2:1", "first_entry_id": 7, "fault": "damaged"}
UNREAD = {"bookie_id": "b3:1", "fault": "_unread", "status": -8}


def test_a_missing_and_a_damaged_end_are_found_and_a_bookie_without_answer_is_not(spark: Any) -> None:
    found = ends.findings(tables_of(spark, ends=[MISSING, DAMAGED, UNREAD]))
    assert keys(found, "code", "ledger_id", "entry_id", "bookie_id", "severity", "subject") == [
        ("BKC401", 5, 9, "b1:1", "error", "entry 9 of ledger 5"),
        ("BKC405", 5, 7, "b2:1", "error", "entry 7 of ledger 5"),
    ]
    assert [json.loads(row["evidence"]) for row in found.orderBy("code").collect()] == [
        {"last_entry_id": 9, "entries": 1, "fragment": 7},
        {"fragment": 7},
    ]
