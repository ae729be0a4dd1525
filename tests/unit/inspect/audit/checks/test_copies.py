"""The faults of copies that all checks of copies share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks._copies import CLOCK_SKEW_MS, damaged_places, faults, touched
from bkinspect.audit.tables import Collected, Tables

from tests.unit.inspect.audit.checks.memory import keys, tables_of

BOOKIES = ["b1", "b2"]
STARTED_MS = 1_000_000


def copy(ledger_id: int, entry_id: int, bookie: str) -> dict[str, object]:
    return {
        "ledger_id": ledger_id,
        "entry_id": entry_id,
        "bookie_id": bookie,
        "last_confirmed": entry_id - 1,
        "length": entry_id + 1,
        "source": "live",
        "kind": "entry",
        "digest_ok": True,
        "content_digest": entry_id,
        "size": 44,
        "offset": 0,
    }


def cluster(spark: Any, changed_ms: dict[int, int]) -> Tables:
    """Closed ledgers of two entries on two bookies; b2 lacks entry 1 of each. changed_ms: when metadata changed."""
    fragment = {
        "fragment_index": 0,
        "first_entry_id": 0,
        "last_entry_id": 1,
        "bookies": BOOKIES,
        "ensemble_size": 2,
        "write_quorum_size": 2,
        "ack_quorum_size": 1,
        "state": "CLOSED",
    }
    held = [(0, "b1"), (0, "b2"), (1, "b1")]
    return tables_of(
        spark,
        ledgers=[{"ledger_id": one, "state": "CLOSED", "mtime_ms": at} for one, at in changed_ms.items()],
        fragments=[{**fragment, "ledger_id": one} for one in changed_ms],
        entries=[copy(one, *place) for one in changed_ms for place in held],
        bookies=[{"bookie_id": bookie, "scanned": True} for bookie in BOOKIES],
    )


def test_a_missing_copy_of_collected_facts_counts_only_where_metadata_was_older(spark: Any) -> None:
    settled = STARTED_MS - CLOCK_SKEW_MS - 1
    changed = {1: settled, 2: settled + 1, 3: STARTED_MS + 5}
    unknown = spark.createDataFrame([], "bookie_id string, ledger_id bigint")
    collected = Collected(dict.fromkeys(BOOKIES, STARTED_MS), unknown, running=False)
    tables = replace(cluster(spark, changed), collected=collected)
    assert keys(faults(tables), "kind", "ledger_id") == [("missing", 1)]


def test_damaged_places_end_where_records_resume_and_touch_the_records_beside_them(spark: Any) -> None:
    damage = [
        {"code": "BKC103", "file": "f", "offset": 96, "resumed_at": 300, "bookie_id": "b"},
        {"code": "BKC108", "file": "g", "offset": 50, "bookie_id": "b"},
        {"code": "BKC101", "file": "h", "bookie_id": "b"},
        {"code": "BKC105", "file": "i", "offset": 5, "bookie_id": "b"},
    ]
    tables = tables_of(spark, damage=damage)
    names = ("damage_file", "damage_from", "damage_to", "damage_named")
    assert keys(damaged_places(tables), *names) == [("f", 96, 300, 100), ("g", 50, 51, None), ("h", 0, None, None)]
    records = spark.createDataFrame(
        [("f", 100, 20), ("f", 56, 40), ("f", 10, 20), ("g", 100, 20)], "file string, offset bigint, size bigint"
    )
    assert keys(touched(records, tables), "file", "offset", "damaged") == [
        ("f", 10, False),
        ("f", 100, True),
        ("f", 56, True),
        ("g", 100, False),
    ]
