"""Ensembles in one region, write sets on one rack, and bookies that an ensemble names twice."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import placement

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of

PLACES = MappingProxyType({"a1": "/eu/a", "a2": "/eu/a", "b1": "/eu/b", "c1": "/us/c", "x": None})


def bookies(places: dict[str, str | None]) -> list[dict[str, object]]:
    def row(name: str, place: str | None) -> dict[str, object]:
        if place is None:
            return {"bookie_id": name}
        region, _, rack = place.strip("/").rpartition("/")
        return {"bookie_id": name, "place": place, "rack": f"/{rack}", "region": f"/{region}" if region else None}

    return [row(*pair) for pair in places.items()]


def fragment(ledger_id: int, names: str, quorum: int = 2, last: int | None = 9) -> dict[str, object]:
    ensemble = names.split()
    return {
        "ledger_id": ledger_id,
        "first_entry_id": 0,
        "last_entry_id": last,
        "bookies": ensemble,
        "ensemble_size": len(ensemble),
        "write_quorum_size": quorum,
    }


def test_each_fragment_is_reported_once_and_only_where_all_places_are_known(spark: Any) -> None:
    fragments = [
        fragment(1, "a1 b1 c1"),
        fragment(2, "a1 a2 c1"),
        fragment(3, "a1 b1"),
        fragment(4, "a1 a2"),
        fragment(5, "a1 c1 a1"),
        fragment(6, "a1 x"),
        fragment(7, "a1 c1", quorum=1),
        fragment(8, "a1 a2", last=-1),
        fragment(9, "c1", quorum=1),
        fragment(10, "a1 a2 c1", last=None),
    ]
    found = placement.findings(tables_of(spark, bookies=bookies(dict(PLACES)), fragments=fragments))
    assert keys(found, "code", "ledger_id", "bookie_id", "message") == [
        ("BKC421", 10, None, "a write set is on one rack"),
        ("BKC421", 2, None, "a write set is on one rack"),
        ("BKC422", 3, None, "all bookies are in /eu"),
        ("BKC422", 4, None, "all bookies are in /eu"),
        ("BKC423", 5, "a1", "it names a bookie twice"),
    ]
    (one,) = found.where("ledger_id = 2").collect()
    assert json.loads(one["evidence"]) == {"bookies": ["a1", "a2", "c1"], "places": ["/eu/a", "/eu/a", "/us/c"]}
    assert one["subject"] == "ledger 2, ensemble at entry 0"


def test_a_cluster_with_one_rack_has_no_finding(spark: Any) -> None:
    one_rack = bookies({"a": "/default-rack", "b": "/default-rack"})
    assert placement.findings(tables_of(spark, bookies=one_rack, fragments=[fragment(1, "a b")])).collect() == []


def test_each_badly_placed_ensemble_of_a_damaged_cluster_is_found(damaged: Damaged) -> None:
    assert {row["severity"] for row in damaged.found(placement)} <= {"warning", "error"}
