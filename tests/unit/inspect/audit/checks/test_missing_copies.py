"""Copies and entries that are missing in a damaged cluster, as ranges; `test_absent` has those of huge ledgers."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import missing_copies

from tests.unit.inspect.audit.checks.conftest import Damaged


def test_missing_copies_of_a_damaged_cluster_are_found_as_ranges(damaged: Damaged) -> None:
    rows = damaged.found(missing_copies)
    (one,) = damaged.of(rows, "copy_lost")
    (three,) = damaged.of(rows, "copies_lost")
    assert [json.loads(row["evidence"])["entries"] for row in (one, three)] == [1, 3]
    assert one["subject"] == f"entry {one['entry_id']} of ledger {one['ledger_id']}"
    last = json.loads(three["evidence"])["last_entry_id"]
    assert three["subject"] == f"entry {three['entry_id']} to {last} of ledger {three['ledger_id']}"
    assert one["message"].startswith(f"{one['bookie_id']} has no copy; ")

    (lost,) = damaged.of(rows, "entries_lost")
    evidence = json.loads(lost["evidence"])
    assert (lost["code"], lost["bookie_id"], evidence["entries"]) == ("BKC402", None, 2)
    assert evidence["bookies"] == sorted(evidence["bookies"])

    (cut,) = damaged.of(rows, "log_cut")
    torn = next(one for name, one in damaged.made.expected if name == "log_cut" and one.code == "BKC102")
    assert json.loads(cut["evidence"])["damaged_log"] == torn.file
