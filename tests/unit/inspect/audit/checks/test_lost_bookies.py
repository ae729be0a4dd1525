"""Bookies that ensembles name and that are not registered."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import lost_bookies

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of

FRAGMENT = MappingProxyType({"ledger_id": 5, "first_entry_id": 0, "last_entry_id": 9, "state": "CLOSED"})


def test_a_bookie_that_is_down_without_disks_is_one_finding_with_its_counts(spark: Any) -> None:
    bookies = [
        {"bookie_id": "rw", "state": "rw"},
        {"bookie_id": "ro", "state": "ro"},
        {"bookie_id": "down", "state": "down"},
        {"bookie_id": "on disk", "state": "down", "offline_cookie": "5"},
        {"bookie_id": "collected", "state": "down", "scanned": True},
    ]
    fragments = [
        {**FRAGMENT, "bookies": ["rw", "ro", "down", "on disk", "collected"]},
        {**FRAGMENT, "ledger_id": 6, "state": "OPEN", "last_entry_id": None, "bookies": ["down", "down", "gone"]},
        {**FRAGMENT, "ledger_id": 7, "last_entry_id": -1, "bookies": ["empty"]},
    ]
    found = lost_bookies.findings(tables_of(spark, bookies=bookies, fragments=fragments))
    assert keys(found, "code", "bookie_id", "message") == [
        ("BKC403", "down", "not registered, but 2 ensembles name it"),
        ("BKC403", "gone", "not registered, but 1 ensemble names it"),
    ]
    (down, _) = found.orderBy("bookie_id").collect()
    assert json.loads(down["evidence"]) == {"fragments": 2, "ledgers_about": 2, "not_closed": 1}


def test_each_lost_bookie_of_a_damaged_cluster_is_found(damaged: Damaged) -> None:
    assert {row["severity"] for row in damaged.found(lost_bookies)} == {"warning"}
