"""The state of each copy of an entry, and the faults that follow from it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks._states import STEPS
from pyspark.sql import functions as F

ROW_DDL = (
    "bookie_id string, what string, file string, offset bigint, size bigint, index string, length bigint, "
    "last_confirmed bigint, content_digest bigint, bad boolean"
)
ROW_NAMES = tuple(part.split()[0] for part in ROW_DDL.split(", "))
DDL = (
    "name string, entry_id bigint, ends bigint, closed_at bigint, state string, write_quorum_size int, "
    "ensemble_size int, ack_quorum_size int, bookies array<string>, scanned array<string>, "
    f"other_bookies array<string>, rows array<struct<{ROW_DDL.replace(' ', ':').replace(',:', ',')}>>"
)
NAMES = tuple(part.split()[0] for part in DDL.split(", ")[:12])
ENTRY = MappingProxyType(
    {
        "entry_id": 4,
        "ends": 9,
        "closed_at": 9,
        "state": "CLOSED",
        "write_quorum_size": 3,
        "ensemble_size": 3,
        "ack_quorum_size": 2,
        "bookies": ["a", "b", "c"],
        "scanned": ["a", "b", "c"],
        "other_bookies": [],
    }
)
ALL = ("a", "b", "c")


def row(bookie: str, what: str, **fields: object) -> dict[str, object]:
    same = {"size": 44, "length": 9, "last_confirmed": 3, "content_digest": 7, "bad": False}
    place = {"file": f"{bookie}.log", "offset": 8}
    if what == "index":
        return {"bookie_id": bookie, "what": what, **place, "index": "i", "bad": False, **fields}
    return {"bookie_id": bookie, "what": what, **(same | place if what == "log" else same), **fields}


def served(bookie: str, **fields: object) -> list[dict[str, object]]:
    """A record and the index row that points to it."""
    return [row(bookie, "index"), row(bookie, "log", **fields)]


def live(*bookies: str, **fields: object) -> list[dict[str, object]]:
    return [row(bookie, "live", **fields) for bookie in bookies]


CASES: dict[str, tuple[dict[str, object], list[dict[str, object]], list[tuple[str, str | None]]]] = {
    "whole": ({}, [*served("a"), *live("b", "c")], []),
    "one copy missing": ({}, live("a", "b"), [("missing", "c")]),
    "missing where nobody looked": ({"scanned": ["a", "b"]}, live("a", "b"), []),
    "open with an ack quorum": ({"state": "OPEN", "closed_at": None}, live("a", "b"), []),
    "open with less": ({"state": "OPEN", "closed_at": None}, live("a"), [("missing", "b"), ("missing", "c")]),
    "index to nothing": ({}, [row("a", "index"), *live("b", "c")], [("cut", "a"), ("dangling", "a")]),
    "index to another place": (
        {},
        [row("a", "index", offset=99), row("a", "log"), *live("b", "c")],
        [("cut", "a"), ("dangling", "a")],
    ),
    "record without an index row": ({}, [row("a", "log"), *live("b", "c")], [("unindexed", "a")]),
    "surplus": ({}, live(*ALL, "d"), [("surplus", "d")]),
    "surplus of another fragment": ({"other_bookies": ["d"]}, live(*ALL, "d"), []),
    "one of three differs": ({}, [*live("a", "b"), *live("c", content_digest=8)], [("divergent", "c")]),
    "one of three is longer": ({}, [*live("a", "b"), *live("c", length=10)], [("divergent", "c")]),
    "sealed again": ({}, [*live("a", "b"), *live("c", content_digest=8, last_confirmed=2)], []),
    "damaged copies are not compared": ({}, [*live("a", "b"), *live("c", content_digest=8, bad=True)], []),
    "all differ": (
        {},
        [*live("a"), *live("b", content_digest=8), *live("c", content_digest=9)],
        [("tied", None)],
    ),
    "two records on one bookie": (
        {},
        [*served("a"), row("a", "log", offset=900, content_digest=8), *live("b", "c")],
        [("twofold", "a")],
    ),
    "late by its last confirmed": ({"entry_id": 12}, live("a", last_confirmed=10), [("late", None)]),
    "late by its quorum": ({"entry_id": 10}, live("a", "b"), [("late", None)]),
    "late without proof": ({"entry_id": 10}, live("a"), []),
    "late but not the next": ({"entry_id": 11}, live("a", "b", "c"), []),
}


def test_copies_in_each_state_have_the_faults_of_it(spark: Any) -> None:
    rows = []
    for name, (changes, found, _) in CASES.items():
        values = {**ENTRY, **changes, "name": name, "rows": [tuple(one.get(n) for n in ROW_NAMES) for one in found]}
        rows.append(tuple(values[column] for column in NAMES))
    placed = spark.createDataFrame(rows, DDL)
    for name, expression in STEPS:
        placed = placed.withColumn(name, F.expr(expression))
    actual = {
        one["name"]: sorted((fault["kind"], fault["bookie_id"]) for fault in one["faults"])
        for one in placed.select("name", "faults").collect()
    }
    assert actual == {name: expected for name, (_, _, expected) in CASES.items()}
