"""Copies whose digest does not fit."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import digests

from tests.unit.inspect.audit.checks.conftest import Damaged
from tests.unit.inspect.audit.checks.memory import keys, tables_of


def test_each_damaged_copy_of_a_log_or_journal_is_found(damaged: Damaged) -> None:
    rows = damaged.found(digests)
    assert {row["code"] for row in rows} == {"BKC107", "BKC204"}
    assert {row["message"] for row in rows} == {"the digest does not fit"}
    (bit,) = damaged.of(rows, "payload_bit")
    assert bit["subject"] == f"entry {bit['entry_id']} of ledger {bit['ledger_id']}"
    (journal,) = damaged.of(rows, "journal_bit")
    assert journal["file"].endswith(".txn")


def test_copies_of_running_bookies_are_found_by_their_own_code(spark: Any) -> None:
    def entry(entry_id: int, digest_ok: bool | None) -> dict[str, object]:
        same = {"ledger_id": 5, "bookie_id": "b:1", "source": "live", "kind": "entry", "size": 44, "offset": entry_id}
        return {**same, "entry_id": entry_id, "digest_ok": digest_ok}

    entries = [entry(0, True), entry(1, False), entry(2, None)]
    found = digests.findings(tables_of(spark, entries=entries))
    assert keys(found, "code", "entry_id", "bookie_id", "severity") == [("BKC405", 1, "b:1", "error")]
