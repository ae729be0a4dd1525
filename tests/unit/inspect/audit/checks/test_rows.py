"""Rows of findings from rows of facts."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks._rows import findings_of, text_of, union
from bkinspect.audit.schemas import FINDINGS
from bkinspect.finding import CODES


def test_a_finding_has_all_columns_with_the_severity_and_advice_of_its_code(spark: Any) -> None:
    rows = spark.createDataFrame([(5, None)], "ledger int, topic string")
    code = "BKC411"
    plain = findings_of(rows, code, subject="'s'", message="concat('ledger ', ledger)")
    full = findings_of(
        rows,
        code,
        subject="'s'",
        message="'m'",
        evidence={"topic": "topic", "n": "ledger + 1"},
        severity="case when ledger = 5 then 'error' end",
        ledger_id="ledger",
    )
    both = union(plain, full)
    assert [(field.name, field.dataType.simpleString()) for field in both.schema] == [
        (column.name, column.type) for column in FINDINGS.columns
    ]
    first, second = both.collect()
    known = CODES[code]
    assert (first["severity"], first["next"], first["evidence"]) == (str(known.severity), known.next, "{}")
    assert (first["message"], first["ledger_id"], first["file"]) == ("ledger 5", None, None)
    assert (second["severity"], second["ledger_id"]) == ("error", 5)
    assert second["evidence"] == '{"topic":null,"n":6}'


def test_bytes_that_are_not_utf_8_are_shown_in_base64(spark: Any) -> None:
    rows = spark.createDataFrame([(bytearray(b"pulsar"),), (bytearray(b"\xff\xfe"),), (None,)], "b binary")
    assert [row[0] for row in rows.selectExpr(text_of("b")).collect()] == ["pulsar", "//4=", None]
