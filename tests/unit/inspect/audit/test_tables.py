"""The tables of a run: made when they are asked for, once; empty where the run has no source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.schemas import CURSORS
from bkinspect.audit.tables import Tables

from bkctl.errors import NotFound


def test_a_table_is_made_once_when_it_is_first_asked_for() -> None:
    made: list[str] = []

    def ledgers() -> Any:
        made.append("ledgers")
        return object()

    tables = Tables(None, 0, {"ledgers": ledgers})  # type: ignore[arg-type]
    assert made == []
    assert tables.ledgers is tables["ledgers"]
    assert made == ["ledgers"]


def test_only_tables_with_a_source_are_there_and_unknown_names_are_errors() -> None:
    tables = Tables(None, 0, {"topics": object})  # type: ignore[arg-type]
    assert tables.has("topics")
    assert not tables.has("ledgers")
    for ask in (tables.has, tables.__getitem__):
        with pytest.raises(NotFound, match="no table nothing"):
            ask("nothing")
    with pytest.raises(AttributeError):
        _ = tables.nothing


def test_a_table_without_a_source_is_empty(spark: Any) -> None:
    cursors = Tables(spark, 0, {}).cursors
    assert cursors.columns == list(CURSORS.names)
    assert cursors.count() == 0


def test_what_is_kept_is_made_once_in_memory_or_as_files(spark: Any, tmp_path: Path) -> None:
    made: list[str] = []

    def rows() -> Any:
        made.append("rows")
        return spark.range(3)

    tables = Tables(spark, 0, {}, folder=str(tmp_path))
    assert tables.keep("a", rows) is tables.keep("a", rows)
    files = tables.keep("b", rows, as_files=True)
    assert made == ["rows", "rows"]
    assert sorted(row["id"] for row in files.collect()) == [0, 1, 2]
    assert list((tmp_path / "b").glob("*.parquet"))
    assert not (tmp_path / "a").exists()
    tables.keep("a", rows).unpersist()
