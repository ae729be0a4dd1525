"""Entries without any copy are found as ranges; what is missing costs nothing, however much it is."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import missing_copies
from bkinspect.audit.checks._absent import absent
from bkinspect.audit.schemas import TABLES
from bkinspect.audit.tables import Tables

BOOKIES = ("b1:3181", "b2:3181", "b3:3181")
HUGE = 1 << 50


def tables_of(spark: Any, last_entry_id: int, found: list[tuple[int, str]], scanned: tuple[str, ...]) -> Tables:
    """One CLOSED ledger 5 of ensemble 3, write quorum 2; found: (entry, bookie) pairs of running bookies."""

    def table(name: str, rows: list[dict[str, object]]) -> Any:
        columns = TABLES[name].columns
        values = [tuple(row.get(column.name) for column in columns) for row in rows]
        return spark.createDataFrame(values, TABLES[name].ddl)

    fragment = {
        "ledger_id": 5,
        "fragment_index": 0,
        "first_entry_id": 0,
        "last_entry_id": last_entry_id,
        "bookies": list(BOOKIES),
        "ensemble_size": 3,
        "write_quorum_size": 2,
        "ack_quorum_size": 2,
        "state": "CLOSED",
    }
    entries: list[dict[str, object]] = [
        {
            "ledger_id": 5,
            "entry_id": entry_id,
            "bookie_id": bookie,
            "last_confirmed": entry_id - 1,
            "length": 9,
            "source": "live",
            "kind": "entry",
            "digest_ok": True,
            "content_digest": 7,
            "size": 44,
            "offset": 0,
        }
        for entry_id, bookie in found
    ]
    made = {
        "fragments": table("fragments", [fragment]),
        "ledgers": table("ledgers", []),
        "entries": table("entries", entries),
        "records": table("records", []),
        "index": table("index", []),
        "bookie_ledgers": table("bookie_ledgers", []),
        "damage": table("damage", []),
        "log_files": table("log_files", []),
        "bookies": table("bookies", [{"bookie_id": bookie, "scanned": bookie in scanned} for bookie in BOOKIES]),
    }
    return Tables(spark, 0, {name: (lambda one=one: one) for name, one in made.items()})


def copies_of(entry_id: int) -> list[tuple[int, str]]:
    return [(entry_id, BOOKIES[(entry_id + i) % 3]) for i in range(2)]


def test_three_entries_of_a_huge_fragment_leave_four_ranges(spark: Any) -> None:
    """Spelled out entry by entry, the fragment would be more rows than any disk holds."""
    found = [copy for entry_id in (3, 4, 1 << 40) for copy in copies_of(entry_id)]
    rows = missing_copies.findings(tables_of(spark, HUGE - 1, found, BOOKIES)).orderBy("entry_id").collect()
    assert [(row["code"], row["entry_id"], row["subject"]) for row in rows] == [
        ("BKC402", 0, "entry 0 to 2 of ledger 5"),
        ("BKC402", 5, f"entry 5 to {(1 << 40) - 1} of ledger 5"),
        ("BKC402", (1 << 40) + 1, f"entry {(1 << 40) + 1} to {HUGE - 1} of ledger 5"),
    ]


def test_a_huge_fragment_on_one_scanned_bookie_is_one_range_of_it(spark: Any) -> None:
    """Two of three bookies were not scanned: entries of the other alone are known to be missing."""
    rows = missing_copies.findings(tables_of(spark, HUGE - 1, copies_of(1)[:1], BOOKIES[:1])).collect()
    stored = [entry_id for entry_id in range(HUGE - 5, HUGE) if entry_id % 3 in (0, 2)]
    assert [(row["code"], row["bookie_id"], row["subject"]) for row in rows] == [
        ("BKC401", BOOKIES[0], f"entry 0 to {stored[-1]} of ledger 5")
    ]


@pytest.mark.parametrize("seed", range(4))
def test_ranges_hold_the_entries_that_an_enumeration_finds(spark: Any, seed: int) -> None:
    """Across two boundaries of ranges, with one or all bookies scanned."""
    dice = random.Random(seed)
    last = 140_000 + dice.randrange(1000)
    scanned = BOOKIES[: 1 + seed % 3]
    present = [*dice.sample(range(last + 1), 40), 65_535, 65_536, last - seed]
    found = [copy for entry_id in sorted(set(present)) for copy in copies_of(entry_id)]
    rows = absent(tables_of(spark, last, found, scanned)).collect()
    expected: dict[tuple[str, str | None], int] = {}
    for entry_id in set(range(last + 1)) - set(present):
        looked = [bookie for _, bookie in copies_of(entry_id) if bookie in scanned]
        keys = [("lost", None)] if len(looked) == 2 else [("missing", bookie) for bookie in looked]
        for key in keys:
            expected[key] = expected.get(key, 0) + 1
    sums: dict[tuple[str, str | None], int] = {}
    for row in rows:
        key = row["kind"], row["bookie_id"]
        sums[key] = sums.get(key, 0) + row["entries"]
        between = range(row["entry_id"], row["last_id"] + 1)
        assert not any(entry_id in between for entry_id in present)
    assert sums == expected
