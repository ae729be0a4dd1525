"""Provides the classes of pyspark that data sources use; without pyspark, stand-ins with which the readers work.

`bkctl audit collect` uses the readers on the machines of bookies, where neither Spark nor a JVM is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "DataSource",
    "DataSourceReader",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "InputPartition",
    "LessThan",
    "LessThanOrEqual",
]

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        InputPartition,
        LessThan,
        LessThanOrEqual,
    )
else:
    try:
        from pyspark.sql.datasource import (
            DataSource,
            DataSourceReader,
            EqualTo,
            Filter,
            GreaterThan,
            GreaterThanOrEqual,
            InputPartition,
            LessThan,
            LessThanOrEqual,
        )
    except ImportError:

        class InputPartition:
            """A partition of a table."""

            def __init__(self, value: Any) -> None:
                self.value = value

        class _Absent:
            """Base of a class that only Spark creates."""

            def __init__(self, *_: object) -> None:
                pass

        class DataSource(_Absent):
            """The source of a table."""

        class DataSourceReader(_Absent):
            """The reader of a table."""

        class Filter(_Absent):
            """A filter that Spark pushes down."""

        EqualTo = GreaterThan = GreaterThanOrEqual = LessThan = LessThanOrEqual = Filter
