"""Bytes of entry logs by owner and reason, and bookies whose bytes are mostly not live."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import space

from tests.unit.inspect.audit.checks.memory import keys, tables_of

GIB = 1 << 30


def log_entry(ledger_id: int, entry_id: int = 0) -> dict[str, object]:
    return {
        "ledger_id": ledger_id,
        "entry_id": entry_id,
        "bookie_id": "b:1",
        "file": "1.log",
        "offset": 1000 * ledger_id + 100 * entry_id,
        "size": 96,
        "source": "entry_log",
        "kind": "entry",
        "digest_ok": True,
        "content_digest": 7,
    }


def test_bytes_are_counted_by_reason_and_owner(spark: Any) -> None:
    """Ledgers 1 and 5 are live, 2 is on a bookie that its ensemble does not name, 3 has no metadata, 4 no index row."""
    entries = [log_entry(1), log_entry(1, 1), log_entry(2), log_entry(3), log_entry(4), log_entry(5)]
    index = [
        {**{name: row[name] for name in ("ledger_id", "entry_id", "bookie_id", "file", "offset")}, "index": "i"}
        for row in entries
        if row["ledger_id"] != 4
    ]
    tables = tables_of(
        spark,
        entries=entries,
        index=index,
        bookie_ledgers=[{"bookie_id": "b:1", "ledger_id": 1, "index": "i"}],
        ledgers=[
            {"ledger_id": 1},
            {"ledger_id": 2},
            {"ledger_id": 4},
            {"ledger_id": 5, "custom_metadata": {"application": bytearray(b"\xff\xfe")}},
        ],
        fragments=[
            {"ledger_id": ledger_id, "bookies": bookies}
            for ledger_id, bookies in ((1, ["b:1"]), (2, ["c:1"]), (4, ["b:1"]), (5, ["b:1"]))
        ],
        topics=[{"ledger_id": 1, "topic": "t", "kind": "data"}],
    )
    assert keys(space.space(tables), "reason", "owner", "kind", "ledgers", "entries", "bytes") == [
        ("dead", "-", "-", 1, 1, 100),
        ("live", "//4=", "-", 1, 1, 100),
        ("live", "t", "data", 1, 2, 200),
        ("orphan", "-", "-", 1, 1, 100),
        ("over-replicated", "-", "-", 1, 1, 100),
    ]


def test_a_bookie_is_found_where_more_than_a_gibibyte_and_more_than_half_is_not_live(spark: Any) -> None:
    def row(bookie: str, reason: str, size: int) -> dict[str, object]:
        return {"bookie_id": bookie, "reason": reason, "owner": "-", "bytes": size}

    rows = [
        row("mostly dead", "live", GIB),
        row("mostly dead", "dead", GIB),
        row("mostly dead", "orphan", 1),
        row("half", "live", 2 * GIB),
        row("half", "dead", 2 * GIB),
        row("small", "dead", GIB),
    ]
    found = space.findings(tables_of(spark, space=rows))
    assert keys(found, "code", "bookie_id", "severity", "evidence") == [
        ("BKC501", "mostly dead", "info", f'{{"dead_bytes":{GIB + 1},"live_bytes":{GIB}}}')
    ]
