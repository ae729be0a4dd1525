"""The summary of a run: each entry is in its fragment, and only entries that are not whole are suspect."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks._blocks import RANGE_BITS
from bkinspect.audit.checks._summary import parts, seen, summary
from bkinspect.audit.schemas import TABLES
from bkinspect.audit.tables import Tables

BOOKIES = ("b1:3181", "b2:3181", "b3:3181")
FRAGMENTS = 10_000
ENTRIES_A_FRAGMENT = 20
MISSING = 7_777 * ENTRIES_A_FRAGMENT + 3


def rows_of(spark: Any, name: str, query: str) -> Any:
    """A table with these columns, null in all others."""
    given = spark.sql(query)
    columns = [
        f"cast({column.name if column.name in given.columns else 'null'} as {column.type}) as {column.name}"
        for column in TABLES[name].columns
    ]
    return given.selectExpr(*columns)


def tables_of(spark: Any, fragments: str, entries: str) -> Tables:
    bookies = " union all ".join(f"select '{bookie}' as bookie_id, true as scanned" for bookie in BOOKIES)
    made = {
        "fragments": rows_of(spark, "fragments", fragments),
        "entries": rows_of(spark, "entries", entries),
        "bookies": rows_of(spark, "bookies", bookies),
    }
    return Tables(spark, 0, {name: (lambda table=table: table) for name, table in made.items()})


def test_each_of_10_000_fragments_gets_its_entries_and_one_short_entry_is_suspect(spark: Any) -> None:
    """The last fragment is open; ranges begin within fragments; a copy is missing of one entry."""
    total = FRAGMENTS * ENTRIES_A_FRAGMENT
    assert total > 2 << RANGE_BITS
    assert (1 << RANGE_BITS) % ENTRIES_A_FRAGMENT
    names = ", ".join(f"'{bookie}'" for bookie in BOOKIES)
    first = f"id * {ENTRIES_A_FRAGMENT}"
    fragments = (
        f"select 5 as ledger_id, id as fragment_index, {first} as first_entry_id, if(id = {FRAGMENTS - 1}, null, "
        f"{first} + {ENTRIES_A_FRAGMENT - 1}) as last_entry_id, array({names}) as bookies, 3 as ensemble_size, "
        f"2 as write_quorum_size, 2 as ack_quorum_size, 'OPEN' as state from range({FRAGMENTS})"
    )
    copies = (
        f"select 5 as ledger_id, id div 2 as entry_id, array({names})[cast((id div 2 + id % 2) % 3 as int)] as "
        "bookie_id, id div 2 - 1 as last_confirmed, 'live' as source, 'entry' as kind, true as digest_ok, 7 as "
        f"content_digest from range({2 * total}) where id != {2 * MISSING}"
    )
    tables = tables_of(spark, fragments, copies)
    found = seen(tables)
    assert found.count() == total
    assert found.where(f"fragment_index != entry_id div {ENTRIES_A_FRAGMENT} or fragment_index is null").count() == 0
    assert [row["entry_id"] for row in found.where("suspect").collect()] == [MISSING]
    ends = parts(tables).where("last_part").select("ends").collect()
    assert [row["ends"] for row in ends] == [total - 2]


def test_other_bookies_are_those_of_the_other_fragments_alone(spark: Any) -> None:
    fragments = " union all ".join(
        f"select 5L as ledger_id, {index} as fragment_index, {10 * index}L as first_entry_id, "
        f"{10 * index + 9}L as last_entry_id, array({bookies}) as bookies, 2 as ensemble_size, "
        "2 as write_quorum_size, 2 as ack_quorum_size, 'CLOSED' as state"
        for index, bookies in enumerate(("'b1', 'b2'", "'b1', 'b3'", "'b4', 'b3'"))
    )
    nothing = "select 5L as ledger_id, 0L as entry_id, 'b1' as bookie_id, 'live' as source where false"
    found = parts(tables_of(spark, fragments, nothing)).orderBy("fragment_index").collect()
    others = [sorted(row["other_bookies"]) for row in found]
    assert others == [["b1", "b3", "b4"], ["b1", "b2", "b3", "b4"], ["b1", "b2", "b3"]]
    assert [row["closed_at"] for row in found] == [29, 29, 29]


def test_an_entry_before_the_first_fragment_or_of_an_unknown_ledger_is_suspect_and_in_no_fragment(spark: Any) -> None:
    fragments = (
        "select 5L as ledger_id, 0 as fragment_index, 10L as first_entry_id, 19L as last_entry_id, array('b1:3181') "
        "as bookies, 1 as ensemble_size, 1 as write_quorum_size, 1 as ack_quorum_size, 'CLOSED' as state"
    )
    copies = (
        "select ledger_id, entry_id, 'b1:3181' as bookie_id, 'live' as source, 'entry' as kind, true as digest_ok "
        "from values (5L, 9L), (5L, 10L), (5L, 30L), (6L, 10L) as t(ledger_id, entry_id)"
    )
    tables = tables_of(spark, fragments, copies)
    found = {(row["ledger_id"], row["entry_id"]): row for row in seen(tables).collect()}
    assert {place: row["fragment_index"] for place, row in found.items()} == {
        (5, 9): None,
        (5, 10): 0,
        (5, 30): 0,
        (6, 10): None,
    }
    assert {place for place, row in found.items() if row["suspect"]} == {(5, 9), (5, 30), (6, 10)}
    assert summary(tables).count() == 4
