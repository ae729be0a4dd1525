"""Columns of tables, for Spark and for Arrow."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from bkinspect.audit.schemas import ENTRIES, FINDINGS, KEPT_FINDINGS, LEDGERS, RECORDS, TABLES, arrow_schema, table

from bkctl.errors import NotFound


def test_each_table_has_its_name_a_text_and_columns_that_differ() -> None:
    for name, one in TABLES.items():
        assert (one.name, table(name)) == (name, one)
        assert one.text.endswith(".")
        assert len(set(one.names)) == len(one.names) == len(one.columns)


def test_spark_and_arrow_have_the_same_columns() -> None:
    for one in (*TABLES.values(), FINDINGS, KEPT_FINDINGS):
        assert arrow_schema(one).names == list(one.names)
        assert one.ddl == ", ".join(f"`{column.name}` {column.type}" for column in one.columns)
        assert arrow_schema(one) is arrow_schema(one), "made once"


def test_types_of_arrow_are_those_of_spark() -> None:
    schema = arrow_schema(LEDGERS)
    assert schema.field("ledger_id").type == pa.int64()
    assert schema.field("password").type == pa.binary()
    assert schema.field("custom_metadata").type == pa.map_(pa.string(), pa.binary())
    ensemble = schema.field("ensembles").type.value_type
    assert [ensemble.field(i).name for i in range(ensemble.num_fields)] == ["first_entry_id", "bookies"]


def test_entries_have_the_columns_of_records_and_kept_findings_those_of_findings() -> None:
    assert ENTRIES.columns == RECORDS.columns
    assert KEPT_FINDINGS.names[: len(FINDINGS.names)] == FINDINGS.names


def test_an_unknown_table_is_not_found() -> None:
    with pytest.raises(NotFound, match="an audit has no table nothing"):
        table("nothing")
