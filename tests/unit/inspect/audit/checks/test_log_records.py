"""Logs and journals that are damaged, records that cannot be, and ledgers maps that do not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import log_records

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of


def test_each_damaged_place_of_a_file_is_found(damaged: Damaged) -> None:
    rows = damaged.found(log_records)
    (absurd,) = damaged.of(rows, "absurd_confirmed")
    assert json.loads(absurd["evidence"])["last_confirmed"] == absurd["entry_id"] + 5
    (map_,) = damaged.of(rows, "map_value")
    assert map_["message"] == "the map is wrong about 1 ledger"
    (wrong,) = json.loads(map_["evidence"])["ledgers"]
    assert wrong["ledger_id"] == map_["ledger_id"]
    assert wrong["told"] ^ wrong["counted"] == 0x10
    (size,) = damaged.of(rows, "bad_size")
    assert size["entry_id"] is not None, "the index names the entry whose size is damaged"


def place(code: str, file: str, offset: int = 8, **others: object) -> dict[str, object]:
    return {"code": code, "file": file, "offset": offset, "bookie_id": "b", "message": "m", "evidence": "{}", **others}


def journal(file: str, log_id: int) -> dict[str, object]:
    same = {"directory": "j", "source": "journal", "mark_journal_id": 2, "mark_offset": 100}
    return {"file": file, "log_id": log_id, **same}


def record(source: str, kind: str) -> dict[str, object]:
    ids = {"ledger_id": -5, "entry_id": -9, "size": 40, "offset": 7, "file": "f", "bookie_id": "b"}
    return {**ids, "source": source, "kind": kind}


def test_damage_before_the_mark_is_a_warning_and_a_torn_end_of_the_newest_file_is_not_reported(spark: Any) -> None:
    """The mark is at byte 100 of journal 2; journal 3 is the newest. Unknown records are reported in any file."""
    files = [
        *(journal(f"{number}.txn", number) for number in (1, 2, 3)),
        {"file": "9.log", "log_id": 9, "directory": "l", "source": "entry_log", "newest": True},
    ]
    damage = [
        place("BKC201", "1.txn"),
        place("BKC203", "2.txn", resumed_at=90),
        place("BKC203", "2.txn", offset=95, resumed_at=110),
        place("BKC202", "2.txn", offset=200),
        place("BKC202", "3.txn"),
        place("BKC205", "3.txn"),
        place("BKC102", "9.log"),
        place("BKC105", "8.log"),
        place("BKC105", "7.log"),
        place("BKC101", "7.log", offset=0),
        place("BKC104", "6.log"),
    ]
    records = [record("entry_log", "unknown"), record("journal", "unknown"), record("journal", "fence")]
    found = log_records.findings(tables_of(spark, damage=damage, log_files=files, records=records))
    assert keys(found, "code", "file", "offset", "severity") == [
        ("BKC101", "7.log", 0, "error"),
        ("BKC105", "8.log", 8, "warning"),
        ("BKC108", "f", 7, "error"),
        ("BKC201", "1.txn", 8, "warning"),
        ("BKC202", "2.txn", 200, "warning"),
        ("BKC203", "2.txn", 8, "warning"),
        ("BKC203", "2.txn", 95, "error"),
        ("BKC208", "f", 7, "warning"),
    ]
