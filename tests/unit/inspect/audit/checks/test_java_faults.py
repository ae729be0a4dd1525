"""Directories of Java's bookies with faults from a seed: what is found is what was found before, and each fault."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.checks import load

from tests.audit_truth.facts import facts
from tests.audit_truth.java import ENTRY_FAULTS, FILE_FAULTS, Java, broken, known_before
from tests.audit_truth.verdict import compare
from tests.golden import Golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
LATER_MS = 1_895_000_000_000
SEED = 20261122
ROUNDS = 12
FAULTS_MIN = 180


def test_faults_in_javas_directories_are_each_found_once_and_nothing_else(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    java = Java(golden, tmp_path / "java", SEED)
    before = known_before(java)
    expected = broken(java, ROUNDS)
    assert {name for name, _ in expected} == {fault.__name__ for fault in (*ENTRY_FAULTS, *FILE_FAULTS)}
    assert len(expected) >= FAULTS_MIN
    tables = facts(spark, java.folder, java.write(), tmp_path / "facts", LATER_MS)
    rows = [row for check in load() for row in check.findings(tables).collect()]
    spark.catalog.clearCache()
    new = [row for row in rows if (row["code"], row["ledger_id"]) not in before]
    (cut,) = (one for name, one in expected if name == "log_cut")
    losses = [row for row in new if row["code"] == "BKC401" and json.loads(row["evidence"])["damaged_log"] == cut.file]
    gone = [
        c for copies in java.copies.values() for c in copies if c.file == cut.file and c.offset >= (cut.offset or 0)
    ]
    assert {row["bookie_id"] for row in losses} == {cut.bookie_id}
    assert 0 < sum(json.loads(row["evidence"])["entries"] for row in losses) <= len(gone)
    assert compare(expected, [row for row in new if row not in losses]) == ([], [])
    assert Counter((row["code"], row["ledger_id"]) for row in rows if row not in new) == Counter(before)
