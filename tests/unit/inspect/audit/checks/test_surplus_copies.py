"""Copies outside of the write set, as one finding a ledger and bookie."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import surplus_copies

from tests.unit.inspect.audit.checks.conftest import Damaged


def test_copies_on_a_bookie_outside_of_the_ensemble_or_of_the_stripe_are_found(damaged: Damaged) -> None:
    rows = damaged.found(surplus_copies)
    (two,) = damaged.of(rows, "surplus_elsewhere")
    (one,) = damaged.of(rows, "wrong_stripe")
    assert [row["message"] for row in (two, one)] == ["2 copies outside the write set", "1 copy outside the write set"]
    evidence = json.loads(two["evidence"])
    assert (evidence["entries"], evidence["last_entry_id"]) == (2, two["entry_id"] + 1)
    ledger = next(made for made in damaged.made.cluster.ledgers if made.id == two["ledger_id"])
    assert evidence["bytes"] == sum(len(ledger.entries[two["entry_id"] + i]) for i in range(2))
