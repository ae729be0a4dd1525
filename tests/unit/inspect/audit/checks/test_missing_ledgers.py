"""Ledgers that topics name without metadata, and ledgers that no bookie has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import missing_ledgers

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of

TOPICS: list[dict[str, object]] = [
    {"topic": "t", "ledger_id": 1, "kind": "data"},
    {"topic": "t", "ledger_id": 2, "kind": "data", "entries": 5, "path": "/t"},
    {"topic": "u", "ledger_id": 2, "kind": "cursor", "cursor": "sub"},
    {"topic": "t", "ledger_id": 3, "kind": "data", "offloaded": True},
    {"topic": "s", "ledger_id": 4, "kind": "allocation"},
]


def test_each_name_of_a_ledger_without_metadata_is_found(spark: Any) -> None:
    found = missing_ledgers.findings(tables_of(spark, topics=TOPICS, ledgers=[{"ledger_id": 1}]))
    assert keys(found, "code", "ledger_id", "subject", "message") == [
        ("BKC413", 2, "t", "names ledger 2 (data), which is not in the metadata store"),
        ("BKC413", 2, "u, sub", "names ledger 2 (cursor), which is not in the metadata store"),
    ]
    (data, _) = found.orderBy("subject").collect()
    assert json.loads(data["evidence"]) == {"kind": "data", "topic": "t", "cursor": None, "path": "/t", "entries": 5}


def test_where_not_all_ledgers_were_read_none_is_missing(spark: Any) -> None:
    assert missing_ledgers.findings(tables_of(spark, topics=TOPICS)).collect() == []
    some = replace(tables_of(spark, topics=TOPICS, ledgers=[{"ledger_id": 1}]), by_time=True)
    assert missing_ledgers.findings(some).collect() == []


def test_a_ledger_without_any_copy_names_its_bookies_and_entries(damaged: Damaged) -> None:
    (lost,) = damaged.of(damaged.found(missing_ledgers), "ledger_lost")
    ledger = next(one for one in damaged.made.cluster.ledgers if one.id == lost["ledger_id"])
    assert json.loads(lost["evidence"]) == {"bookies": sorted(ledger.bookies), "entries": len(ledger.entries)}
    assert lost["message"].startswith(f"none of its {len(ledger.entries)} entries is on any of ")
