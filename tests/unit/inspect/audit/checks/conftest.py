"""One damaged cluster for the tests of all checks: every fault once, and what healthy clusters have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.audit_truth.cluster import AS_OF_MS
from tests.audit_truth.verdict import Broken, broken, compare

if TYPE_CHECKING:
    from bkinspect.audit.tables import Tables
    from pyspark.sql import SparkSession

SEED = 20261124


class Damaged:
    """A damaged cluster on disk and its tables, whose shared parts are computed once."""

    def __init__(self, made: Broken, tables: Tables) -> None:
        self.made, self.tables = made, tables

    def found(self, check: ModuleType) -> list[Any]:
        """The findings of a check, which are exactly those that the faults of its codes must have."""
        rows: list[Any] = check.findings(self.tables).collect()
        expected = [(name, one) for name, one in self.made.expected if one.code in check.CODES]
        assert compare(expected, rows) == ([], [])
        return rows

    def of(self, rows: Iterable[Any], fault: str) -> list[Any]:
        """The rows about one fault, by its name: those with the place of its findings."""
        places = {one[:4] for name, one in self.made.expected if name == fault}
        assert places, fault
        return [row for row in rows if (row["code"], row["ledger_id"], row["entry_id"], row["bookie_id"]) in places]


@pytest.fixture(scope="session")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """The cluster with every fault once."""
    pytest.importorskip("pyarrow")
    from tests.audit_truth.facts import facts

    folder: Path = tmp_path_factory.mktemp("damaged")
    made = broken(SEED, 1, folder / "cluster")
    return Damaged(made, facts(spark, folder / "cluster", made.export, folder / "facts", AS_OF_MS))
