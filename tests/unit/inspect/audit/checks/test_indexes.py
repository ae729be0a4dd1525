"""Index rows that point to nothing, and records that no index row points to."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import indexes

from tests.unit.inspect.audit.checks.conftest import Damaged


def test_rows_without_a_record_records_without_a_row_and_logs_that_are_gone_are_found(damaged: Damaged) -> None:
    rows = damaged.found(indexes)
    (astray,) = damaged.of(rows, "index_astray")
    assert astray["message"] == "the index points where the entry is not"
    assert json.loads(astray["evidence"])["index"]
    (lost,) = damaged.of(rows, "index_row_lost")
    assert lost["message"] == "the index does not know it"
    assert lost["subject"].endswith(f" on {lost['bookie_id']}")

    gone = {one.file for name, one in damaged.made.expected if name in ("log_gone", "log_renamed")}
    of_logs = [row for row in rows if row["code"] == "BKC352"]
    assert {row["file"] for row in of_logs} == gone
    for row in of_logs:
        evidence = json.loads(row["evidence"])
        assert len(evidence["ledgers"]) == 1, "each cell has its own log"
        assert row["message"] == f"the index has {evidence['entries']} entries in this log, which is gone"
