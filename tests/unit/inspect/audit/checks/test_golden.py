"""Directories of Java's bookies give what their README says of them, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.checks import load

from tests.audit_truth.facts import facts
from tests.golden import BOOKIES, FOLDER, Golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
LATER_MS = 1_895_000_000_000
CAPTURED = 900_001


def test_clean_directories_of_a_whole_cluster(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    for name in BOOKIES:
        if not name.endswith(".killed"):
            golden.unpack(name, tmp_path / "bookies" / name)
    tables = facts(spark, tmp_path / "bookies", FOLDER / "zk_tree.json", tmp_path / "facts", LATER_MS)
    found: list[Any] = [row for check in load() for row in check.findings(tables).collect()]
    spark.catalog.clearCache()
    rows = golden.manifest["ledgers"]
    deleted = {row["ledger"] for row in rows if row.get("deleted")}
    ids = {code: {row["ledger_id"] for row in found if row["code"] == code} for code in {r["code"] for r in found}}
    assert ids.keys() == {"BKC412", "BKC441", "BKC442"}
    assert {one for one in ids["BKC412"] if one < CAPTURED} == deleted
    assert any(one >= CAPTURED for one in ids["BKC412"])
    assert ids["BKC441"] == {row["ledger"] for row in rows if row["state"] == "OPEN" and not row.get("deleted")}
    assert ids["BKC442"] == {row["ledger"] for row in rows if row["state"] == "IN_RECOVERY"}
    assert len(found) == sum(map(len, ids.values())), "each once"
