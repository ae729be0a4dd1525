"""Ledgers that were closed before their last confirmed entry."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import early_close

from tests.unit.inspect.audit.checks.conftest import Damaged


def test_a_ledger_closed_too_early_names_its_end_and_the_proof(damaged: Damaged) -> None:
    rows = damaged.found(early_close)
    for fault in ("closed_early", "confirmed_after_end"):
        (row,) = damaged.of(rows, fault)
        ledger = next(made for made in damaged.made.cluster.ledgers if made.id == row["ledger_id"])
        evidence = json.loads(row["evidence"])
        assert evidence["last_entry_id"] == ledger.metadata.last_entry_id
        assert evidence["last_entry_id"] < evidence["confirmed"] <= len(ledger.entries) - 1
        assert evidence["proven_by_entry"] > evidence["last_entry_id"]
        assert set(evidence["bookies"]) <= set(ledger.bookies)
        end, confirmed = evidence["last_entry_id"], evidence["confirmed"]
        assert row["message"] == f"closed at entry {end}, but entry {confirmed} was confirmed"
        assert row["subject"] == f"ledger {row['ledger_id']}"
