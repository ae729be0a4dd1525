"""Lengths that do not grow by payloads, and last confirmed entries that fall."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from typing import Any

from bkinspect.audit.checks import growth

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of

PAYLOAD = 10


def entry(ledger_id: int, entry_id: int, length: int, last_confirmed: int) -> dict[str, object]:
    return {
        "ledger_id": ledger_id,
        "entry_id": entry_id,
        "bookie_id": "b:1",
        "last_confirmed": last_confirmed,
        "length": length,
        "payload_size": PAYLOAD,
        "digest_ok": True,
        "content_digest": entry_id,
        "size": PAYLOAD + 36,
        "offset": 100 * entry_id,
        "source": "live",
        "kind": "entry",
    }


def closed(ledger_id: int, last: int, length: int) -> dict[str, object]:
    return {"ledger_id": ledger_id, "state": "CLOSED", "last_entry_id": last, "length": length}


def test_only_the_first_of_wrong_lengths_and_a_falling_last_confirmed_are_found(spark: Any) -> None:
    lengths = {
        1: [10, 20, 30],
        2: [10, 25, 30],
        3: [10, 25, 35],
        4: [11, 20, 30],
    }
    entries = [entry(one, e, length, e - 1) for one, values in lengths.items() for e, length in enumerate(values)]
    confirmed = {5: [-1, 0, 1, 2, 3, -1], 6: [-1, 0, 1, 2, 3, 1], 7: [-1, -1, -1, 1, 1, -1]}
    entries += [
        entry(one, e, 10 * (e + 1), value) for one, values in confirmed.items() for e, value in enumerate(values)
    ]
    ledgers = [closed(one, len(values) - 1, 10 * len(values)) for one, values in {**lengths, **confirmed}.items()]
    found = growth.findings(tables_of(spark, ledgers=ledgers, entries=entries))
    assert [row[:3] for row in keys(found, "code", "ledger_id", "entry_id", "message")] == [
        ("BKC431", 2, 1),
        ("BKC431", 3, 1),
        ("BKC431", 4, 0),
        ("BKC431", 7, 5),
        ("BKC432", 3, None),
    ]


def test_an_empty_ledger_with_a_length_is_found(spark: Any) -> None:
    ledgers = [closed(1, -1, 0), closed(2, -1, 7), {"ledger_id": 3, "state": "OPEN"}]
    (found,) = growth.findings(tables_of(spark, ledgers=ledgers, entries=[])).collect()
    assert (found["code"], found["ledger_id"]) == ("BKC432", 2)
    assert found["message"] == "length 7 in metadata, 0 by its last entry"


def test_wrong_lengths_of_a_damaged_cluster_are_found_with_the_expected_ones(damaged: Damaged) -> None:
    rows = damaged.found(growth)
    (wrong,) = damaged.of(rows, "wrong_length")
    ledger = next(made for made in damaged.made.cluster.ledgers if made.id == wrong["ledger_id"])
    evidence = json.loads(wrong["evidence"])
    assert evidence["expected_length"] == sum(map(len, ledger.payloads[: wrong["entry_id"] + 1]))
    assert wrong["message"] == f"length {evidence['length']}, expected {evidence['expected_length']}"
    (falls,) = damaged.of(rows, "confirmed_falls")
    assert falls["message"].startswith("last confirmed falls from ")
    (ended,) = damaged.of(rows, "metadata_length")
    evidence = json.loads(ended["evidence"])
    assert evidence["length"] == evidence["length_of_last_entry"] + 11
