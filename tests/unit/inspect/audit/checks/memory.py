"""Tables of an audit from rows in memory: columns that a row does not name are null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bkinspect.audit.schemas import TABLES
from bkinspect.audit.tables import Tables

Row = Mapping[str, object]


def tables_of(spark: Any, as_of_ms: int = 0, **rows: Sequence[Row]) -> Tables:
    """Tables with these rows, and no source for others."""
    frames = {name: frame(spark, name, given) for name, given in rows.items()}
    return Tables(spark, as_of_ms, {name: (lambda made=made: made) for name, made in frames.items()})


def frame(spark: Any, name: str, rows: Sequence[Row]) -> Any:
    """A DataFrame with the columns of a table."""
    columns = TABLES[name].columns
    unknown = {name for row in rows for name in row} - {column.name for column in columns}
    assert not unknown, f"{name} has no columns {unknown}"
    return spark.createDataFrame([tuple(row.get(column.name) for column in columns) for row in rows], TABLES[name].ddl)


def keys(frame: Any, *names: str) -> list[tuple[object, ...]]:
    """These columns of a check's findings, sorted."""
    return sorted((tuple(row[name] for name in names) for row in frame.collect()), key=repr)
