"""An audit of metadata alone: checks of copies have nothing to look at, find nothing, and plan no work for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.checks import load
from bkinspect.audit.checks._copies import faults
from bkinspect.audit.schemas import FINDINGS, FRAGMENTS
from bkinspect.audit.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def test_metadata_alone(spark: SparkSession) -> None:
    row = (5, 0, 0, 9, ["a:1", "b:1"], 2, 2, 2, "CLOSED")

    def fragments() -> DataFrame:
        return spark.createDataFrame([row], FRAGMENTS.ddl)

    tables = Tables(spark, 1_895_000_000_000, {"fragments": fragments})
    plan = faults(tables)._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan, "a million fragments would be shuffled to find nothing"
    for check in load(("missing-copies", "missing-ledgers", "surplus-copies", "divergent-copies", "indexes")):
        found = check.findings(tables)
        assert found.columns == list(FINDINGS.names)
        assert found.collect() == []
