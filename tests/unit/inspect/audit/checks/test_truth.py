"""Every fault is found by its own code and place, nothing else is; a healthy cluster has no findings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.checks import load
from bkinspect.audit.tables import Tables

from tests.audit_truth.cluster import AS_OF_MS, Cluster
from tests.audit_truth.facts import facts
from tests.audit_truth.faults import (
    FAULTS,
    Break,
    Fault,
    closed_early,
    confirmed_after_end,
    one_rack_later,
    two_payload_bits,
)
from tests.audit_truth.verdict import broken, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
ROUNDS = 10
SEED = 20261121


@pytest.fixture(autouse=True)
def forgotten(spark: SparkSession) -> Iterator[None]:
    """What a test keeps in memory is not the next one's."""
    yield
    spark.catalog.clearCache()


def findings(tables: Tables) -> list[Any]:
    return [row for check in load() for row in check.findings(tables).collect()]


def test_530_faults_from_a_seed_each_found_once_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    made = broken(SEED, ROUNDS, tmp_path / "cluster")
    assert ROUNDS * len(FAULTS) == 530
    assert len(made.expected) >= 530 + 2 * ROUNDS  # truncated logs and swapped payloads are two findings each
    tables = facts(spark, tmp_path / "cluster", made.export, tmp_path / "facts", AS_OF_MS)
    assert compare(made.expected, findings(tables)) == ([], [])


def test_a_healthy_cluster_has_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    made = broken(SEED + 1, 0, tmp_path / "cluster")
    tables = facts(spark, tmp_path / "cluster", made.export, tmp_path / "facts", AS_OF_MS)
    assert compare([], findings(tables)) == ([], [])


def test_a_ledger_closed_too_early_is_one_finding(spark: SparkSession, tmp_path: Path) -> None:
    """Every round draws other shapes, ensembles and ends; unconfirmed entries after an end are in the noise."""
    made = broken(SEED + 3, 3, tmp_path / "cluster", [closed_early, confirmed_after_end])
    tables = facts(spark, tmp_path / "cluster", made.export, tmp_path / "facts", AS_OF_MS)
    found = findings(tables)
    assert compare(made.expected, found) == ([], [])
    assert {row["severity"] for row in found} == {"error"}


def test_a_second_fault_in_a_log_and_a_later_write_set_on_one_rack_are_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    second: list[Break] = []

    def first_bit(cluster: Cluster) -> Break:
        first, other = two_payload_bits(cluster)
        second.append(other)
        return first

    faults: list[Fault] = [first_bit, lambda _: second.pop(), one_rack_later]
    made = broken(SEED + 2, 3, tmp_path / "cluster", faults)
    assert [one.code for _, one in made.expected] == ["BKC107", "BKC107", "BKC421"] * 3
    assert made.expected[0][1].file == made.expected[1][1].file
    tables = facts(spark, tmp_path / "cluster", made.export, tmp_path / "facts", AS_OF_MS)
    assert compare(made.expected, findings(tables)) == ([], [])
