"""Copies of one entry that differ, between bookies and within one."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import divergent_copies

from tests.unit.inspect.audit.checks.conftest import Damaged


def test_a_copy_against_a_majority_names_its_bookie_and_a_tie_names_none(damaged: Damaged) -> None:
    rows = damaged.found(divergent_copies)
    (odd,) = damaged.of(rows, "other_payload")
    assert odd["message"] == f"the copy of {odd['bookie_id']} differs from most others"
    assert odd["bookie_id"] in json.loads(odd["evidence"])["bookies"]
    assert len(json.loads(odd["evidence"])["bookies"]) == 3

    (tied,) = damaged.of(rows, "tied_payload")
    bookies = json.loads(tied["evidence"])["bookies"]
    assert (tied["bookie_id"], tied["file"], len(bookies)) == (None, None, 2)
    assert tied["message"] == f"copies differ: {', '.join(bookies)}"

    (twofold,) = damaged.of(rows, "two_of_one")
    assert (twofold["code"], twofold["severity"]) == ("BKC151", "error")
    assert json.loads(twofold["evidence"])["size"] > 32
