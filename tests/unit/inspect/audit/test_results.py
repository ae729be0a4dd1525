"""The difference of two runs: what one sorted stream of findings has and the other has not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("duckdb")

import duckdb
from bkinspect.audit.results import SAME, without

KEYS = st.tuples(
    st.sampled_from(("BKC107", "BKC401")),
    *(st.none() | st.integers(-1, 2) for _ in range(2)),
    *(st.none() | st.text("aé\U0001f600\uffee", max_size=2) for _ in range(2)),
    st.none() | st.integers(0, 1),
)


def sorted_by_duckdb(keys: list[tuple[object, ...]]) -> list[dict[str, object]]:
    """Findings with these identities, in the order of a query."""
    names = ", ".join(f'"{name}"' for name in SAME)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t (code VARCHAR, ledger_id BIGINT, entry_id BIGINT, bookie_id VARCHAR, file VARCHAR, "
        '"offset" BIGINT)'
    )
    if keys:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", keys)
    rows = connection.execute(f"SELECT {names} FROM t ORDER BY {names}").fetchall()
    return [dict(zip(SAME, row, strict=True)) for row in rows]


@given(st.lists(KEYS, max_size=12), st.lists(KEYS, max_size=12))
def test_items_without_others_are_those_of_a_set_difference(
    own: list[tuple[object, ...]], others: list[tuple[object, ...]]
) -> None:
    found = list(without(iter(sorted_by_duckdb(own)), iter(sorted_by_duckdb(others))))
    assert found == [item for item in sorted_by_duckdb(own) if tuple(item.values()) not in set(others)]
